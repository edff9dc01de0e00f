"""What one node computes on: GPUs, or CPU processes instead of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nbkit import registry
from nbkit.analysis.projection import DeviceType
from nbkit.config import ExperimentConfig
from nbkit.launch.devices import visible_gpus, whole_gpus
from nbkit.telemetry.cpus import usable_cpus

__all__ = ["Devices", "find_devices", "why_cpus"]


@dataclass(frozen=True)
class Devices:
    """What one node has to compute on."""

    device_type: DeviceType
    count: int
    """GPUs, or usable CPUs."""
    name: str | None = None
    """Of the GPU; None on CPUs, and on nodes that cannot be looked at from here."""

    @property
    def is_cpu(self) -> bool:
        """Whether CPU processes are used instead of GPUs."""
        return self.device_type == "cpu"


def find_devices(device: str, engine: str, gpus: int, **fields: Any) -> Devices:
    """Return what a node of this engine has.

    Parameters
    ----------
    device
        ``auto``, ``cuda``, ``cpu`` or ``replay``.
    engine
        Nodes of ``local`` are this machine; of others the engine says on what they
        compute, and is taken at its word.
    gpus
        What is asked of each node.
    fields
        Others by which a configuration chooses nodes, such as ``slurm``.

    Raises
    ------
    DeviceError
        If ``device="cuda"`` and there is no GPU to use.
    LaunchError
        If the engine cannot be used from here.
    """
    if engine != "local":
        config = ExperimentConfig(**{"engine": engine, "device": device, **fields})
        found = registry.resolve("engines", engine)().check(config)
        return Devices(found["device_type"], gpus)
    if device in ("cpu", "replay"):
        return Devices("cpu", int(usable_cpus()))
    here = visible_gpus(device)
    if not here:
        return Devices("cpu", int(usable_cpus()))
    names = {gpu.product for gpu in here if gpu.product}
    return Devices("cuda", whole_gpus(here), " and ".join(sorted(names)) or None)


def why_cpus(asked: str, engine: str) -> str:
    """Return why CPU processes are used instead of GPUs.

    Parameters
    ----------
    asked
        The ``device`` that was asked for.
    engine
        What starts the processes: GPUs of a login node are not those of its cluster.
    """
    if asked in ("cpu", "replay"):
        return f"device={asked} was asked for"
    return f"there is no GPU {'here' if engine == 'local' else 'on these nodes'}"
