"""The first failure is the cause, whoever reports first."""

from __future__ import annotations

import json
import os
import time
from types import SimpleNamespace

import pytest
import torch
import torch.distributed

import nbkit.launch.supervision.cause
from nbkit.launch.supervision.cause import failure_cause, lost_node_cause, stop_cause
from nbkit.launch.supervision.hang import hang_cause
from nbkit.launch.supervision.rank_error import OF_COMMUNICATION
from nbkit.launch.supervision.ranks import WatchedRank
from nbkit.store.heartbeat import Beat, Phase
from nbkit.store.paths import RunPaths

NEW_WORDS = "what no library has said yet"


def ended_rank(number, returncode, ended_at, **fields):
    """Return a rank as its supervisor knows it."""
    ended = {"node": None, "returncode": returncode, "ended_at": ended_at}
    return WatchedRank(number, **{**ended, **fields})


def write_error(paths, rank, message, moment, **extra):
    """Write what a rank leaves of an exception, at a Unix time."""
    file = paths.rank(0, rank).error
    file.parent.mkdir(parents=True)
    extra["py_callstack"] = "trace"
    content = {"message": {"message": message, "extraInfo": extra}}
    file.write_text(json.dumps(content))
    os.utime(file, (moment, moment))


@pytest.fixture
def paths(tmp_path):
    return RunPaths(tmp_path)


@pytest.mark.parametrize(
    ("errors", "ranks", "named"),
    [
        pytest.param(
            {0: ("RuntimeError: Connection closed", 1000.5), 1: ("ValueError", 1000.4)},
            [ended_rank(0, 1, 1001), ended_rank(1, 1, 1002)],
            1,
            id="the earliest error",
        ),
        pytest.param(
            {0: ("RuntimeError: Connection reset by peer", 1000.0)},
            [ended_rank(0, 1, 1001), ended_rank(1, -9, 1007)],
            1,
            id="killed, after its neighbour reported",
        ),
        pytest.param(
            {0: ("RuntimeError: Connection reset by peer", 1000.0)},
            [ended_rank(0, 1, 1001), ended_rank(1, -9, 1000, killed_by_us=True)],
            0,
            id="an echo alone",
        ),
        pytest.param(
            {0: ("ValueError: mine", 1000.0)},
            [ended_rank(0, 1, 1001), ended_rank(1, -6, 1000.2)],
            0,
            id="an abort after an exception",
        ),
        pytest.param(
            {0: ("ValueError: mine", 1005.0)},
            [ended_rank(0, 1, 1006), ended_rank(1, -9, 1000, killed_by_us=True)],
            0,
            id="killed by the supervisor",
        ),
    ],
)
def test_failure_cause_rank(errors, ranks, named, paths):
    for rank, (message, moment) in errors.items():
        write_error(paths, rank, message, moment)

    assert failure_cause(ranks, paths, 0)["rank"] == named


@pytest.mark.parametrize("name", sorted(OF_COMMUNICATION))
def test_failure_cause_communication_error_by_class(paths, name):
    # torch has it.
    kind = getattr(torch.distributed, name)
    classes = ["OwnError", *(one.__name__ for one in kind.__mro__)]
    write_error(paths, 0, f"OwnError: {NEW_WORDS}", 1000.0, classes=classes)

    cause = failure_cause([ended_rank(0, 1, 1001), ended_rank(1, -9, 1007)], paths, 0)

    assert (cause["rank"], cause["kind"]) == (1, "signal")
    assert cause["signal"] == "SIGKILL"


@pytest.mark.parametrize(
    ("phase", "module"),
    [
        (Phase.COLLECTIVE, "torch.autograd.graph"),
        (Phase.COMPUTE, "torch.distributed.distributed_c10d"),
        (Phase.COMPUTE, "torch.nn.parallel.distributed"),
    ],
)
def test_failure_cause_communication_error_by_place(paths, phase, module):
    write_error(paths, 0, f"RuntimeError: {NEW_WORDS}", 1000.0, module=module)
    ranks = [ended_rank(0, 1, 1001, phase=phase), ended_rank(1, -9, 1007)]

    assert failure_cause(ranks, paths, 0)["rank"] == 1


@pytest.mark.parametrize(
    "words",
    [
        "OutOfMemoryError: CUDA out of memory, connection reset",
        "DistBackendError: NCCL error: Cuda failure 2 'out of memory'",
        "AcceleratorError: CUDA error: device-side assert triggered",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "RuntimeError: a variable has been modified by an inplace operation",
        "ValueError: mine",
    ],
)
def test_failure_cause_own_error_in_collective(paths, words):
    write_error(paths, 0, words, 1000.0)
    ranks = [ended_rank(0, 1, 1001, phase=Phase.COLLECTIVE), ended_rank(1, 1, 1007)]

    assert failure_cause(ranks, paths, 0)["rank"] == 0


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("OutOfMemoryError: CUDA out of memory.", "out_of_memory"),
        ("AcceleratorError: CUDA error: out of memory\nCUDA kernel", "out_of_memory"),
        (
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling "
            "`cublasCreate(handle)`",
            "out_of_memory",
        ),
        (
            "RuntimeError: GET was unable to find an engine to execute this "
            "computation",
            "out_of_memory",
        ),
        ("ValueError: my list is out of memory", "exception"),
    ],
)
def test_failure_cause_kind(paths, words, kind):
    write_error(paths, 0, words, 1000.0)

    cause = failure_cause([ended_rank(0, 1, 1001)], paths, 0)

    assert (cause["kind"], cause["message"]) == (kind, words)
    assert cause["traceback"] == "trace"


def test_failure_cause_port_in_use(paths):
    words = "DistNetworkError: failed to bind. port: 29500, code: -98, name: EADDRINUSE"
    write_error(paths, 0, words, 1000.0)

    message = failure_cause([ended_rank(0, 1, 1001)], paths, 0)["message"]

    assert message.startswith(f"{words}; remove init_method and MASTER_PORT")


def test_failure_cause_out_of_memory_class(paths):
    classes = ["OwnError", *(one.__name__ for one in torch.OutOfMemoryError.__mro__)]
    write_error(paths, 0, f"OwnError: {NEW_WORDS}", 1000, classes=classes)

    assert failure_cause([ended_rank(0, 1, 1001)], paths, 0)["kind"] == "out_of_memory"


def test_failure_cause_killed_by_oom_killer(paths):
    ranks = [ended_rank(0, -9, 1000, kernel_ran_out_of_memory=True)]

    cause = failure_cause(ranks, paths, 0)

    assert cause["kind"] == "out_of_memory"
    assert "use a smaller batch" in cause["message"]


@pytest.mark.parametrize("out", [True, False])
@pytest.mark.parametrize(
    ("said", "is_lost_process"),
    [
        ("RuntimeError: DataLoader worker (pid(s) 22628) exited unexpectedly", True),
        ("RuntimeError: DataLoader worker (pid 3) is killed by signal: Killed. ", True),
        (
            "RuntimeError: DataLoader worker (pid 3) is killed by signal: Bus error",
            False,
        ),
        ("BrokenProcessPool: A process in the process pool was terminated", True),
        ("TerminatedWorkerError: A worker process managed by the executor was", True),
        ("ValueError: mine", False),
    ],
)
def test_failure_cause_loading_process_killed(said, is_lost_process, out, paths):
    write_error(paths, 0, said, 1000)

    ranks = [ended_rank(0, 1, 1001, kernel_ran_out_of_memory=out)]
    cause = failure_cause(ranks, paths, 0)

    is_memory = out and is_lost_process
    assert cause["kind"] == ("out_of_memory" if is_memory else "exception")
    assert cause["message"].startswith(said)
    assert ("fewer workers" in cause["message"]) is is_memory


def test_failure_cause_signal_without_a_name(paths):
    cause = failure_cause([ended_rank(0, -40, 1000)], paths, 0)

    assert cause["signal"] == "40"
    assert cause["message"] == "killed by signal 40 (not sent by nbkit)"


def test_failure_cause_file_server_clock(paths, monkeypatch):
    now = time.time()
    write_error(paths, 1, "ValueError: mine", now)
    # This host's clock is a minute behind; rank 0 ended two seconds later by it.
    behind = SimpleNamespace(time=lambda: time.time() - 60)
    monkeypatch.setattr(nbkit.launch.supervision.cause, "time", behind)

    ranks = [ended_rank(0, -9, now - 58), ended_rank(1, 1, now - 57)]

    assert failure_cause(ranks, paths, 0)["rank"] == 1


def test_failure_cause_enormous_last_line(paths):
    log = paths.rank(0, 0).stderr
    log.parent.mkdir(parents=True)
    log.write_text("x" * 10_000_000)

    message = failure_cause([ended_rank(0, 3, 1001)], paths, 0)["message"]

    assert message.startswith("exit code 3 without a Python exception: xxx")
    assert message.endswith("xxx...")
    assert len(message) < 3000


def test_failure_cause_half_an_error_file(paths):
    file = paths.rank(0, 0).error
    file.parent.mkdir(parents=True)
    file.write_text('{"mess')

    cause = failure_cause([ended_rank(0, 1, 1000)], paths, 0)

    assert (cause["kind"], cause["rank"]) == ("exit", 0)


COLLECTIVE, DATA, COMPUTE = Phase.COLLECTIVE, Phase.DATA, Phase.COMPUTE


@pytest.mark.parametrize(
    ("places", "on_gpus", "rank", "words"),
    [
        (
            [(5, COLLECTIVE), (5, DATA), (5, COLLECTIVE)],
            False,
            1,
            "rank 1 is waiting for data at step 5; rank 0 is in a collective oper",
        ),
        ([(3, COLLECTIVE)] * 4, False, 0, "each is in a collective operation at step"),
        ([(7, COMPUTE), (5, COMPUTE)], False, 1, "rank 1 is computing at step 5"),
        ([(7, COLLECTIVE, 5), (7, DATA, 6)], True, 1, "waiting for data"),
        # Hosts that wait for their GPUs: those say who is behind.
        (
            [(7, COMPUTE, 4), (6, COMPUTE, 2), (5, COMPUTE, 4)],
            True,
            1,
            "that the GPU finished is 2 on rank 1 and up to 4 on other ranks",
        ),
        # The same, as far as anybody knows: rank 1 looked earlier.
        (
            [(7, COMPUTE, 4), (6, COMPUTE, 3), (5, COMPUTE, 4)],
            True,
            None,
            "the last step that any GPU finished is 4",
        ),
        # A first exchange that hangs.
        ([(7, COMPUTE, 0), (6, COMPUTE, 0)], True, None, "that any GPU finished is 0"),
    ],
)
def test_hang_cause(places, on_gpus, rank, words, paths):
    beats = [Beat(step, phase, 9, *finished) for step, phase, *finished in places]

    cause = hang_cause(beats, 60, paths, 0, trains_on_gpus=on_gpus)

    assert cause["rank"] == rank
    assert words in cause["message"]


@pytest.mark.parametrize(
    ("ranks", "ready", "forced", "how"),
    [
        ([], False, False, "before its ranks were started"),
        ([ended_rank(0, None, None)], False, False, "before its ranks were ready"),
        # Rank 1 waited for rank 0 where no signal reaches it.
        (
            [ended_rank(0, -15, 1), ended_rank(1, -9, 2, killed_by_us=True)],
            False,
            False,
            "before its ranks were ready",
        ),
        # They never ask.
        ([ended_rank(0, -15, 1), ended_rank(1, -15, 2)], True, False, "immediately"),
        (
            [ended_rank(0, 0, 1), ended_rank(1, -9, 2, killed_by_us=True)],
            True,
            True,
            "by force: its ranks did not end",
        ),
    ],
)
def test_stop_cause(ranks, ready, forced, how, paths):
    cause = stop_cause(ranks, {"by": "me"}, paths, 0, ready=ready)

    assert cause["forced"] is forced
    assert cause["message"].startswith(f"stopped by me, {how}")


def test_failure_cause_node(paths):
    write_error(paths, 2, "ValueError: mine", 1000.0)
    ranks = [ended_rank(0, 1, 1001, node="n1"), ended_rank(2, 1, 1000, node="n2")]

    cause = failure_cause(ranks, paths, 0)

    assert (cause["rank"], cause["node"]) == (2, "n2")


@pytest.mark.parametrize(
    ("said", "kind", "rank"),
    [
        ("RuntimeError: Connection reset by peer", "node", None),
        ("ValueError: mine", "exception", 0),
    ],
)
def test_lost_node_cause(said, kind, rank, paths):
    write_error(paths, 0, said, 1000.0)
    ranks = [ended_rank(0, 1, 1001, node="n1"), ended_rank(1, None, 1030, node="n2")]

    cause = lost_node_cause("node n2 was lost: no word", ranks, paths, 0)

    assert (cause["kind"], cause["rank"]) == (kind, rank)
    assert "node n2 was lost: no word" in cause["message"]
