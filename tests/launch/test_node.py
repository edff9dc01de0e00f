"""The agent of a node, with a supervisor that is played over its pipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nbkit.datasets.cache import cache_path
from nbkit.launch.slurm.messages import line, parse
from nbkit.launch.slurm.node import _data_folders
from nbkit.launch.supervision.leftovers import processes_of_run
from nbkit.store.record import write_json
from nbkit.store.stored_runs import create_run_folder
from tests.waiting import wait_until


class _Node:
    """An agent, and what a supervisor hears of it."""

    def __init__(self, paths):
        self.paths = paths
        here = {"SLURMD_NODENAME": "n1", "SLURM_NODEID": "0", "SLURM_CPUS_ON_NODE": "2"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nbkit.launch.slurm.node", str(paths.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **here},
        )
        self.ready = self.hear("ready")

    def hear(self, kind):
        """Return the next message of a kind; None if there is none."""
        messages = map(parse, self.process.stdout)
        return next((one for one in messages if one and one["kind"] == kind), None)

    def start_ranks(self):
        place = {"address": "127.0.0.1", "port": self.ready["port"]}
        self.process.stdin.write(line("start", attempt=0, **place))
        self.process.stdin.flush()

    def end(self):
        """End its input; return its last word."""
        self.process.stdin.close()
        gone = self.hear("gone")
        assert self.process.wait() == 0
        return gone


@pytest.fixture
def begin(small, tmp_path):
    """Return what starts an agent for a run of one rank."""
    begun = []

    def beginning(**slurm):
        paths = create_run_folder(small(engine="slurm", gpus=1, slurm=slurm))
        here = {"device_type": "cpu", "cpus_per_rank": None, "cwd": str(tmp_path)}
        write_json(paths.submission, here)
        begun.append(_Node(paths))
        return begun[-1]

    yield beginning
    for node in begun:
        node.process.kill()
        with node.process:
            pass


def test_an_agent_whose_input_ends_leaves_no_rank(begin):
    node = begin()
    node.start_ranks()
    pid = node.hear("started")["pid"]
    # Before its first instruction a process has no environment to be found by.
    wait_until(
        lambda: pid in {process.pid for process in processes_of_run(node.paths)},
        "the rank is found",
    )

    assert node.end()["stuck"] == []
    assert processes_of_run(node.paths) == []


def test_an_interrupt_is_told_and_ends_no_agent(begin):
    node = begin()

    node.process.send_signal(signal.SIGINT)

    assert node.hear("sigterm") is not None
    assert node.end() is not None


def test_a_rank_that_a_signal_without_a_name_ends_is_told(begin):
    node = begin()
    node.start_ranks()
    os.kill(node.hear("started")["pid"], 40)

    ended = node.hear("ended")

    assert (ended["signal"], ended["killed_by_us"]) == ("40", False)
    assert node.end() is not None


def test_a_node_that_cannot_start_its_ranks_says_why_and_ends(begin, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    node = begin(container="/image.sif")
    node.start_ranks()

    assert "neither apptainer nor singularity" in node.hear("refused")["reason"]
    assert node.hear("gone")["stuck"] == []
    assert node.process.wait() == 0


def test_a_container_gets_the_cache_of_a_built_in_data_set(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "scratch"))
    (tmp_path / "own").mkdir()

    (cache,) = _data_folders("imagenette")

    assert cache == str(cache_path("imagenette").parent)
    assert cache.startswith(str(tmp_path / "scratch"))
    assert Path(cache).is_dir()
    assert _data_folders(str(tmp_path / "own")) == [str(tmp_path / "own")]
    assert _data_folders("synthetic") == []
