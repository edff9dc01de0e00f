"""Users of one host or store who read what is not theirs, and disks that are full."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import zipfile
from pathlib import Path

import pytest

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.errors import RunError, StoreError
from nbkit.launch.code.entry import function_entry, script_entry
from nbkit.launch.slurm.batch_script import sbatch_script
from nbkit.reports.renderer import Report
from nbkit.store.metrics import JsonLinesWriter
from nbkit.store.paths import RunPaths, runs_folder, store_folder
from nbkit.store.predictions import ClassPredictions, write_predictions
from nbkit.store.private import private_part
from nbkit.store.record import read_json, replace_file, write_json, write_json_once
from nbkit.store.stored_runs import create_run_folder
from tests.hostile.strangers import STRANGER, as_stranger, needs_root
from tests.widgets.stored_run import WrittenRun, step


@pytest.fixture(autouse=True)
def few_sources(monkeypatch):
    """Leave out the modules of tests: each loaded one is a source of a run."""
    monkeypatch.setattr("nbkit.launch.code.entry.is_local", lambda _: False)


@pytest.fixture(params=[0o077, 0o027, 0o002], ids=oct)
def umask(request):
    """Set a umask, and return it."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    """Return who may do what with a file."""
    return stat.S_IMODE(path.stat().st_mode)


def test_files_follow_the_umask(umask, tmp_path):
    write_json(tmp_path / "a.json", {})
    write_json_once(tmp_path / "b.json", {})
    JsonLinesWriter(tmp_path / "c.jsonl").close()
    replace_file(tmp_path / "d.html", b"")
    predictions = ClassPredictions(["a.jpg"], ["a"], ["a"], [1.0])
    write_predictions(tmp_path / "e.csv", predictions)
    write_json(tmp_path / "private.json", {}, 0o600)

    modes = {path.name: mode(path) for path in tmp_path.iterdir() if path.is_file()}
    assert modes.pop("private.json") == 0o600
    # What runs are executed by is for nobody else to write, whatever the umask says.
    own = {modes.pop(name) for name in ("a.json", "b.json", "c.jsonl")}
    assert own == {0o644 & ~umask}
    assert set(modes.values()) == {0o666 & ~umask}
    assert len(modes) == 2


def test_the_default_store_is_its_owners_alone_and_a_named_one_a_teams(
    tmp_path, monkeypatch, store
):
    before = os.umask(0o002)
    try:
        create_run_folder(ExperimentConfig())
        assert mode(store) == 0o775
        monkeypatch.delenv("NBKIT_HOME")
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
        create_run_folder(ExperimentConfig())
    finally:
        os.umask(before)

    assert store_folder() == tmp_path / "data" / "nbkit"
    assert mode(store_folder()) == 0o700


def script_run(store: Path, tmp_path: Path, name: str = "one") -> WrittenRun:
    """Return a finished run of a script with arguments."""
    written = WrittenRun(store / name, task="script", gpus=1)
    script = tmp_path / "train.py"
    script.write_text("import sys\n")
    script_entry(script, ["--lr", "1"], {"MODE": "a"}).write(written.run.paths)
    written.append(*({**step(n), "t": float(n)} for n in (1, 2)))
    written.record("finished")
    # Its supervisor is gone, as that of every run that has ended.
    return written


def nbkit_run(paths: RunPaths):
    """Return the handle of a run in any store."""
    from nbkit.launch.run import Run

    return Run(paths.root)


@needs_root
def test_another_users_run_is_compared_without_its_arguments(store, tmp_path):
    one = script_run(store, tmp_path, "one").run
    made = script_run(store, tmp_path, "two").run.paths.root
    two = nbkit_run(RunPaths(made.rename(made.with_name("20200101-000000-other-bbbb"))))
    for path in store.rglob("*"):
        path.chmod(path.stat().st_mode | (0o005 if path.is_dir() else 0))
    store.chmod(0o755)

    with as_stranger(store):
        with pytest.raises(PermissionError):
            one.paths.private.read_bytes()
        said = str(nbkit.compare(one, two))
        assert one.summary.n_steps == 2
        assert one.diagnose() is not None

    # Nobody can say that they are the same, and nothing of them is told.
    assert said.count("unknown, readable by its owner only") == 4
    assert "argv" in said
    assert "--lr" not in said


@needs_root
def test_export_names_the_file_of_another_user_that_it_may_not_read(store, tmp_path):
    run = script_run(store, tmp_path).run
    outside = tmp_path / "out"
    outside.mkdir()
    outside.chmod(0o777)

    with as_stranger(run.paths.code):
        nbkit.export(run, outside / "without.zip")
        with pytest.raises(StoreError, match=r"private.json can only be read by"):
            nbkit.export(run, outside / "x.zip", include_arguments=True)

    assert [path.name for path in outside.iterdir()] == ["without.zip"]


def add(a, b):
    """Return a sum."""
    return a + b


def test_a_bundle_leaves_arguments_out_unless_told_and_says_what_is_missing(
    store, tmp_path, monkeypatch
):
    written = WrittenRun(store, task="function", gpus=1)
    run = written.run
    function_entry(add, (1, 2)).write(run.paths)
    written.record("finished")
    plain = nbkit.export(run, tmp_path / "plain.zip")
    whole = nbkit.export(run, tmp_path / "whole.zip", include_arguments=True)
    names = [f"runs/{run.run_id}/code/{name}" for name in ("entry.pkl", "private.json")]
    with zipfile.ZipFile(plain) as archive:
        assert set(names).isdisjoint(archive.namelist())
        left_out = json.loads(archive.read("bundle.json"))["left_out"]
    assert {"path": names[0], "why": "include_arguments=False"} in left_out
    with zipfile.ZipFile(whole) as archive:
        assert set(names) <= set(archive.namelist())
    # Its own store has it already.
    assert nbkit.import_bundle(plain).already_there == (run.run_id,)
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "elsewhere"))
    nbkit.import_bundle(plain)

    paths = nbkit.attach(run.run_id).paths
    with pytest.raises(RunError) as caught:
        private_part(paths, read_json(paths.entry) or {})

    missing = f"imported without {paths.private} and {paths.entry_pickle} (its arg"
    assert missing in str(caught.value)
    assert "Export it again with include_arguments=True" in str(caught.value)


@needs_root
def test_who_cannot_write_where_another_user_can_is_told_whom_to_ask(store, tmp_path):
    paths = script_run(store, tmp_path).run.paths
    words = rf"uid {os.geteuid()}, not to uid {STRANGER}: ask its owner for access, or "
    report = Report(title="a question", answer="an answer")

    with as_stranger(paths.root):
        with pytest.raises(StoreError, match=f"{words}export it and import"):
            write_json_once(paths.stop, {})
        with pytest.raises(
            StoreError, match=rf"{words}use another folder \(nbkit report"
        ):
            report.save(paths.root)


def test_a_line_end_in_the_stores_path_gives_sbatch_no_option(tmp_path):
    root = tmp_path / "x\n#SBATCH --account=evil" / "runs" / "20260101-120000-a"

    with pytest.raises(StoreError, match="Set NBKIT_HOME to another folder"):
        sbatch_script(
            ExperimentConfig(), RunPaths(root), python="python", gpus_per_node=0
        )


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_launch_on_a_full_disk_leaves_no_folder(store):
    store.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(store)]
    subprocess.run(mount, check=True)
    try:
        runs_folder().mkdir()
        with (
            contextlib.suppress(OSError),
            (store / "ballast").open("wb", buffering=0) as file,
        ):
            while True:
                file.write(b"\0" * 4096)
        with pytest.raises(StoreError, match="the disk is full"):
            nbkit.launch(model="resnet18", device="cpu", oversubscribe=True, steps=20)

        assert list(runs_folder().iterdir()) == []
    finally:
        subprocess.run(["umount", str(store)], check=True)
