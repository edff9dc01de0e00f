"""Which devices a run gets: one a rank, none that another rank holds."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbkit.config import ExperimentConfig
from nbkit.errors import DeviceError, NvmlUnavailableError
from nbkit.launch.command import DEVICES_VARIABLE
from nbkit.launch.sweep import marked_processes
from nbkit.telemetry.cpus import usable_cpus
from nbkit.telemetry.visible import visible

if TYPE_CHECKING:
    from nbkit.telemetry.sample import GpuDevice

__all__ = ["Placement", "choose_gpus", "place", "placing", "visible_gpus"]


@dataclass(frozen=True)
class Placement:
    """The devices of one run on one node."""

    device_type: str
    """``cuda`` or ``cpu``."""
    devices: tuple[str, ...]
    """GPU UUIDs by local rank; empty on CPUs."""
    cpus_per_rank: int
    """Usable CPUs shared equally between the ranks, at least 1."""
    oversubscribed: bool
    """Whether ranks share a device or a CPU."""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


@contextmanager
def placing() -> Iterator[None]:
    """Let one process of this user at a time choose devices and start a supervisor.

    Between the choice and the start nobody could see that the devices are taken.
    """
    path = Path(tempfile.gettempdir()) / f"nbkit-placing-{os.getuid()}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def place(config: ExperimentConfig) -> Placement:
    """Return the devices of a run on this machine.

    Raises
    ------
    DeviceError
        If there are too few devices, a named one is unknown, or one is held by a rank
        of another run and ``oversubscribe`` is not set.
    """
    cpus = max(1, int(usable_cpus()))
    cpus_per_rank = max(1, cpus // config.gpus)
    gpus = () if config.device == "cpu" else visible_gpus(config.device)
    if gpus:
        held = _held_devices()
        devices = choose_gpus(config, gpus, held)
        shared = len(devices) < config.gpus or bool(held & set(devices))
        return Placement("cuda", tuple(devices), cpus_per_rank, shared)
    if config.devices is not None:
        message = f"devices={config.devices}: there is no GPU here; remove devices."
        raise DeviceError(message)
    if config.gpus > cpus and not config.oversubscribe:
        message = (
            f"gpus={config.gpus} ranks: there is no GPU to use here, and {cpus} usable "
            f"CPUs (affinity and quota); use gpus={cpus} or oversubscribe=True."
        )
        raise DeviceError(message)
    return Placement("cpu", (), cpus_per_rank, config.gpus > cpus)


def visible_gpus(device: str) -> Sequence[GpuDevice]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves; empty without any.

    Parameters
    ----------
    device
        ``auto`` takes a machine without NVML for one without GPUs; ``cuda`` does not.

    Raises
    ------
    DeviceError
        If ``device="cuda"`` and there is no GPU to use.
    """
    from nbkit.telemetry.nvml import open_nvml

    reason = "the driver shows none"
    gpus: Sequence[GpuDevice] = ()
    try:
        with open_nvml() as nvml:
            found = [gpu for gpu in nvml.devices() if gpu.uuid and not gpu.error]
        gpus = _visible(found, os.environ.get("CUDA_VISIBLE_DEVICES"))
        if not gpus:
            reason = "CUDA_VISIBLE_DEVICES hides them all, or the driver shows none"
    except NvmlUnavailableError as error:
        reason = str(error)
        if device == "auto" and Path("/proc/driver/nvidia/version").exists():
            # A machine with a driver is a GPU machine: never fall back in silence.
            message = f"device='auto': {reason} Mend that, or set device='cpu'."
            raise DeviceError(message) from error
    if not gpus and device == "cuda":
        message = f"device='cuda', but there is no GPU to use: {reason}"
        raise DeviceError(message)
    return gpus


def choose_gpus(
    config: ExperimentConfig, gpus: Sequence[GpuDevice], held: set[str]
) -> list[str]:
    """Return the UUIDs of a run's GPUs, by local rank.

    Parameters
    ----------
    config
        ``gpus``, ``devices`` and ``oversubscribe`` matter.
    gpus
        GPUs that may be used.
    held
        UUIDs that ranks of other runs hold.
    """
    if config.devices is not None:
        wanted = [_named(name, gpus) for name in config.devices][: config.gpus]
    else:
        free = [gpu for gpu in gpus if gpu.uuid not in held]
        busy = [gpu for gpu in gpus if gpu.uuid in held] if config.oversubscribe else []
        wanted = [*free, *busy][: config.gpus]
    taken = [str(gpu.uuid) for gpu in wanted if gpu.uuid in held]
    if taken and not config.oversubscribe:
        message = (
            f"devices={config.devices}: {', '.join(taken)} is held by a rank of "
            "another run; wait for that run, name other devices, or set "
            "oversubscribe=True."
        )
        raise DeviceError(message)
    if len(wanted) < config.gpus and not (config.oversubscribe and wanted):
        message = (
            f"gpus={config.gpus}, but {len(wanted)} of {len(gpus)} visible GPUs are "
            f"free ({len(held)} held by ranks of other runs); use gpus={len(wanted)}, "
            "wait, or set oversubscribe=True."
        )
        raise DeviceError(message)
    return [str(gpu.uuid) for gpu in wanted]


def _named(name: int | str, gpus: Sequence[GpuDevice]) -> GpuDevice:
    for gpu in gpus:
        if name in (gpu.index, gpu.uuid) or str(name) == str(gpu.index):
            return gpu
    known = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus)
    message = f"devices: {name!r} is not a visible GPU; visible: {known}."
    raise DeviceError(message)


def _visible(gpus: Sequence[GpuDevice], setting: str | None) -> list[GpuDevice]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves; refuse parts of a GPU."""
    if setting is not None and "MIG-" in setting:
        message = (
            f"CUDA_VISIBLE_DEVICES={setting!r}: MIG instances cannot be used yet; name "
            "whole GPUs, or unset it."
        )
        raise DeviceError(message)
    return visible(gpus, setting)


def _held_devices() -> set[str]:
    """Return the UUIDs that living runs on this host hold."""
    held: set[str] = set()
    for _, process in marked_processes():
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        except OSError:
            continue
        for entry in environment.split(b"\0"):
            if entry.startswith(f"{DEVICES_VARIABLE}=".encode()):
                uuids = entry.partition(b"=")[2].decode(errors="replace")
                held.update(filter(None, uuids.split(",")))
    return held
