"""The checks of `nbkit doctor --gpus`: an all-reduce over the free GPUs.

It is an ordinary run, in a store of its own: leases, the detection of hangs and the
errors that the driver reports are those of every run. One that fails is tried again
without peer-to-peer access, which tells what is at fault.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from nbkit.config import AllReduceConfig, ExperimentConfig
from nbkit.errors import NbkitError, NvmlUnavailableError
from nbkit.findings import Finding
from nbkit.health import stream
from nbkit.launch.devices.choice import visible_gpus
from nbkit.launch.devices.claims import leases
from nbkit.launch.run import Run
from nbkit.launch.start import launch
from nbkit.plural import plural
from nbkit.statistics import allreduce_timing
from nbkit.telemetry.gpu_users import gpu_users
from nbkit.telemetry.health import shared_memory
from nbkit.telemetry.nvml import open_nvml

_WHAT = "All-reduce"
_NO_P2P = "NCCL_P2P_DISABLE"
_MESSAGE_BYTES = 32 * 2**20
_SHARED_MEMORY = re.compile(
    r"shared memory|/dev/shm|No space left|SIGBUS", re.IGNORECASE
)
"""What NCCL says of it; a rank that finds less than was promised ends by SIGBUS."""


def checks(deadline: float) -> Iterator[Finding]:
    """Yield the results."""
    try:
        gpus = [gpu for gpu in visible_gpus("auto") if not gpu.is_instance]
        if len(gpus) < 2:
            evidence = f"{plural(len(gpus), 'GPU')} visible (MIG instances excluded), "
            evidence += "an all-reduce requires 2"
            if (setting := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
                evidence += f" (CUDA_VISIBLE_DEVICES={setting!r})"
            yield Finding(_WHAT, "note", evidence)
            return
        yield shared_memory(len(gpus))
        used = {name: " and ".join(ids) for name, ids in leases("cuda").items()}
        with open_nvml() as nvml:
            used |= gpu_users(nvml.read(), [gpu.name for gpu in gpus], ())
        for gpu in gpus:
            if gpu.name in used:
                evidence = f"not checked: in use by {used[gpu.name]}"
                yield Finding(gpu.label, "note", evidence)
        free = tuple(gpu.name for gpu in gpus if gpu.name not in used)
        if len(free) < 2:
            evidence = f"{len(free)} of {len(gpus)} GPUs free; an all-reduce requires 2"
            action = "run nbkit doctor --gpus when 2 GPUs are free (see nbkit monitor)"
            yield Finding(_WHAT, "note", evidence, action)
            return
        yield check_all_reduce(deadline, device="cuda", devices=free, gpus=len(free))
    except (NbkitError, NvmlUnavailableError) as error:
        yield Finding(_WHAT, "error", str(error), "run nbkit doctor")


def check_all_reduce(deadline: float, **fields: Any) -> Finding:
    """Return whether an all-reduce works by a deadline (`time.monotonic`)."""
    # It changes the environment of this process.
    sizes = AllReduceConfig(
        bytes_min=_MESSAGE_BYTES,
        bytes_max=_MESSAGE_BYTES,
        warmup_iterations=1,
        iterations=3,
    )
    # Two attempts, and their ends, fit into the time.
    patience = max(1.0, (deadline - time.monotonic()) / 3)
    usual = {"name": "nbkit doctor", "hang_timeout_seconds": patience}
    values = {**usual, **fields, "task": "allreduce", "allreduce": sizes}
    config = ExperimentConfig(**values)
    os.environ["NBKIT_HOME"] = store = tempfile.mkdtemp(prefix="nbkit-doctor-")
    os.environ.setdefault("NCCL_DEBUG", "WARN")
    try:
        run = _run_to_end(config, deadline)
    except TimeoutError as error:
        return Finding(_WHAT, "warning", str(error), "allow more time with --limit")
    if run.cause is None:
        timing = allreduce_timing(run.metrics("allreduce")[0])
        gigabytes = timing.bus_bandwidth_bytes_per_second / 1e9
        shutil.rmtree(store)
        evidence = f"works on {config.gpus} GPUs, bus bandwidth {gigabytes:.1f} GB/s"
        return Finding(_WHAT, "ok", evidence)
    cause = run.cause
    evidence = f"fails on {config.gpus} GPUs: {cause['message']}"
    lacks_memory = _SHARED_MEMORY.search(f"{cause['message']} {cause['signal']}")
    works_without_p2p, outcome = False, "does not help"
    if not lacks_memory and _NO_P2P not in os.environ:
        os.environ[_NO_P2P] = "1"
        try:
            works_without_p2p = _run_to_end(config, deadline).cause is None
        except TimeoutError:
            outcome = "gave no result in time"
    if lacks_memory:
        action = "NCCL needs more shared memory: start the container with docker run "
        action += "--shm-size=8g, or run sudo mount -o remount,size=8G /dev/shm"
    elif works_without_p2p:
        action = (
            "the all-reduce works without peer-to-peer access: set "
            f"{_NO_P2P}=1 as a workaround. "
            "With NVLink, check the error counters (nvidia-smi nvlink -e), and reset "
            "the GPUs. With PCIe, add iommu=pt to the kernel's command line, disable "
            "ACS in the BIOS, and reboot"
        )
    else:
        log = cause["log"] or store
        action = f"{_NO_P2P}={os.environ[_NO_P2P]} {outcome}: see {log}, and run "
        action += "NCCL_DEBUG=INFO nbkit doctor --gpus"
    return Finding(_WHAT, "error", evidence, action)


def _run_to_end(config: ExperimentConfig, deadline: float) -> Run:
    """Return a run that has ended; raise TimeoutError if it has not in time."""
    run = launch(config, on_owner_exit="stop")
    seconds = max(0.0, deadline - time.monotonic())
    try:
        return run.wait(seconds, raise_on_failure=False, on_poll=lambda run: None)
    except TimeoutError:
        message = f"no result within {seconds:.0f} s (run state: {run.state})"
        run.stop(0.0, wait=False)
        raise TimeoutError(message) from None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deadline", type=float, default=time.monotonic() + 120)
    stream(checks(parser.parse_args().deadline))
