"""What a run executes can be written by its owner alone, whatever the umask says."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.errors import StoreError
from nbkit.launch.code.trust import permit_run
from nbkit.launch.resume import held_attempt
from nbkit.store.metrics import JsonLinesWriter
from nbkit.store.ownership import (
    open_to_append,
    what_others_own,
)
from nbkit.store.paths import store_folder
from nbkit.telemetry.child import start_sampler
from tests.hostile.test_planted_secrets import MARK, readable
from tests.hostile.written import imported, store_at, write_run
from tests.training import train_here


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    store_at(tmp_path / "store", monkeypatch)
    store_folder().mkdir()


@pytest.fixture
def umask():
    """Return a way to set the umask of this process and its children."""
    before = os.umask(0)
    yield os.umask
    os.umask(before)


def _others_own(*folders: Path) -> str | None:
    """Return which file of any depth another user owns or can write."""
    return what_others_own(
        path for folder in folders for path in (folder, *folder.rglob("*"))
    )


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_a_launched_function_was_given_and_leaves_is_its_owners_alone(umask):
    umask(0)

    def saves(secret):
        here = nbkit.context()
        here.save_checkpoint({"step": 1}, 1)
        return [secret]

    run = nbkit.launch(saves, args=(MARK,), gpus=1, device="cpu").wait()

    assert run.returns == [[MARK]]
    permit_run(run.paths, trust=False)
    paths = run.paths
    folders = paths.code, paths.checkpoints, paths.logs, paths.system_folder
    assert _others_own(*folders) is None
    assert what_others_own([run.paths.root, run.paths.metrics]) is None
    returned = run.paths.rank(0, 0).returned
    assert [_mode(path) for path in (returned, run.paths.entry_pickle)] == [0o600] * 2
    # Nobody else can read what came in and out, but for sources, which are kept as is.
    kept = {name for name, text in readable(store_folder()).items() if MARK in text}
    assert all("/code/source/" in name for name in kept)


def test_nobody_else_can_write_what_a_training_leaves(umask):
    umask(0)
    config = ExperimentConfig(model="resnet18", image_size=32, batch_size_per_gpu=2)

    run = train_here(config.replace(device="cpu", steps=2, warmup_steps=0))

    paths = run.paths
    assert what_others_own([paths.root, paths.metrics, paths.tensorboard]) is None
    assert any(paths.tensorboard.iterdir())


def test_nothing_is_appended_to_what_a_link_leads_to(tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    link = tmp_path / "system" / "host.jsonl"
    link.parent.mkdir()
    link.symlink_to(mine)

    for write in (JsonLinesWriter, open_to_append):
        with pytest.raises((OSError, StoreError), match=r"link|symbolic"):
            write(link)
    assert start_sampler(link, interval_seconds=0.25).stop(60) == 1

    assert mine.read_text() == "mine"


def test_nobody_else_can_write_a_study_or_a_new_attempt(umask):
    umask(0)

    study = nbkit.Study.create("s", {"a": ExperimentConfig(device="cpu", gpus=1)})

    assert _others_own(study.paths.root) is None
    assert _mode(study.paths.root.parent) == 0o777  # the store may be a team's
    run = write_run()
    with held_attempt(run):
        assert _others_own(run.paths.logs) is None


# Every module that this process has loaded is a source of a run.
@pytest.mark.filterwarnings("ignore:the bundle may contain secrets")
def test_nobody_else_can_write_what_was_imported(umask, tmp_path, monkeypatch):
    run = write_run("finished", task="function")
    umask(0o002)

    (run_id,) = imported(run, tmp_path, monkeypatch)

    assert _others_own(nbkit.attach(run_id).paths.root) is None


def test_what_others_own_looks_at_links_themselves(tmp_path):
    link = tmp_path / "code"
    link.symlink_to(tmp_path)
    os.chown(link, 12_345, -1, follow_symlinks=False)

    assert "belongs to uid 12345" in (what_others_own([link]) or "")
