"""The first failure is the cause, whoever reports first."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed

import nbkit.launch.supervision.cause
from nbkit.launch.supervision.cause import (
    failure_cause,
    lost_node_cause,
    stop_cause,
)
from nbkit.launch.supervision.hang import hang_cause
from nbkit.launch.supervision.rank_error import OF_COMMUNICATION
from nbkit.store.heartbeat import Beat, Phase
from nbkit.store.paths import RunPaths


def _rank(
    number, returncode, ended_at, killed_by_us=False, node=None, out=False, phase=None
):
    return SimpleNamespace(
        rank=number,
        node=node,
        returncode=returncode,
        ended_at=ended_at,
        killed_by_us=killed_by_us,
        phase=phase,
        kernel_ran_out_of_memory=out,
    )


def _error(paths, rank, message, moment, **extra):
    file = paths.rank(0, rank).error
    file.parent.mkdir(parents=True)
    extra["py_callstack"] = "trace"
    content = {"message": {"message": message, "extraInfo": extra}}
    file.write_text(json.dumps(content))
    os.utime(file, (moment, moment))


def test_the_earliest_error_file_wins_over_the_order_of_ends(tmp_path):
    paths = RunPaths(tmp_path)
    _error(paths, 0, "RuntimeError: Connection closed by peer", 1000.5)
    _error(paths, 1, "ValueError: mine", 1000.4)

    cause = failure_cause([_rank(0, 1, 1001), _rank(1, 1, 1002)], paths, 0)

    assert (cause["rank"], cause["message"]) == (1, "ValueError: mine")
    assert cause["traceback"] == "trace"


def test_a_killed_rank_wins_over_a_neighbour_that_reported_earlier(tmp_path):
    paths = RunPaths(tmp_path)
    _error(paths, 0, "RuntimeError: Connection reset by peer", 1000.0)

    cause = failure_cause([_rank(0, 1, 1001), _rank(1, -9, 1007)], paths, 0)

    assert (cause["rank"], cause["kind"], cause["signal"]) == (1, "signal", "SIGKILL")


NEW_WORDS = "what no library has said yet"


@pytest.mark.parametrize("name", sorted(OF_COMMUNICATION))
def test_an_error_of_communication_is_known_by_its_class(tmp_path, name):
    # torch has it.
    kind = getattr(torch.distributed, name)
    classes = ["OwnError", *(one.__name__ for one in kind.__mro__)]
    paths = RunPaths(tmp_path)
    _error(paths, 0, f"OwnError: {NEW_WORDS}", 1000.0, classes=classes)

    cause = failure_cause([_rank(0, 1, 1001), _rank(1, -9, 1007)], paths, 0)

    assert (cause["rank"], cause["signal"]) == (1, "SIGKILL")


@pytest.mark.parametrize(
    ("phase", "module"),
    [
        (Phase.COLLECTIVE, "torch.autograd.graph"),
        (Phase.COMPUTE, "torch.distributed.distributed_c10d"),
        (Phase.COMPUTE, "torch.nn.parallel.distributed"),
    ],
)
def test_an_error_in_a_collective_is_known_by_where_it_was_raised(
    tmp_path, phase, module
):
    paths = RunPaths(tmp_path)
    _error(paths, 0, f"RuntimeError: {NEW_WORDS}", 1000.0, module=module)
    ranks = [_rank(0, 1, 1001, phase=phase), _rank(1, -9, 1007, phase=Phase.COMPUTE)]

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
def test_what_a_rank_does_wrong_in_a_collective_by_itself_stays_the_cause(
    tmp_path, words
):
    paths = RunPaths(tmp_path)
    _error(paths, 0, words, 1000.0)
    ranks = [_rank(0, 1, 1001, phase=Phase.COLLECTIVE), _rank(1, 1, 1007)]

    assert failure_cause(ranks, paths, 0)["rank"] == 0


def test_a_lost_connection_is_the_cause_where_nobody_says_more(tmp_path):
    paths = RunPaths(tmp_path)
    _error(paths, 0, "RuntimeError: Connection reset by peer", 1000.0)
    ranks = [_rank(0, 1, 1001), _rank(1, -9, 1000, killed_by_us=True)]

    assert failure_cause(ranks, paths, 0)["rank"] == 0


def test_an_abort_behind_an_exception_is_its_consequence(tmp_path):
    paths = RunPaths(tmp_path)
    _error(paths, 0, "ValueError: mine", 1000.0)

    cause = failure_cause([_rank(0, 1, 1001), _rank(1, -6, 1000.2)], paths, 0)

    assert cause["rank"] == 0


def test_a_rank_that_the_supervisor_killed_is_never_the_cause(tmp_path):
    paths = RunPaths(tmp_path)
    _error(paths, 0, "ValueError: mine", 1005.0)
    ranks = [_rank(0, 1, 1006), _rank(1, -9, 1000, killed_by_us=True)]

    assert failure_cause(ranks, paths, 0)["rank"] == 0


def test_running_out_of_gpu_memory_has_a_kind_of_its_own(tmp_path):
    paths = RunPaths(tmp_path)
    _error(paths, 0, "OutOfMemoryError: CUDA out of memory.", 1000)

    assert failure_cause([_rank(0, 1, 1001)], paths, 0)["kind"] == "out_of_memory"


def test_running_out_of_memory_is_known_by_its_class(tmp_path):
    paths = RunPaths(tmp_path)
    classes = ["OwnError", *(one.__name__ for one in torch.OutOfMemoryError.__mro__)]
    _error(paths, 0, f"OwnError: {NEW_WORDS}", 1000, classes=classes)

    assert failure_cause([_rank(0, 1, 1001)], paths, 0)["kind"] == "out_of_memory"


def test_a_kill_while_the_kernel_was_out_of_memory_says_so(tmp_path):
    ranks = [_rank(0, -9, 1000, out=True)]

    cause = failure_cause(ranks, RunPaths(tmp_path), 0)

    assert cause["kind"] == "out_of_memory"
    assert "use a smaller batch_size_per_gpu" in cause["message"]


@pytest.mark.parametrize("out", [True, False])
@pytest.mark.parametrize(
    "said",
    [
        "RuntimeError: DataLoader worker (pid(s) 22628) exited unexpectedly",
        "RuntimeError: DataLoader worker (pid 3) is killed by signal: Killed. ",
        "BrokenProcessPool: A process in the process pool was terminated abruptly",
        "TerminatedWorkerError: A worker process managed by the executor was unexpec",
    ],
)
def test_failure_cause_loading_process_killed_for_memory(said, out, tmp_path):
    paths = RunPaths(tmp_path)
    _error(paths, 0, said, 1000)

    cause = failure_cause([_rank(0, 1, 1001, out=out)], paths, 0)

    assert cause["kind"] == ("out_of_memory" if out else "exception")
    assert cause["message"].startswith(said)
    assert ("fewer num_workers" in cause["message"]) is out


def test_failure_cause_own_error_while_others_ran_out_of_memory(tmp_path):
    paths = RunPaths(tmp_path)
    _error(paths, 0, "ValueError: mine", 1000)

    cause = failure_cause([_rank(0, 1, 1001, out=True)], paths, 0)

    assert (cause["kind"], cause["message"]) == ("exception", "ValueError: mine")


def test_a_signal_without_a_name_is_told_by_its_number(tmp_path):
    cause = failure_cause([_rank(0, -40, 1000)], RunPaths(tmp_path), 0)

    assert cause["signal"] == "40"
    assert cause["message"] == "killed by signal 40 (not sent by nbkit)"


def test_the_clock_of_a_file_server_does_not_change_who_was_first(
    tmp_path, monkeypatch
):
    paths = RunPaths(tmp_path)
    now = time.time()
    _error(paths, 1, "ValueError: mine", now)
    # This host's clock is a minute behind; rank 0 ended two seconds later by it.
    behind = SimpleNamespace(time=lambda: time.time() - 60)
    monkeypatch.setattr(nbkit.launch.supervision.cause, "time", behind)

    cause = failure_cause([_rank(0, -9, now - 58), _rank(1, 1, now - 57)], paths, 0)

    assert cause["rank"] == 1


def test_of_an_enormous_last_line_the_beginning_is_kept(tmp_path):
    paths = RunPaths(tmp_path)
    log = paths.rank(0, 0).stderr
    log.parent.mkdir(parents=True)
    log.write_text("x" * 10_000_000)

    message = failure_cause([_rank(0, 3, 1001)], paths, 0)["message"]

    assert message.startswith("exit code 3 without a Python exception: xxx")
    assert message.endswith("xxx...")
    assert len(message) < 3000


def test_half_an_error_file_does_not_hide_the_failure(tmp_path):
    paths = RunPaths(tmp_path)
    file = paths.rank(0, 0).error
    file.parent.mkdir(parents=True)
    file.write_text('{"mess')

    cause = failure_cause([_rank(0, 1, 1000)], paths, 0)

    assert (cause["kind"], cause["rank"]) == ("exit", 0)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
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
def test_memory_that_ran_out_beside_torch_is_named_as_such(tmp_path, words, kind):
    paths = RunPaths(tmp_path)
    _error(paths, 0, words, 1000.0)

    cause = failure_cause([_rank(0, 1, 1001)], paths, 0)

    assert (cause["kind"], cause["message"]) == (kind, words)


def test_the_rank_furthest_behind_keeps_the_others_waiting():
    beats = [
        Beat(5, Phase.COLLECTIVE, 9),
        Beat(5, Phase.DATA, 8),
        Beat(5, Phase.COLLECTIVE, 9),
    ]

    cause = hang_cause(beats, 60, RunPaths(Path("/r")), 0)

    assert cause["rank"] == 1
    assert "rank 1 is waiting for data, step 5" in cause["message"]
    assert "the others wait for it in a collective operation" in cause["message"]


def test_ranks_that_are_all_in_the_same_place_are_not_accused_apart():
    beats = [Beat(3, Phase.COLLECTIVE, 9)] * 4

    message = hang_cause(beats, 60, RunPaths(Path("/r")), 0)["message"]

    assert "all are in a collective operation, step 3" in message


@pytest.mark.parametrize(
    ("finished", "rank", "said"),
    [
        (
            [4, 2, 4],
            1,
            "the GPU of rank 1 is not known to have finished a step after step 2",
        ),
        # The same, as far as anybody knows: rank 1 looked earlier.
        ([4, 3, 4], None, "no GPU is known to have finished a step after step 4"),
        # A first exchange that hangs.
        ([0, 0, 0], None, "no GPU is known to have finished a step after step 0"),
        ([4, 4, 4], None, "no GPU is known to have finished a step after step 4"),
    ],
)
def test_a_host_that_waits_for_its_gpu_is_not_accused(finished, rank, said):
    beats = [
        Beat(step, Phase.COMPUTE, 9, last)
        for step, last in zip((7, 6, 5), finished, strict=True)
    ]

    cause = hang_cause(beats, 60, RunPaths(Path("/r")), 0, trains_on_gpus=True)

    assert cause["rank"] == rank
    assert said in cause["message"]
    assert "collectives.json" in cause["message"]


def test_ranks_that_tell_no_finished_steps_are_judged_by_their_hosts():
    beats = [Beat(7, Phase.COMPUTE, 9), Beat(5, Phase.COMPUTE, 8)]

    cause = hang_cause(beats, 60, RunPaths(Path("/r")), 0)

    assert cause["rank"] == 1
    assert "rank 1 is computing, step 5" in cause["message"]


def test_a_host_that_waits_for_data_is_accused_on_gpus_too():
    beats = [Beat(7, Phase.COLLECTIVE, 9, 5), Beat(7, Phase.DATA, 9, 6)]

    known = beats, 60, RunPaths(Path("/r")), 0
    assert hang_cause(*known, trains_on_gpus=True)["rank"] == 1


def test_a_stop_before_ranks_are_ready_is_not_by_force(tmp_path):
    # Rank 1 waited for rank 0 where no signal reaches it.
    ranks = [_rank(0, -15, 1000), _rank(1, -9, 1001, killed_by_us=True)]

    cause = stop_cause(ranks, {"by": "me"}, RunPaths(tmp_path), 0, ready=False)

    assert cause["forced"] is False
    assert "before its ranks were ready" in cause["message"]


@pytest.mark.parametrize(
    ("ranks", "what"),
    [([], "started"), ([_rank(0, None, None), _rank(1, None, None)], "ready")],
)
def test_a_stop_while_ranks_start_is_at_no_step(tmp_path, ranks, what):
    cause = stop_cause(ranks, {"by": "me"}, RunPaths(tmp_path), 0, ready=False)

    assert cause["forced"] is False
    assert cause["message"] == f"stopped by me, before its ranks were {what}"


def test_a_stop_of_ranks_that_never_ask_is_at_once(tmp_path):
    ranks = [_rank(0, -15, 1000), _rank(1, -15, 1001)]

    cause = stop_cause(ranks, {"by": "me"}, RunPaths(tmp_path), 0, ready=True)

    assert cause["forced"] is False
    assert "immediately" in cause["message"]


def test_a_stop_in_the_middle_of_a_training_can_be_by_force(tmp_path):
    ranks = [_rank(0, 0, 1000), _rank(1, -9, 1001, killed_by_us=True)]

    cause = stop_cause(ranks, {"by": "me"}, RunPaths(tmp_path), 0, ready=True)

    assert cause["forced"] is True
    assert "by force: its ranks had not ended" in cause["message"]


def test_the_node_of_the_first_failure_is_named(tmp_path):
    paths = RunPaths(tmp_path)
    _error(paths, 2, "ValueError: mine", 1000.0)
    ranks = [_rank(0, 1, 1001, node="n1"), _rank(2, 1, 1000, node="n2")]

    cause = failure_cause(ranks, paths, 0)

    assert (cause["rank"], cause["node"]) == (2, "n2")


def test_a_lost_node_is_the_cause_of_what_its_neighbours_say(tmp_path):
    paths = RunPaths(tmp_path)
    _error(paths, 0, "RuntimeError: Connection reset by peer", 1000.0)
    ranks = [_rank(0, 1, 1001, node="n1"), _rank(1, None, 1030, node="n2")]

    cause = lost_node_cause("node n2 was lost: no word", ranks, paths, 0)

    assert (cause["kind"], cause["rank"]) == ("node", None)
    assert cause["message"] == "node n2 was lost: no word"


def test_a_failure_before_the_loss_of_a_node_stays_the_cause(tmp_path):
    paths = RunPaths(tmp_path)
    _error(paths, 0, "ValueError: mine", 1000.0)
    ranks = [_rank(0, 1, 1001, node="n1"), _rank(1, None, 1030, node="n2")]

    cause = lost_node_cause("node n2 was lost: no word", ranks, paths, 0)

    assert (cause["kind"], cause["rank"]) == ("exception", 0)
    assert "node n2 was lost" in cause["message"]
