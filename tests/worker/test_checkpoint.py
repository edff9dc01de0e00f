"""Checkpoints: what survives, what counts, what a failing disk leaves behind."""

import errno
import os
import shutil
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from nbkit import reading
from nbkit.errors import ConfigError, RunError, StoreError
from nbkit.store.paths import RunPaths
from nbkit.store.record import read_json
from nbkit.worker import checkpoint
from nbkit.worker.generators import random_state
from nbkit.worker.rank import Rank
from tests.full_disk import files_no_larger_than


def save(folder, step, *, kept=10, state=None):
    """Save as the only rank."""
    values = {"step": step} if state is None else state
    own = random_state()
    return checkpoint.save(folder, step, values, own, 0, 1, lambda: None, kept)


def save_as_ranks(folder, step, world_size):
    """Save with one thread a rank."""
    barrier = threading.Barrier(world_size)

    def one(rank):
        return checkpoint.save(
            folder, step, {"step": step}, {"rank": rank}, rank, world_size,
            barrier.wait, 10,
        )  # fmt: skip

    with ThreadPoolExecutor(world_size) as ranks:
        return list(ranks.map(one, range(world_size)))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_model_optimizer_and_position_come_back_as_they_were(tmp_path):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, fused=True)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": 7,
    }

    loaded, _ = checkpoint.load(save(tmp_path, 7, state=state), 0)

    assert loaded["step"] == 7
    assert torch.equal(loaded["model"]["weight"], model.weight)
    other = torch.optim.SGD(model.parameters(), 0.5, fused=True)
    other.load_state_dict(loaded["optimizer"])
    momentum = optimizer.state[model.weight]["momentum_buffer"]
    assert torch.equal(other.state[model.weight]["momentum_buffer"], momentum)


def test_every_rank_gets_its_own_part_and_all_get_the_shared_one(tmp_path):
    paths = save_as_ranks(tmp_path, 12, world_size=3)

    loaded = [checkpoint.load(paths[0], rank, 3) for rank in range(3)]

    assert set(paths) == {tmp_path / "step_00000012"}
    assert loaded == [({"step": 12}, {"rank": rank}) for rank in range(3)]


def test_a_checkpoint_lists_its_files_and_leaves_no_others(tmp_path):
    path = save_as_ranks(tmp_path, 12, world_size=2)[0]

    complete = read_json(path / "complete.json")

    assert names(path) == ["complete.json", "rank_0.pt", "rank_1.pt", "state.pt"]
    assert complete["step"] == 12
    assert complete["world_size"] == 2
    assert complete["files"] == {
        name: (path / name).stat().st_size
        for name in ("rank_0.pt", "rank_1.pt", "state.pt")
    }


def test_checkpoint_latest_is_the_newest_complete(tmp_path):
    assert checkpoint.latest(tmp_path / "none yet") is None
    before_barrier = []

    def barrier():
        before_barrier.append(checkpoint.latest(tmp_path))

    newest = checkpoint.save(tmp_path, 5, {}, {}, 0, 1, barrier, 10)
    unfinished, cut, lacking = (save(tmp_path, step) for step in (41, 42, 43))
    (unfinished / "complete.json").unlink()
    (cut / "state.pt").write_bytes(b"cut")
    (lacking / "rank_0.pt").unlink()

    assert before_barrier[0] is None
    assert checkpoint.latest(tmp_path) == newest == tmp_path / "step_00000005"
    with pytest.raises(StoreError, match="is incomplete"):
        checkpoint.load(lacking, 0)


def test_older_ones_are_removed_complete_or_not(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step)
    (tmp_path / "step_00000003" / "complete.json").unlink()

    save(tmp_path, 4, kept=2)

    assert names(tmp_path) == ["step_00000002", "step_00000004"]


@pytest.mark.parametrize(
    "name", ["step_00000001.keep", "step_00000001.old", ".step_00000001", "step_best"]
)
def test_a_copy_by_another_name_is_neither_removed_nor_resumed_from(tmp_path, name):
    first = save(tmp_path, 1)
    copy = shutil.copytree(first, tmp_path / name)
    assert checkpoint.latest(tmp_path) == first

    newest = save(tmp_path, 2, kept=1)

    assert names(tmp_path) == sorted([name, newest.name])
    shutil.rmtree(newest)
    assert checkpoint.latest(tmp_path) is None
    assert (copy / "state.pt").is_file()


class Killed(BaseException):
    """Ends a save at a place of the test's choice, as SIGKILL would."""


def killed():
    raise Killed


def test_checkpoint_stays_after_a_failed_save_of_its_step(tmp_path):
    path = save(tmp_path, 3, state={"value": 1})

    with pytest.raises(ConfigError, match=r"state\['value'\] is a PosixPath"):
        save(tmp_path, 3, state={"value": tmp_path})
    assert checkpoint.load(path, 0)[0]["value"] == 1
    with pytest.raises(Killed):
        checkpoint.save(tmp_path, 3, {"value": 2}, {}, 0, 1, killed, 10)

    assert checkpoint.latest(tmp_path) == path
    assert checkpoint.load(path, 0)[0]["value"] == 1
    save(tmp_path, 4)
    assert names(tmp_path) == ["step_00000003", "step_00000004"]


@pytest.mark.parametrize("moment", ["before its name", "before the new one's name"])
def test_one_of_the_two_counts_when_a_save_is_killed_while_it_gives_names(
    tmp_path, monkeypatch, moment
):
    paths = RunPaths(tmp_path)
    folder = paths.checkpoints
    path = save(folder, 3, state={"value": 1})
    rename, left = Path.rename, [1 if moment == "before its name" else 2]

    def rename_or_die(one, other):
        left[0] -= 1
        return rename(one, other) if left[0] else killed()

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", rename_or_die)
        with pytest.raises(Killed):
            save(folder, 3, state={"value": 2})

    former = checkpoint.latest(folder)
    assert former is not None
    assert checkpoint.load(former, 0)[0]["value"] == 1
    assert checkpoint.step_of(former) == 3
    assert paths.has_checkpoint
    assert checkpoint.load(save(folder, 3, state={"value": 3}), 0)[0]["value"] == 3
    assert names(folder) == [path.name]


def test_one_that_was_never_named_is_none_to_resume_from(tmp_path, monkeypatch):
    paths = RunPaths(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", lambda one, other: killed())
        with pytest.raises(Killed):
            save(paths.checkpoints, 3)

    assert not paths.has_checkpoint
    assert checkpoint.latest(paths.checkpoints) is None


def test_ranks_that_save_a_step_again_and_again_find_it_every_time(tmp_path):
    barrier = threading.Barrier(3)

    def one(rank):
        for number in range(20):
            path = checkpoint.save(
                tmp_path, 3, {"number": number}, {}, rank, 3, barrier.wait, 10
            )
            assert checkpoint.load(path, rank, 3)[0]["number"] == number

    with ThreadPoolExecutor(3) as ranks:
        list(ranks.map(one, range(3)))

    assert names(tmp_path) == ["step_00000003"]


@pytest.mark.parametrize("elements", [1 << 10, 1 << 16])
def test_a_failed_write_is_a_store_error_and_the_one_before_stays(tmp_path, elements):
    before = save(tmp_path, 1)
    after = tmp_path / "step_00000002"
    large = {"weights": torch.zeros(elements * 16)}

    with files_no_larger_than(32_768), pytest.raises(StoreError, match=str(after)):
        save(tmp_path, 2, state=large, kept=1)

    assert checkpoint.latest(tmp_path) == before
    assert not list(tmp_path.glob("*2*/*state*"))


def test_an_error_that_is_not_the_disks_keeps_its_name(tmp_path):
    with pytest.raises(AttributeError, match="pickle"):
        save(tmp_path, 1, state={"function": lambda: None})

    assert checkpoint.latest(tmp_path) is None


def test_a_folder_that_cannot_be_made_is_a_store_error(tmp_path):
    (tmp_path / "checkpoints").write_text("a file")

    with pytest.raises(StoreError, match="cannot be written"):
        save(tmp_path / "checkpoints", 1)


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
@pytest.mark.parametrize("asked", ["torch.load", "pathlib.Path.stat"])
def test_a_file_server_that_is_silent_for_a_moment_is_asked_again(
    tmp_path, monkeypatch, asked, number
):
    path = save(tmp_path, 7)
    module, _, name = asked.rpartition(".")
    owner = {"torch": torch, "pathlib.Path": Path}[module]
    real, errors = getattr(owner, name), [OSError(number, os.strerror(number))]

    def silent_first(file, **options):
        if Path(file).name == "state.pt" and errors:
            raise errors.pop()
        return real(file, **options)

    monkeypatch.setattr(owner, name, silent_first)
    monkeypatch.setattr(reading, "PAUSE_SECONDS", 0.0)

    if number == errno.EIO:
        assert checkpoint.load(path, 0)[0] == {"step": 7}
    else:
        with pytest.raises(PermissionError):
            checkpoint.load(path, 0)


@pytest.mark.parametrize("world_size", [1, 3])
def test_another_number_of_ranks_is_refused(tmp_path, world_size):
    path = save_as_ranks(tmp_path, 1, world_size=2)[0]

    with pytest.raises(RunError, match="was written by 2 ranks"):
        checkpoint.load(path, 0, world_size)


def test_a_store_that_nodes_do_not_share_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"rank_1\.pt.*NBKIT_HOME"):
        checkpoint.save(tmp_path, 1, {}, {}, 0, 2, lambda: None, 10)

    assert checkpoint.latest(tmp_path) is None


@pytest.fixture
def agreed(tmp_path, monkeypatch):
    """Return what rank 1 continues from, when rank 0 has found a checkpoint."""
    rank = Rank(RunPaths(tmp_path), 1, 0, 2, 1, 1, None)
    group: Any = object()

    def ask(found_by_rank_0, limit_seconds=60.0):
        def broadcast(values, src, group):
            values[src] = found_by_rank_0

        monkeypatch.setattr(checkpoint.dist, "broadcast_object_list", broadcast)
        return checkpoint.agreed(rank, group, limit_seconds)

    return ask


def test_agreed_checkpoint_of_rank_0(tmp_path, agreed, monkeypatch):
    older, newer = (save(RunPaths(tmp_path).checkpoints, step) for step in (3, 5))

    assert agreed(older.name) == older
    assert agreed(None) is None

    hidden = newer.rename(tmp_path / "hidden")
    message = f"step_00000005 of rank 0 .* on node {socket.gethostname()} .*NBKIT_HOME"
    with pytest.raises(StoreError, match=message):
        agreed(newer.name, limit_seconds=0.0)

    # The file system of this node shows it later.
    monkeypatch.setattr(Rank, "beat", lambda rank, step, phase: hidden.rename(newer))
    assert agreed(newer.name) == newer
