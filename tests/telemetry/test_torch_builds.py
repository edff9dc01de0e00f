"""Which torch runs where: by driver, compute capability and processor."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nbkit.errors import DeviceError
from nbkit.telemetry import torch_builds
from nbkit.telemetry.torch_builds import (
    TORCH_BUILDS,
    covers,
    last_torch,
    needed_branch,
)
from nbkit.worker.distributed import check_build


def test_a_machine_of_several_kinds_gets_what_runs_on_all_of_them():
    build = last_torch([(7, 0), (9, 0)], 580, "x86_64")

    assert build is not None
    assert build.requirement == "torch<2.11"
    assert build.dali == "dali"


def test_arm_has_gpu_wheels_from_the_newest_row_on_only():
    assert last_torch([(9, 0)], 570, "aarch64") is None
    assert needed_branch([(9, 0)], "aarch64") == TORCH_BUILDS[0].driver
    assert last_torch([(9, 0)], 580, "aarch64") is TORCH_BUILDS[0]


def test_gpus_that_no_wheel_knows_need_no_driver_in_vain():
    assert needed_branch([(3, 5)], "x86_64") is None


def test_it_needs_the_standard_library_alone():
    # -S: no packages; -I: nothing beside it.
    argv = [sys.executable, "-I", "-S", torch_builds.__file__]

    subprocess.run(argv, env={"PATH": ""}, check=True)


@pytest.mark.parametrize(
    ("capability", "wanted"),
    [
        ((7, 0), 'pip install "torch<2.11" '),
        ((6, 1), 'pip install "torch<2.8" '),
        ((12, 0), 'pip install --upgrade "torch'),
    ],
)
def test_a_gpu_that_a_build_lacks_is_told_the_build_that_has_it(
    monkeypatch, capability, wanted
):
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    with pytest.raises(DeviceError) as caught:
        check_build(capability, ["sm_75", "sm_80", "sm_90"])

    assert wanted in str(caught.value)


@pytest.mark.parametrize(
    ("architecture", "capability", "runs"),
    [
        ("sm_80", (8, 6), True),
        ("sm_86", (8, 0), False),
        ("sm_80", (9, 0), False),
        ("compute_80", (9, 0), True),
        ("compute_90", (8, 9), False),
        ("sm_100a", (10, 0), True),
        ("sm_100a", (10, 3), False),
        ("compute_90a", (10, 0), False),
        ("sm_100f", (10, 3), True),
        ("compute_100f", (12, 0), False),
        ("gfx90a", (9, 0), False),
    ],
)
def test_code_for_one_gpu_is_not_code_for_a_later_one(architecture, capability, runs):
    assert covers([architecture], capability) is runs


def test_a_rank_refuses_a_build_whose_code_is_for_another_gpu_alone():
    with pytest.raises(DeviceError, match=r"this GPU \(sm_103\)"):
        check_build((10, 3), ["sm_90", "sm_100a"])
