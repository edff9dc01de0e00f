"""A run that names CPUs stays on them, with everything that it starts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, DeviceError
from nbkit.launch.devices import request_devices

USABLE = sorted(os.sched_getaffinity(0))
MISSING = max(USABLE) + 1000


def test_it_waits_for_these_cpus_and_divides_them(small, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("nbkit.launch.devices.usable_cpus", lambda: 9.0)
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
    [((), "names no CPU"), ((1, 1), "names a CPU twice"), ((-1,), "is below 0")],
)
def test_cpus_are_named_once_each(cpus, said):
    with pytest.raises(ConfigError, match=said):
        ExperimentConfig(cpus=cpus)


def test_ranks_divide_the_cpus_of_their_run():
    last = USABLE[-1]
    code = f"""
import os, subprocess, sys
from types import SimpleNamespace
from nbkit.worker.rank import bind_cpus, keep_to_cpus
keep_to_cpus(({last},))
child = "import os; print(sorted(os.sched_getaffinity(0)))"
subprocess.run([sys.executable, "-c", child], check=True)
print(bind_cpus(SimpleNamespace(local_world_size=2, local_rank=1)))
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
    assert refused.startswith(f"ConfigError cpus=({MISSING},): a rank may use CPUs")
