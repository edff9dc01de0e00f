"""How many CPUs may be used: the affinity of this process, the quotas of its groups.

Control groups are folders of text files, which the tests write as the kernel does.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from nbkit.telemetry.cpus import cpu_quota, usable_cpus

V2 = "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "32 31 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct"
AFFINITY = len(os.sched_getaffinity(0))


@pytest.fixture
def system(tmp_path):
    """Return a maker of a root folder with control groups in it."""

    def make(group, mountinfo, **files):
        process = tmp_path / "proc/self"
        process.mkdir(parents=True)
        (process / "cgroup").write_text(group + "\n")
        (process / "mountinfo").write_text(mountinfo + "\n")
        for path, text in files.items():
            file = tmp_path / "sys/fs/cgroup" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")
        return tmp_path

    return make


def test_without_control_groups_the_affinity_decides(tmp_path):
    assert usable_cpus(tmp_path) == AFFINITY


@pytest.mark.parametrize(
    ("group", "quotas", "usable", "quota"),
    [
        ("user.slice", {"user.slice": "max"}, AFFINITY, None),
        ("", {".": "50000"}, 0.5, 0.5),
        ("job/task", {"job": "25000", "job/task": "75000"}, 0.25, 0.25),
        ("", {".": "100000000"}, AFFINITY, 1000),
    ],
    ids=["none", "own", "smallest above", "above the affinity"],
)
def test_a_quota_of_version_2_limits(system, group, quotas, usable, quota):
    files = {f"{folder}/cpu.max": f"{us} 100000" for folder, us in quotas.items()}
    root = system(f"0::/{group}", V2, **files)

    assert (usable_cpus(root), cpu_quota(root)) == (usable, quota)


@pytest.mark.parametrize(
    ("group", "mounted", "folder"),
    [
        ("/", "/", ""),
        ("/slurm/job_7", "/", "slurm/job_7/"),
        # In a container: the host's name of the group, of which only the folder shows.
        ("/docker/1f2e", "/docker/1f2e", ""),
        ("/docker/1f2e", "/", ""),
        ("/docker/1f2e/job", "/docker/1f2e", "job/"),
    ],
)
def test_a_quota_of_version_1_limits(system, group, mounted, folder):
    top = f"cpu,cpuacct/{folder}"
    root = system(
        f"9:memory:/other\n4:cpu,cpuacct:{group}\n0::/",
        V1.format(root=mounted),
        **{f"{top}cpu.cfs_quota_us": "75000", f"{top}cpu.cfs_period_us": "100000"},
    )

    assert usable_cpus(root) == 0.75
    (root / f"sys/fs/cgroup/{top}cpu.cfs_quota_us").write_text("-1\n")
    assert usable_cpus(root) == AFFINITY


def test_a_process_bound_to_one_cpu_may_use_one():
    code = (
        "import os; from nbkit.telemetry.cpus import usable_cpus; "
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(usable_cpus())"
    )

    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert 0 < float(printed.stdout) <= 1
