"""What a supervisor makes of its agents' words; a program that plays them is srun."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nbkit.errors import LaunchError
from nbkit.launch.slurm import agents as node_agents
from nbkit.launch.slurm.agents import NodeAgents
from nbkit.store.heartbeat import Beat, Phase
from nbkit.store.stored_runs import create_run_folder
from tests.waiting import wait_until

NAMES = ("n1", "n2")
SOFTWARE = {"python": "3.11.2", "nbkit": "0.9", "torch": None}

_SRUN = """
import json, os, signal, sys
label = "0: " if "SLURM_LABELIO" in os.environ else ""
def hear(kind):
    for line in sys.stdin:
        if json.loads(line)["kind"] == kind:
            return
for act, what in json.loads(sys.argv[1]):
    match act:
        case "say": print(label + what, flush=True)
        case "hear": hear(what)
        case "hang": signal.pause()
"""
UNTIL_THE_END = ("hear", "the end of the input")


def _say(kind, agent, **values):
    return ("say", json.dumps({"kind": kind, "agent": agent, **values}))


def _ready(agent, **values):
    known = {"host": "h", "address": "127.0.0.1", "port": 7, "software": SOFTWARE}
    return _say("ready", agent, name=NAMES[agent], **{**known, **values})


def _gone(agent, *stuck):
    return _say("gone", agent, stuck=stuck)


def _started(rank):
    return _say("started", rank, rank=rank, pid=100 + rank, start_ticks=9)


def _ended(rank, **values):
    how = {"exit_code": 0, "signal": None, "killed_by_us": False}
    memory = {"kernel_ran_out_of_memory": False}
    return _say("ended", rank, rank=rank, **{**how, **memory, **values})


RANKS_RUN = (_ready(0), _ready(1), ("hear", "start"), _started(0), _started(1))


@pytest.fixture
def play(small):
    """Return what lets agents of two nodes, with a rank each, do as a list says."""
    config = small(engine="slurm", nnodes=2, gpus=1)
    paths = create_run_folder(config)

    @contextmanager
    def playing(
        *acts, seen=NAMES, is_unwanted=False, on_sigterm=lambda: None
    ) -> Iterator[NodeAgents]:
        for name in seen:
            paths.system(name).parent.mkdir(exist_ok=True)
            paths.system(name).touch()
        argv = [sys.executable, "-c", _SRUN, json.dumps(acts)]
        agents = NodeAgents(
            config,
            paths,
            0,
            NAMES,
            argv,
            SOFTWARE,
            is_unwanted=lambda: is_unwanted,
            on_sigterm=on_sigterm,
        )
        try:
            yield agents
        finally:
            agents.close()

    return playing


def _ends(agents, count):
    ended = []
    wait_until(lambda: ended.extend(agents.wait(0.1)) or len(ended) >= count, "an end")
    return ended


def test_ranks_on_two_nodes_start_move_and_end_whatever_else_is_printed(play):
    acts = [
        ("say", "Loading cuda/12.4"),
        *RANKS_RUN,
        ("say", '{"progress": 7}'),
        _say("beats", 1, first=0, beats=[[5, int(Phase.COMPUTE), 12]]),
        _ended(1, exit_code=None, signal="SIGKILL"),
        _ended(0),
        _gone(0),
        ("say", "bye"),
        _gone(1),
    ]
    with play(*acts) as agents:
        agents.start()
        ended = _ends(agents, 2)
        stuck = agents.close()

    assert [(rank.rank, rank.returncode) for rank in ended] == [(1, -9), (0, 0)]
    assert [rank.to_dict()["node"] for rank in agents.ranks] == ["n1", "n2"]
    assert [rank.to_dict()["pid"] for rank in agents.ranks] == [100, 101]
    assert agents.beats()[1] == Beat(5, Phase.COMPUTE, 12)
    assert (agents.lost, stuck) == (None, [])


@pytest.mark.parametrize(
    ("acts", "seen", "text"),
    [
        (
            [_ready(0), _say("refused", 1, reason="the disk is full"), UNTIL_THE_END],
            NAMES,
            "^node n2: the disk is full$",
        ),
        (
            [_ready(0), _ready(1), UNTIL_THE_END],
            ("n1",),
            "what node n2 wrote into .* did not arrive on n1 within 0 s: the store",
        ),
        (
            [_ready(0), _ready(1, software={**SOFTWARE, "nbkit": "1"}), UNTIL_THE_END],
            NAMES,
            "^node n2 has nbkit 1, not 0.9;",
        ),
        (
            [_ready(0), _gone(1), UNTIL_THE_END],
            NAMES,
            r"^node n2: its agent has ended; see .*supervisor\.log\.$",
        ),
        ([_ready(0)], NAMES, "the agent on node n2 is not ready and srun has ended"),
    ],
    ids=["refused", "unseen", "other software", "gone", "no agent"],
)
def test_a_node_that_cannot_run_ranks_is_named_before_they_start(
    play, monkeypatch, acts, seen, text
):
    monkeypatch.setattr(node_agents, "_VISIBLE_SECONDS", 0.1)
    with play(*acts, seen=seen) as agents, pytest.raises(LaunchError, match=text):
        agents.start()

    assert agents.ranks == []


def test_nobody_waits_for_agents_of_a_run_that_was_stopped(play):
    with (
        play(_ready(0), UNTIL_THE_END, is_unwanted=True) as agents,
        pytest.raises(LaunchError, match="stopped before its nodes were ready"),
    ):
        agents.start()


def test_an_agent_tells_that_slurm_wants_the_job_to_end(play):
    told = []
    acts = (*RANKS_RUN, _say("sigterm", 1), UNTIL_THE_END)
    with play(*acts, on_sigterm=lambda: told.append(1)) as agents:
        agents.start()
        wait_until(lambda: agents.wait(0.1) or told, "the word of the agent")


def test_a_node_without_a_word_is_lost_with_its_ranks(play):
    speaking = _say("beats", 0, first=0, beats=[[1, int(Phase.DATA), 1]])
    with play(*RANKS_RUN, ("hear", "stacks"), speaking, UNTIL_THE_END) as agents:
        agents.start()
        agents._nodes[1].silent_seconds += node_agents._SILENT_SECONDS
        agents.print_stacks()
        (lost,) = _ends(agents, 1)

    assert (lost.rank, lost.returncode) == (1, None)
    assert agents.lost == "node n2 was lost: no message from its agent for 30 s"


def test_no_node_is_lost_where_the_supervisor_was_suspended(play, monkeypatch):
    now = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with play() as agents:
        agents._look_for_lost()
        now += 60.0
        agents._look_for_lost()
        assert [node.is_gone for node in agents._nodes] == [False, False]

        for _ in range(31):
            now += 1.0
            agents._look_for_lost()
        assert [node.is_gone for node in agents._nodes] == [True, True]


def test_a_node_that_does_not_answer_the_end_of_its_ranks_is_lost_sooner(
    play, monkeypatch
):
    # As if that had passed for n2 alone: n1 has it to answer.
    monkeypatch.setattr(node_agents, "_KILL_SECONDS", 1_000.0)
    with play(*RANKS_RUN, ("hear", "kill"), _ended(0), UNTIL_THE_END) as agents:
        agents.start()
        agents.kill()
        agents._killed_at -= node_agents._KILL_SECONDS
        agents._nodes[1].silent_seconds += node_agents._KILL_SECONDS
        ended = _ends(agents, 2)

    assert {rank.rank for rank in ended} == {0, 1}
    assert agents.lost == "node n2 was lost: no message from its agent for 1000 s"


def test_nodes_that_have_not_said_a_last_word_when_the_step_ends_are_lost(play):
    with play(*RANKS_RUN, _ended(0), _gone(0)) as agents:
        agents.start()
        ended = _ends(agents, 2)

    assert [rank.rank for rank in ended] == [0, 1]
    assert agents.lost == "node n2 was lost: Slurm has ended its part of the job"


@pytest.mark.parametrize(
    ("acts", "why"),
    [
        ([], r"its agent has ended; see .*supervisor\.log"),
        ([_say("refused", 1, reason="The disk is full.")], "The disk is full"),
    ],
    ids=["without a word", "refused"],
)
def test_an_agent_that_ends_by_itself_takes_its_ranks_along(play, acts, why):
    with play(*RANKS_RUN, *acts, _gone(1), UNTIL_THE_END) as agents:
        agents.start()
        (lost,) = _ends(agents, 1)

    assert (lost.rank, lost.returncode) == (1, None)
    assert re.fullmatch(f"node n2 was lost: {why}", agents.lost)


def test_ranks_do_not_start_where_an_agent_ends_meanwhile(play):
    acts = [_ready(0), _ready(1), ("hear", "start"), _started(0), _gone(1)]
    with (
        play(*acts, UNTIL_THE_END) as agents,
        pytest.raises(LaunchError, match=r"^node n2: its agent has ended"),
    ):
        agents.start()


def test_a_cluster_that_labels_what_steps_print_is_understood(play, monkeypatch):
    monkeypatch.setenv("SLURM_LABELIO", "1")
    with play(*RANKS_RUN, UNTIL_THE_END) as agents:
        agents.start()

    assert len(agents.ranks) == 2


def test_ranks_that_could_not_be_ended_are_told(play, monkeypatch):
    monkeypatch.setattr(node_agents, "_END_SECONDS", 0.1)
    with play(*RANKS_RUN, ("hang", "for ever")) as agents:
        agents.start()
        stuck = agents.close()

    assert [rank.rank for rank in stuck] == [0, 1]


def test_a_rank_that_its_agent_could_not_end_is_told(play):
    acts = [*RANKS_RUN, ("hear", "kill"), _gone(0), _gone(1, 1)]
    with play(*acts) as agents:
        agents.start()
        stuck = agents.close()

    assert [rank.rank for rank in stuck] == [1]
    assert agents.lost is None
