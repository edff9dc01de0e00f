"""What a cluster has to offer, as sinfo tells it."""

from __future__ import annotations

import pytest

from nbkit.launch.slurm import partitions as partitions_module
from nbkit.launch.slurm.partitions import GpuCount, partitions
from nbkit.store.slurm import SlurmSilentError
from tests.slurm_programs import SlurmPrograms


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    return SlurmPrograms(tmp_path, monkeypatch)


def test_partitions_of_two_nodes(slurm):
    # As Slurm 22.05 printed it.
    slurm.tell(
        "sinfo",
        "debug*|up|infinite|n1|mix|gpu:2|gpu:2|",
        "debug*|up|infinite|n2|idle|gpu:2|gpu:0|",
    )

    [one] = partitions()

    assert (one.name, one.is_default, one.is_up) == ("debug", True, True)
    assert (one.time_limit, one.nodes_idle, one.nodes_total) == ("infinite", 1, 2)
    assert one.gpus == {"gpu": GpuCount(free=2, total=4)}


def test_partitions_gpus_by_type(slurm):
    a100, both = "gpu:a100:8(S:0-1)", "gpu:1080:4,gpu:a100:2,mps:400"
    slurm.tell(
        "sinfo",
        f"long|up|1-00:00:00|a1|mix|{a100}|gpu:a100:5(IDX:0-4)|",
        f"long|up|1-00:00:00|a2|drain|{a100}|gpu:a100:0(IDX:N/A)|",
        f"long|up|1-00:00:00|a3|idle*|{a100}|gpu:a100:0(IDX:N/A)|",
        f"long|up|1-00:00:00|a4|idle~|{a100}|(null)|",
        f"long|up|1-00:00:00|b1|idle|{both}|gpu:1080:1(IDX:3),gpu:a100:0,mps:0|",
        f"day*|up|12:00:00|b1|idle|{both}|gpu:1080:1(IDX:3),gpu:a100:0,mps:0|",
        "cpus|down|30:00|c1|idle|(null)|(null)|",
    )

    day, cpus, long = partitions()

    assert (day.name, long.name, long.is_default) == ("day", "long", False)
    assert long.gpus == {"a100": GpuCount(3 + 8 + 2, 34), "1080": GpuCount(3, 4)}
    assert (long.nodes_idle, long.nodes_total) == (2, 5)
    assert (cpus.gpus, cpus.is_up) == ({}, False)


def test_why_slurm_says_nothing_is_said(slurm, monkeypatch):
    with pytest.raises(
        SlurmSilentError, match="sinfo is not installed on this machine"
    ):
        partitions()
    slurm.tell("sinfo", status=1, words="slurm_load_partitions: Unable to contact")
    with pytest.raises(SlurmSilentError, match="Unable to contact"):
        partitions()
    monkeypatch.setattr(partitions_module, "LIMIT_SECONDS", 0.1)
    slurm.tell("sinfo", also="exec /bin/sleep 1000")
    with pytest.raises(SlurmSilentError, match=r"did not respond within 0\.1 s"):
        partitions()
