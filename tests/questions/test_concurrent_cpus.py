"""A run that names CPUs stays on them, with everything that it starts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, DeviceError
from nbkit.launch.devices.choice import Candidate, request_devices
from nbkit.questions.concurrent_jobs.cpus import CpuShare, cpu_shares, shared_cores
from nbkit.telemetry.topology import read_cpus
from tests.telemetry.planted_topology import plant, two_sockets_of_two_nodes

USABLE = sorted(os.sched_getaffinity(0))
MISSING = max(USABLE) + 1000


def test_it_waits_for_these_cpus_and_divides_them(small, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("nbkit.launch.devices.choice.usable_cpus", lambda: 9.0)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(9)))

    wanted = request_devices(small(gpus=2, cpus=(7, 3, 4, 5)))

    assert [name for name, _ in wanted.candidates] == [
        *("cpu-3", "cpu-4", "cpu-5", "cpu-7")
    ]
    assert (wanted.count, wanted.cpus_per_rank) == (4, 2)


def test_a_cpu_that_may_not_be_used_is_named_with_those_that_may(small):
    with pytest.raises(DeviceError, match=rf"cpus=\({MISSING},\): .* CPUs {USABLE[0]}"):
        request_devices(small(cpus=(MISSING,)))


@pytest.mark.parametrize(
    ("cpus", "said"),
    [((), "is empty. List"), ((1, 1), "lists a CPU twice"), ((-1,), "is below 0")],
)
def test_cpus_are_named_once_each(cpus, said):
    with pytest.raises(ConfigError, match=said):
        ExperimentConfig(cpus=cpus)


def test_ranks_divide_the_cpus_of_their_run():
    last = USABLE[-1]
    code = f"""
import subprocess, sys
from types import SimpleNamespace
from nbkit.config import ExperimentConfig
from nbkit.worker.binding import bind
from nbkit.worker.rank import keep_to_cpus
keep_to_cpus(({last},))
child = "import os; print(sorted(os.sched_getaffinity(0)))"
subprocess.run([sys.executable, "-c", child], check=True)
second = SimpleNamespace(local_world_size=2, local_rank=1)
print(list(bind(second, ExperimentConfig(device="cpu", cpu_binding="cores")).cpus))
try:
    keep_to_cpus(({MISSING},))
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    child, bound, refused = done.stdout.splitlines()
    assert child == bound == f"[{last}]"
    assert f"cpus=({MISSING},) contains CPUs that this rank may not use" in refused


def test_jobs_get_whole_cores_where_second_threads_are_numbered_last(tmp_path):
    cpus = read_cpus(plant(tmp_path, [((0, 2), 0, 0), ((1, 3), 0, 0)]), range(4))

    shares = [share.cpus for share in cpu_shares(cpus, [1, 1])]

    assert shares == [(0, 2), (1, 3)]
    assert not shared_cores(shares, cpus)


def test_jobs_that_have_to_share_a_core_are_noticed(tmp_path):
    cpus = read_cpus(plant(tmp_path, [((0, 1), 0, 0)]), range(2))

    shares = [share.cpus for share in cpu_shares(cpus, [1, 1])]

    assert shares == [(0,), (1,)]
    assert shared_cores(shares, cpus)


def test_cpus_are_shared_out_by_devices_and_what_is_left_over_stays_free(tmp_path):
    shares = cpu_shares(read_cpus(tmp_path, range(10)), [1, 2])

    assert [share.cpus for share in shares] == [(0, 1, 2), (3, 4, 5, 6, 7, 8)]


def test_a_job_has_cpus_near_its_gpus_and_then_names_these(tmp_path):
    cpus = read_cpus(two_sockets_of_two_nodes(tmp_path), range(32))
    places = {"a": 3, "b": 0, "c": 0}
    gpus = [Candidate(name, "", numa_node=node) for name, node in places.items()]

    first, second = cpu_shares(cpus, [1, 2], gpus)

    assert first == CpuShare((12, 13, 28, 29), ("a",))
    assert second == CpuShare((0, 1, 2, 3, 16, 17, 18, 19), ("b", "c"))


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        (Candidate("a", ""), "does not report the NUMA node of its GPU"),
        (Candidate("a", "", is_instance=True), "regardless of the MIG instance"),
    ],
)
def test_a_job_whose_gpu_is_nowhere_known_says_so_and_takes_any(tmp_path, gpu, said):
    cpus = read_cpus(two_sockets_of_two_nodes(tmp_path), range(32))

    first, second = cpu_shares(cpus, [1, 1], [gpu, Candidate("b", "", numa_node=0)])

    assert len(first.cpus) == len(second.cpus) == 16
    assert first.devices == second.devices == ()
    assert said in first.fallback_reason
