"""Which variables of the environment a record keeps."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from nbkit.launch.code.variables import check_environment, is_recorded
from nbkit.launch.local import passed_on
from nbkit.launch.submit import variables_set


def test_is_recorded():
    assert not any(map(is_recorded, ("SLURM_JWT", "NBKIT_TOKEN", "HOME")))
    assert all(map(is_recorded, ("SLURM_JOB_ID", "NCCL_DEBUG", "OMP_NUM_THREADS")))


def test_variables_set_of_two_threads():
    name, overlaps = "NBKIT_TEST_VARIABLE", []

    def set_it(value):
        for _ in range(1000):
            with variables_set({name: value}):
                time.sleep(0)
                if os.environ[name] != value:
                    overlaps.append(value)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(set_it, "ab"))

    assert overlaps == []
    assert name not in os.environ


def test_passed_on(monkeypatch):
    own = {"RANKING_DATA": "a", "WORLD_SIZE_LIMIT": "b", "CUDA_VISIBLE_DEVICES": "c"}
    of_a_run = ("RANK", "LOCAL_RANK", "GROUP_WORLD_SIZE", "TORCHELASTIC_RUN_ID")
    for name, value in {**own, **dict.fromkeys(of_a_run, "1")}.items():
        monkeypatch.setenv(name, value)

    passed = passed_on()

    assert own.items() <= passed.items()
    assert passed.keys().isdisjoint(of_a_run)


@pytest.mark.parametrize("value", ["1", "0", "True", "false", ""])
def test_check_environment_flag(value):
    check_environment({"HF_HUB_DISABLE_IMPLICIT_TOKEN": value, "NO_AUTH": value})
