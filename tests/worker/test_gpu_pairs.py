"""Pairs of processes that meet, hang or end, as those of GPUs do; here over gloo."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.waiting import patient

PROGRAM = """
import json, os, signal, sys, time
from nbkit.worker import gpu_pairs

all_reduce = gpu_pairs._all_reduce
gpu_pairs._MESSAGE_BYTES = 1 << 20

def hang(rank, file, device):
    if rank and file.endswith("/1"):
        signal.pause()  # its peer waits in the library itself
    return all_reduce(rank, file, device)

def end(rank, file, device):
    if rank and file.endswith("/1"):
        os._exit(7)
    return all_reduce(rank, file, device)

def stay(rank, file, device):
    if file.endswith("/3"):
        signal.pause()  # its time is over, however soon it could be done
    return all_reduce(rank, file, device)

def check(do, seconds=3600.0, pair_seconds=600.0, first_pair_seconds=600.0):
    gpu_pairs._all_reduce = do
    deadline = time.monotonic() + seconds
    options = {"deadline": deadline, "pair_seconds": pair_seconds, "device": "cpu"}
    options["first_pair_seconds"] = first_pair_seconds
    return list(gpu_pairs.check_pairs(3, **options))

print(json.dumps({
    "well": check(all_reduce),
    "hangs": check(hang, first_pair_seconds=float(sys.argv[1])),
    "ends": check(end),
    "starts": check(stay, pair_seconds=0.0),
    "late": check(all_reduce, seconds=0.0),
}))
"""

STUCK = """
import signal
from multiprocessing.popen_fork import Popen
from nbkit.worker import gpu_pairs

def hang(rank, file, device):
    while True:
        signal.pause()

# As in the driver, where no signal arrives.
Popen._send_signal = lambda self, number: None
gpu_pairs.end_with_parent = lambda: None
gpu_pairs._ENDED_SECONDS = 0.01
gpu_pairs._all_reduce = hang
options = ["--gpus", "2", "--device", "cpu", "--first-pair-seconds", "0.5"]
gpu_pairs.main([*options, "--deadline", "inf"])
"""


@pytest.fixture(scope="module")
def told():
    """Return what is told of pairs that work, of one that hangs, of one that ends."""
    # A process of its own: it forks, which should not be done beside other threads.
    hang_seconds = round(patient(5))
    argv = [sys.executable, "-c", PROGRAM, str(hang_seconds)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True)
    return {**json.loads(done.stdout), "hang_seconds": hang_seconds}


def outcomes(rows):
    """Return whether each pair works: first as it is, then without peer-to-peer."""
    found = {}
    for row in rows:
        if "pair" in row:
            assert row["without_p2p"] == (tuple(row["pair"]) in found)
            found.setdefault(tuple(row["pair"]), []).append("error" not in row)
    return found


def errors(rows):
    return [row["error"] for row in rows if "error" in row]


def test_each_pair_takes_its_turn(told):
    assert outcomes(told["well"]) == {(0, 1): [True], (0, 2): [True], (1, 2): [True]}
    assert all(row["bytes_per_second"] > 0 for row in told["well"])


def test_a_pair_that_hangs_is_tried_without_peer_to_peer_and_holds_up_no_other(told):
    found = outcomes(told["hangs"])

    assert found == {(0, 1): [False, True], (0, 2): [True], (1, 2): [True]}
    assert errors(told["hangs"]) == [
        f"it hangs: nothing within {told['hang_seconds']} s"
    ]


def test_the_first_pair_of_a_process_has_the_time_that_starting_takes(told):
    found = outcomes(told["starts"])

    # The last pair's processes have both been in a pair before.
    assert found == {(0, 1): [True], (0, 2): [True], (1, 2): [False, True]}


def test_a_process_that_ends_is_told_with_its_pair_and_replaced(told):
    found = outcomes(told["ends"])

    assert found == {(0, 1): [False, True], (0, 2): [True], (1, 2): [True]}
    # The other one may be the first to notice.
    assert len(errors(told["ends"])) == 1


def test_pairs_without_a_turn_are_told(told):
    assert told["late"][-1] == {"not_reached": [[0, 1], [0, 2], [1, 2]]}


def test_nobody_waits_for_a_process_that_cannot_be_ended():
    argv = [sys.executable, "-c", STUCK]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            told, _ = process.communicate(timeout=patient(60))
        finally:
            os.killpg(process.pid, signal.SIGKILL)

    rows = [json.loads(line) for line in told.splitlines()]
    assert outcomes(rows) == {(0, 1): [False, False]}
    assert process.returncode == 0
