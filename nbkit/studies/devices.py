"""Devices of one node: GPUs, or CPU processes instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any, Literal, TypeAlias

from nbkit import registry
from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.launch.devices.choice import visible_gpus, whole_gpus
from nbkit.telemetry.cpus import usable_cpus
from nbkit.telemetry.nvml import describe_gpus

DeviceType: TypeAlias = Literal["cuda", "cpu"]

_NEWER = ("tf32", "bf16")
_NEWER_CAPABILITY = 8.0
"""Compute capability of Ampere, which brought both formats:
https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-capability-8-x"""


@dataclass(frozen=True)
class Devices:
    """Devices of one node."""

    device_type: DeviceType
    count: int
    """GPUs, or usable CPUs."""
    name: str | None = None
    """Of the GPU; None on CPUs, and on nodes that cannot be looked at from here."""
    memory_bytes: int | None = None
    """Memory of the smallest GPU or MIG instance; None if unknown."""
    uuids: frozenset[str] = frozenset()
    """Of the GPUs and MIG instances of this machine that a run may use."""

    @property
    def is_cpu(self) -> bool:
        """Whether CPU processes are used instead of GPUs."""
        return self.device_type == "cpu"

    @cached_property
    def gpus(self) -> list[dict[str, Any]]:
        """Facts of the GPUs that a run may use; empty if unknown.

        MIG instances have no separate facts; with them, those of all GPUs.
        """
        gpus = (describe_gpus()["devices"] or []) if self.uuids else []
        return [gpu for gpu in gpus if gpu["uuid"] in self.uuids] or gpus

    def formats(
        self, wanted: Sequence[str], requested: object
    ) -> tuple[list[str], dict[str, Any]]:
        """Return the number formats that all GPUs support, and facts of an older GPU.

        The facts are for `unsupported_note`; empty if no format is skipped.

        Raises
        ------
        ConfigError
            If a requested format is not supported.
        """
        newer = [name for name in wanted if name in _NEWER]
        for gpu in self.gpus if newer else ():
            capability = gpu.get("compute_capability")
            if capability is not None and float(capability) < _NEWER_CAPABILITY:
                old = {"gpu_name": gpu["name"], "compute_capability": capability}
                if requested is not None:
                    message = (
                        f"Number formats not supported: {', '.join(newer)} "
                        f"({_too_old(old)}). Use fp32 or fp16."
                    )
                    raise ConfigError(message)
                rest = [name for name in wanted if name not in _NEWER]
                return rest, {"older_gpu": old}
        return [*wanted], {}


def find_devices(device: str, engine: str, gpus: int, **fields: Any) -> Devices:
    """Return the devices of a node of this engine."""
    if engine != "local":
        config = ExperimentConfig(**{"engine": engine, "device": device, **fields})
        devices = registry.resolve("engines", engine)().check(config)
        return Devices(devices["device_type"], gpus)
    if device in ("cpu", "replay"):
        return Devices("cpu", int(usable_cpus()))
    here = visible_gpus(device)
    if not here:
        return Devices("cpu", int(usable_cpus()))
    names = {gpu.product for gpu in here if gpu.product}
    sizes = [size for gpu in here if (size := gpu.memory_total_bytes) is not None]
    return Devices(
        "cuda",
        whole_gpus(here),
        " and ".join(sorted(names)) or None,
        min(sizes, default=None),
        frozenset(gpu.name for gpu in here),
    )


def why_cpus(requested: str, engine: str) -> str:
    """Return why CPU processes are used instead of GPUs."""
    if requested in ("cpu", "replay"):
        return f"device={requested} was requested"
    return f"there is no {'visible GPU' if engine == 'local' else 'GPU on these nodes'}"


def unsupported_note(facts: Mapping[str, Any]) -> list[str]:
    """Return a note on formats that a GPU lacks, if `Devices.formats` skipped any."""
    old = facts.get("older_gpu")
    return [f"TF32 and BF16 are skipped: {_too_old(old)}."] if old else []


def _too_old(gpu: Mapping[str, Any]) -> str:
    return (
        f"{gpu['gpu_name']} has compute capability {gpu['compute_capability']}, below "
        f"{_NEWER_CAPABILITY}"
    )


def sweep_sizes(largest: int) -> list[int]:
    """Return 1, 2, 4 ... and the largest: 6 gives 1, 2, 4, 6."""
    if largest < 1:
        message = f"gpus={largest} is below 1. Use 1 or more."
        raise ConfigError(message)
    powers = takewhile(lambda size: size < largest, (2**n for n in range(largest)))
    return [*powers, largest]
