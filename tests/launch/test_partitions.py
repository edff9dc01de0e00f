"""What a cluster has to offer, as sinfo tells it."""

from __future__ import annotations

import pytest

from nbkit.errors import LaunchError
from nbkit.launch.slurm import partitions as partitions_module
from nbkit.launch.slurm.partitions import GpuCount, partitions, refuse_too_many_nodes
from nbkit.store.slurm import SlurmSilentError
from tests.slurm_programs import SlurmPrograms


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    return SlurmPrograms(tmp_path, monkeypatch)


def test_a_cluster_of_two_nodes_is_one_partition(slurm):
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


def test_gpus_count_by_type_and_only_those_of_nodes_that_take_jobs_are_free(slurm):
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
    monkeypatch.setattr(partitions_module, "_LIMIT_SECONDS", 0.1)
    slurm.tell("sinfo", also="exec /bin/sleep 1000")
    with pytest.raises(SlurmSilentError, match=r"did not respond within 0\.1 s"):
        partitions()


@pytest.mark.parametrize(
    ("nnodes", "wanted", "words"),
    [
        (3, "day", "nnodes=3, but partition day has only 2 nodes"),
        (3, "day,cpus", "partition day or cpus has only 2 nodes"),
        (4, "", "partition day or cpus or long has only 3 nodes"),
    ],
)
def test_more_nodes_than_there_are_is_refused(slurm, nnodes, wanted, words):
    tell_partitions(slurm)

    with pytest.raises(LaunchError, match=words):
        refuse_too_many_nodes(nnodes, wanted)


def test_a_partition_chosen_by_a_variable_counts(slurm, monkeypatch):
    tell_partitions(slurm)
    monkeypatch.setenv("SBATCH_PARTITION", "day")

    with pytest.raises(LaunchError, match="partition day has only 2 nodes"):
        refuse_too_many_nodes(3, "")
    refuse_too_many_nodes(3, "long")


@pytest.mark.parametrize("wanted", ["", "long", "day,long", "moon", "moon,day"])
def test_what_may_begin_some_day_is_not_refused(slurm, wanted):
    tell_partitions(slurm)

    refuse_too_many_nodes(3, wanted)


def test_where_slurm_does_not_tell_nothing_is_refused(slurm):
    slurm.tell("sinfo", status=1, words="slurm_load_partitions: Unable to contact")

    refuse_too_many_nodes(3, "")


def tell_partitions(slurm):
    """Tell of two nodes by day, one of them down, of three for long, and of one."""
    slurm.tell(
        "sinfo",
        *("day*|up|12:00:00|b1|idle|||", "day*|up|12:00:00|b2|down*|||"),
        *(f"long|up|infinite|a{node}|mix|||" for node in range(3)),
        "cpus|up|30:00|c1|idle|||",
    )
