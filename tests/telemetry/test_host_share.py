"""What this process may use of its host."""

from __future__ import annotations

from nbkit.telemetry.host_share import HostShare, HostShareReader
from tests.telemetry.test_cpus import AFFINITY, V2, system

__all__ = ["system"]


def test_a_share_is_the_affinity_and_what_the_control_groups_grant(system):
    files = {"job/cpu.max": "50000 100000", "job/memory.max": "4096"}
    root = system("0::/job", V2, **files)

    assert HostShareReader(root).read() == HostShare(0.5, 4096)


def test_without_control_groups_the_affinity_alone_is_a_share(tmp_path):
    assert HostShareReader(tmp_path).read() == HostShare(AFFINITY, None)


def test_limits_are_not_looked_up_at_every_reading(system):
    root = system("0::/", V2, **{"memory.max": "4096"})
    reader = HostShareReader(root)
    reader.read()
    (root / "sys/fs/cgroup/memory.max").write_text("1024\n")

    assert reader.read().memory_bytes == 4096
    reader._due = 0.0
    assert reader.read().memory_bytes == 1024
