"""CPU binding of this rank, as configured; imports no torch.

In the rank, so that every engine does the same, and before torch starts threads or
touches memory. What is started later inherits the CPUs: threads, loading processes.
"""

from __future__ import annotations

import os

from nbkit.config import ExperimentConfig
from nbkit.errors import NvmlUnavailableError
from nbkit.telemetry.cpu_binding import CpuBinding, GpuNodes, choose, gpu_nodes
from nbkit.telemetry.topology import read_cpus
from nbkit.worker.rank import Rank, device_kind


def bind(rank: Rank, config: ExperimentConfig) -> CpuBinding:
    """Bind this process as ``cpu_binding`` asks; return to what, or why not."""
    # A bound rank has no more threads than CPUs.
    policy = config.cpu_binding
    gpus = None if policy == "none" else _gpu_nodes(config)
    binding = choose(policy, read_cpus(), rank.local_rank, rank.local_world_size, gpus)
    if policy != "none":
        os.sched_setaffinity(0, binding.cpus)
        # The launcher has shared out the CPUs of all NUMA nodes.
        threads = os.environ.get("OMP_NUM_THREADS", "")
        if threads.isdecimal() and int(threads) > len(binding.cpus):
            os.environ["OMP_NUM_THREADS"] = str(len(binding.cpus))
    return binding


def _gpu_nodes(config: ExperimentConfig) -> GpuNodes | None:
    """Return where the GPUs of this host's ranks are; None where they use none."""
    # NVML says, not torch, which would start threads first.
    kind = device_kind(config)
    if kind in ("cpu", "replay"):
        return None
    from nbkit.telemetry.nvml import open_nvml

    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        with open_nvml() as nvml:
            gpus = nvml.devices()
            read = nvml.read() if "MIG-" in (setting or "") else ()
    except NvmlUnavailableError as error:
        # Under plain torchrun, device="auto" computes on CPUs then.
        return None if kind == "auto" else GpuNodes((), str(error).rstrip("."))
    parents = {
        instance.uuid: str(gpu.uuid)
        for gpu in read
        for instance in gpu.mig_instances or ()
    }
    return gpu_nodes(gpus, setting, parents, os.environ.get("CUDA_DEVICE_ORDER"))
