"""Limits of control groups, in folders of text files as the kernel writes them."""

from __future__ import annotations

import os

import pytest

from nbkit.telemetry.control_groups import smallest_limit
from tests.telemetry.test_cpus import V2, system

__all__ = ["system"]

V1 = "32 31 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"


def test_the_smallest_limit_above_a_group_counts(system):
    files = {"job/memory.max": "1024", "job/step/memory.max": "4096"}
    files |= {"job/pids.max": "max", "job/step/pids.max": "64"}
    root = system("0::/job/step", V2, **files)

    assert smallest_limit("memory", root) == 1024
    assert smallest_limit("pids", root) == 64


def test_a_limit_of_version_1_is_that_of_its_own_controller(system):
    file = "memory/docker/1f2e/memory.limit_in_bytes"
    root = system("9:memory:/docker/1f2e\n4:pids:/", V1, **{file: "2048"})

    assert smallest_limit("memory", root) == 2048
    assert smallest_limit("pids", root) is None


def test_the_name_of_a_group_may_be_any_bytes(system):
    group = os.fsdecode(b"job\xff\r1")
    root = system("0::/none", V2, **{f"{group}/memory.max": "1024"})
    (root / "proc/self/cgroup").write_bytes(os.fsencode(f"0::/{group}\n"))

    assert smallest_limit("memory", root) == 1024


@pytest.mark.parametrize("controller", ["memory", "pids"])
def test_without_control_groups_nothing_is_limited(tmp_path, controller):
    assert smallest_limit(controller, tmp_path) is None
