"""A rank binds itself, by what the driver and the kernel say of its host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from tests.telemetry.planted_topology import plant

FAKE_NVML = Path(__file__).parents[1] / "telemetry/fake_nvml"
USABLE = sorted(os.sched_getaffinity(0))
AWAY = max(USABLE) + 1

BIND = """
import json, os, sys
from pathlib import Path
from types import SimpleNamespace
from nbkit.config import ExperimentConfig
from nbkit.telemetry import gpu
from nbkit.telemetry.topology import numa_node_of, read_cpus
from nbkit.worker import binding
root = Path(sys.argv[1])
binding.read_cpus = lambda: read_cpus(root)
gpu.numa_node_of = lambda bus_id: numa_node_of(bus_id, root)
first = SimpleNamespace(local_rank=0, local_world_size=1)
config = ExperimentConfig(cpu_binding="numa", device=sys.argv[2])
found = vars(binding.bind(first, config))
assert "torch" not in sys.modules
threads = os.environ["OMP_NUM_THREADS"]
print(json.dumps([found, sorted(os.sched_getaffinity(0)), threads]))
"""

GPU_BUS_ID = "ffff:fe:1f.7"
"""Of every GPU of the driver that does not exist."""


@pytest.fixture
def bind(tmp_path, monkeypatch):
    """Return a binder of a new process, on two NUMA nodes: ours, and one without us."""
    folders = [str(FAKE_NVML), os.environ.get("PYTHONPATH", "")]
    monkeypatch.delenv("NBKIT_DEVICE_TYPE", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", str(len(USABLE) + 1))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, folders)))
    cores = [*(((cpu,), 0, 0) for cpu in USABLE), ((AWAY,), 1, 1)]

    def run(device, gpu_node, driver, visible=None):
        root = plant(tmp_path, cores, {GPU_BUS_ID: gpu_node})
        monkeypatch.setenv("FAKE_NVML", json.dumps(driver))
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        done = subprocess.run(
            [sys.executable, "-c", BIND, str(root), device],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        binding, affinity, threads = json.loads(done.stdout)
        assert affinity == binding["cpus"] == USABLE
        assert threads == str(len(USABLE)), "one for each CPU"
        return binding

    return run


GPU = {"gpus": [{"uuid": "GPU-aaaa-1"}]}
DIVIDED = {"gpus": [{"uuid": "GPU-aaaa-1", "migs": [{"uuid": "MIG-bbbb-2"}]}]}


@pytest.mark.parametrize(
    ("driver", "visible"),
    [(GPU, None), (GPU, "0"), (GPU, "GPU-aaaa-1"), (DIVIDED, "MIG-bbbb-2")],
)
def test_a_rank_finds_the_numa_node_of_its_gpu(bind, driver, visible):
    away = bind("cuda", 1, driver, visible)

    assert away["reason"] == "NUMA node 1 of its GPU has no usable CPU"


def test_a_rank_stays_on_the_numa_node_of_its_gpu(bind):
    binding = bind("cuda", 0, GPU, "0")

    assert (binding["requested"], binding["numa_nodes"]) == ("numa", [0])
    assert binding["reason"] == "all usable CPUs are on NUMA node 0"


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("cuda", "GPUs cannot be read (no permission)"),
        ("auto", "all usable CPUs are on NUMA node 0"),
    ],
)
def test_gpus_that_cannot_be_read_are_a_reason_where_they_were_promised(
    bind, device, said
):
    broken = {"init_error": pynvml.NVML_ERROR_NO_PERMISSION}

    assert bind(device, 0, broken)["reason"].startswith(said)
