"""What a supervisor makes of the torchruns of a job's nodes; a program plays srun."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

import nbkit
from nbkit.errors import LaunchError
from nbkit.launch.slurm.ranks import SlurmRanks
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import read_json
from nbkit.store.stored_runs import create_run_folder
from tests.waiting import wait_until

NAMES = ("n1", "n2")

_SRUN = """
import json, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
(folder / "torchrun").mkdir()
for act, *what in json.loads(sys.argv[2]):
    match act:
        case "say": print(what[0], flush=True)
        case "tell":
            file = folder / "torchrun" / what[0]
            file.with_suffix(".new").write_text(json.dumps(what[1]))
            file.with_suffix(".new").rename(file)
        case "hear":
            orders = folder / "orders.json"
            while not orders.exists() or what[0] not in orders.read_text():
                time.sleep(0.01)
        case "hang": time.sleep(600)
"""
KILLED = ("hear", "kill")


def tell(node: int, *, ranks: bool = True, **values):
    """Return what node says: of its one rank, if it has started it."""
    rank = {
        "rank": node,
        "pid": 100 + node,
        "start_ticks": 9,
        "beat": [0, 0, 0, 0],
        "has_ended": False,
        "returncode": None,
        "killed_by_us": False,
        "kernel_ran_out_of_memory": False,
    }
    rank |= {name: values.pop(name) for name in rank.keys() & values.keys()}
    process = {**ProcessIdentity.of().to_dict(), "host": "elsewhere"}
    told = {
        "host": "h",
        "name": NAMES[node],
        "group_rank": node,
        "process": process,
        "signal": None,
        "obeyed": [],
        "is_over": False,
        "looks": 1,
        "ranks": [rank] if ranks else [],
    }
    return ("tell", f"{node}.json", told | values)


def over(node: int, code: int = 0):
    """Return the last word of a node."""
    return tell(node, has_ended=True, returncode=code, is_over=True)


RANKS_RUN = (tell(0), tell(1))


@pytest.fixture
def play(small):
    """Return what makes the ranks of two nodes, with srun as a list says."""
    made = []
    paths = create_run_folder(small(engine="slurm", nnodes=2))

    def playing(*acts, requests=()):
        noted = []
        asked = SimpleNamespace(
            look=lambda: list(requests),
            note_sigterm=lambda: noted.append(1),
            told=noted,
        )
        folder = str(paths.attempt(0))
        argv = [sys.executable, "-c", _SRUN, folder, json.dumps(acts)]
        config = small(engine="slurm", nnodes=2)
        ranks = SlurmRanks(config, paths, 0, NAMES, argv, asked, lambda: None)
        made.append(ranks)
        return ranks, asked

    yield playing
    for ranks in made:
        ranks.end_seconds = 0.0
        ranks.close()


def ends(ranks, count):
    ended = []
    wait_until(lambda: ended.extend(ranks.wait(0.05)) or len(ended) >= count, "an end")
    return ended


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (
            ["0: Loading", "1: nbkit refuses: the disk is full"],
            "^node n2: the disk is full$",
        ),
        (
            [
                *("1: Traceback", "0: bye", "1: ImportError: no torch"),
                "srun: error: n2: task 1: Exited with exit code 1",
            ],
            r"^node n2: ImportError: no torch; check that its .*supervisor\.log\.$",
        ),
        (["srun: error: n[1-2]: tasks 0-1: Killed"], "^node n1: .*tasks 0-1: Killed;"),
        (["srun: error: Unable to create step"], "^Slurm ended the job step .*; see"),
    ],
    ids=["refused", "failed", "killed", "no step"],
)
def test_slurm_ranks_failing_node(play, said, text):
    ranks, _ = play(tell(0, ranks=False), *(("say", line) for line in said))

    with pytest.raises(LaunchError, match=text):
        ranks.start()

    assert not any(rank.pid for rank in ranks.ranks)


def test_slurm_ranks_stopped_before_start(play):
    ranks, _ = play(tell(0), KILLED, requests=[{"by": "ann"}])

    with pytest.raises(LaunchError, match="stopped before all nodes were ready"):
        ranks.start()


def test_slurm_ranks_missing_nodes(play):
    ranks, _ = play(tell(0), KILLED)
    ranks.ready_seconds = 0.5

    with pytest.raises(LaunchError, match=r"^ranks not started after 0 s on .*n2; see"):
        ranks.start()


def test_slurm_ranks_sigterm_on_node(play):
    ranks, asked = play(
        *RANKS_RUN, ("hear", "terminate"), tell(1, signal="SIGTERM"), KILLED
    )
    ranks.start()
    assert not asked.told

    ranks.terminate()

    def heard():
        ranks.wait(0.05)
        return asked.told

    wait_until(heard, "the word of the node")


def test_slurm_ranks_lost_nodes(play):
    ranks, _ = play(*RANKS_RUN, over(0), ("say", "srun: error: n2: task 1: Killed"))
    ranks.start()

    ended = ends(ranks, 2)

    assert [rank.returncode for rank in sorted(ended, key=lambda it: it.rank)] == [
        0,
        None,
    ]
    assert ranks.lost.startswith("node n2 was lost: srun: error: n2: task 1: Killed;")


def test_slurm_ranks_stuck(play):
    ranks, _ = play(*RANKS_RUN, ("hang",))
    ranks.end_seconds = ranks.step_seconds = 0.1
    ranks.start()

    stuck = ranks.close()

    assert [rank.rank for rank in stuck] == [0, 1]
    [run] = nbkit.runs()
    assert read_json(run.paths.orders(0)) == {"do": ["kill"]}
