"""From a configuration to environments and command lines, as text."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from pathlib import Path

import pytest

from nbkit.launch.code.command import RankPlan, rank_environment, torchrun_line
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


def test_a_rank_gets_torchruns_contract(small):
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
    assert "NBKIT_LISTEN_FD" not in environment


def test_only_rank_0_inherits_the_rendezvous_socket(small):
    assert rank_environment(small(gpus=2), PATHS, PLAN, 0, {})["NBKIT_LISTEN_FD"] == "7"


def test_what_the_user_set_for_openmp_is_kept(small):
    environment = rank_environment(
        small(gpus=2), PATHS, PLAN, 0, {"OMP_NUM_THREADS": "11"}
    )

    assert environment["OMP_NUM_THREADS"] == "11"


@pytest.mark.parametrize("name", ["plain", "with blank", "a'; echo foo", "ü$HOME"])
def test_the_torchrun_line_survives_any_folder_name(small, name):
    root = Path("/store") / name

    words = shlex.split(
        torchrun_line(small(gpus=2), root, ["GPU-a", "GPU-b"], "cuda", 3)
    )

    copy = f"{root}-torchrun"
    assert words[:2] == ["mkdir", copy]
    assert words[3:6] == ["cp", f"{root}/config.json", copy]
    assert words[7:10] == [
        "OMP_NUM_THREADS=3",
        "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b",
        "torchrun",
    ]
    assert words[10:12] == ["--standalone", "--nproc-per-node=2"]
    assert words[-1] == copy


@pytest.mark.parametrize("device_type", ["cuda", "cpu"])
def test_the_torchrun_line_has_the_threads_of_the_ranks(
    small, device_type, monkeypatch
):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    config, devices = small(gpus=2), [] if device_type == "cpu" else ["GPU-a", "GPU-b"]
    plan = dataclasses.replace(PLAN, device_type=device_type, devices=devices)

    line = torchrun_line(config, PATHS.root, devices, device_type, PLAN.cpus_per_rank)

    words = shlex.split(line)
    theirs = dict(word.split("=") for word in words[7 : words.index("torchrun")])
    ours = rank_environment(config, PATHS, plan, 0, {})
    assert theirs == {name: ours[name] for name in theirs}
    assert theirs["OMP_NUM_THREADS"] == str(PLAN.cpus_per_rank)
    assert ("GOMP_SPINCOUNT" in theirs) is (device_type == "cpu")


def test_a_run_on_cpus_sees_no_gpu(small):
    plan = dataclasses.replace(PLAN, devices=(), device_type="cpu")
    seen = {"CUDA_VISIBLE_DEVICES": "0,1"}

    assert (
        rank_environment(small(gpus=2), PATHS, plan, 0, seen)["CUDA_VISIBLE_DEVICES"]
        == ""
    )


def test_commands_use_this_interpreter(small):
    from nbkit.launch.code.command import supervisor_argv, worker_argv

    assert (
        supervisor_argv(PATHS.root, 9)[0]
        == worker_argv(PATHS.root)[0]
        == sys.executable
    )
