"""From a configuration to environments and command lines, as text."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from pathlib import Path

import pytest

from nbkit.launch.code.command import (
    RankPlan,
    rank_environment,
    supervisor_argv,
    torchrun_line,
    worker_argv,
)
from nbkit.store.paths import RunPaths

PATHS = RunPaths(Path("/store/runs/a b'; echo foo"))
PLAN = RankPlan(
    attempt=2,
    master_address="127.0.0.1",
    master_port=12345,
    device_type="cuda",
    devices=["GPU-a", "GPU-b"],
    cpus_per_rank=3,
    cwd="/here",
    listen_fd=7,
    lifeline_fd=8,
    heartbeat_fd=9,
    lease_fds=[],
)
ON_CPUS = dataclasses.replace(PLAN, devices=(), device_type="cpu")


def test_rank_environment_has_torchruns_contract(small):
    environment = rank_environment(small(gpus=2), PATHS, PLAN, 1, {"PATH": "/bin"})

    expected = {
        "RANK": "1",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "12345",
        "TORCHELASTIC_ERROR_FILE": f"{PATHS.root}/logs/2/1/error.json",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b",
        "NBKIT_DEVICE_TYPE": "cuda",
        "NBKIT_RUN_ID": "a b'; echo foo",
        "NBKIT_RUN_FOLDER": str(PATHS.root),
        "NBKIT_JOB": "",
        "OMP_NUM_THREADS": "3",
        "PATH": "/bin",
    }
    assert expected.items() <= environment.items()
    # Rank 0 alone inherits the rendezvous socket.
    assert "NBKIT_LISTEN_FD" not in environment


@pytest.mark.parametrize(
    ("plan", "inherited", "name", "value"),
    [
        (PLAN, {}, "NBKIT_LISTEN_FD", "7"),
        (PLAN, {"OMP_NUM_THREADS": "11"}, "OMP_NUM_THREADS", "11"),
        # A run on CPUs sees no GPU.
        (ON_CPUS, {"CUDA_VISIBLE_DEVICES": "0,1"}, "CUDA_VISIBLE_DEVICES", ""),
    ],
)
def test_rank_environment_of_rank_0(small, plan, inherited, name, value):
    assert rank_environment(small(gpus=2), PATHS, plan, 0, inherited)[name] == value


@pytest.mark.parametrize("name", ["plain", "with blank", "a'; echo foo", "ü$HOME"])
@pytest.mark.parametrize("plan", [PLAN, ON_CPUS], ids=["cuda", "cpu"])
def test_torchrun_line(small, name, plan, monkeypatch):
    for variable in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(variable, raising=False)
    config, root = small(gpus=2), Path("/store") / name

    line = torchrun_line(config, root, plan.devices, plan.device_type, 3)

    words, copy = shlex.split(line), f"{root}-torchrun"
    begin = words.index("torchrun")
    assert words[:2] == ["mkdir", copy]
    assert words[3:6] == ["cp", f"{root}/config.json", copy]
    # The variables of the ranks.
    theirs = dict(word.split("=") for word in words[7:begin])
    ours = rank_environment(config, PATHS, plan, 0, {})
    assert theirs == {name: ours[name] for name in theirs}
    assert theirs["OMP_NUM_THREADS"] == "3"
    assert ("GOMP_SPINCOUNT" in theirs) is (plan is ON_CPUS)
    assert words[begin + 1 : begin + 3] == ["--standalone", "--nproc-per-node=2"]
    assert words[-1] == copy


def test_commands_use_this_interpreter():
    argv = supervisor_argv(PATHS.root, 9)

    assert argv[0] == worker_argv(PATHS.root)[0] == sys.executable
