"""Choice of a run's devices: one per rank, from those its launcher may use."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nbkit.config import ExperimentConfig
from nbkit.errors import DeviceError, NvmlUnavailableError
from nbkit.launch.devices.claims import leases
from nbkit.plural import plural
from nbkit.store.processes import RUN_ID_VARIABLE
from nbkit.telemetry.cpus import usable_cpus
from nbkit.telemetry.gpu_source import SOURCE_VARIABLE, SourceSetting
from nbkit.telemetry.visible_devices import (
    RESET,
    unknown_entry,
    visible_devices,
    visible_instances,
)

if TYPE_CHECKING:
    from nbkit.telemetry.gpu_source import GpuSource
    from nbkit.telemetry.sample import GpuDevice


_DIVIDE = (
    "create an instance (sudo nvidia-smi mig -cgi PROFILE -C) or disable MIG (sudo "
    "nvidia-smi -mig 0)"
)


@dataclass(frozen=True)
class Candidate:
    """A device that a run may get."""

    name: str
    """UUID of a GPU or of a MIG instance, or a CPU such as ``cpu-3``."""
    label: str
    """Its display name: ``GPU 0``."""
    product: str | None = None
    """What the driver calls it: ``NVIDIA H200``."""
    index: int | None = None
    """NVML's index of a whole GPU."""
    is_instance: bool = False
    """Whether it is a MIG instance."""
    numa_node: int | None = None
    """Of a whole GPU's PCI slot; None if unknown."""
    memory_total_bytes: int | None = None
    """Memory of the GPU or MIG instance; None if unknown."""


@dataclass(frozen=True)
class DeviceRequest:
    """What the supervisor of a run asks of the pool."""

    kind: str
    """``cuda``, ``replay`` or ``cpu``."""
    candidates: tuple[tuple[str, str], ...]
    """Name and label of each device that will do, in the order of preference."""
    count: int
    """GPUs: one a rank. CPUs: one for each thread of every rank, at most all."""
    oversubscribe: bool
    cpus_per_rank: int
    """``OMP_NUM_THREADS``, or the usable CPUs shared equally between the ranks."""

    @property
    def device_type(self) -> str:
        """On what the ranks compute: ``cuda`` or ``cpu``."""
        return "cuda" if self.kind == "cuda" else "cpu"


def request_devices(config: ExperimentConfig) -> DeviceRequest:
    """Return what a run asks for on this machine."""
    if config.cpus is not None:
        _refuse_unusable_cpus(config.cpus)
    cpus = _usable(config)
    cpus_per_rank = threads_of_a_rank(config)
    count = config.gpus
    broken = ""
    if config.device == "replay":
        candidates, kind = _replayed_gpus(), "replay"
    else:
        candidates = []
        if config.device != "cpu":
            candidates, broken = _usable_gpus(config.device)
        kind = "cuda" if candidates else "cpu"
    if candidates:
        chosen = _choose(config, candidates, broken)
    elif config.devices is not None:
        message = f"devices={config.devices}: no GPU found. Remove devices."
        raise DeviceError(message)
    else:
        chosen = _cpus(config, cpus)
        # A run that holds a CPU has it to itself: every thread of a rank needs one.
        count = max(config.gpus, min(cpus, config.gpus * cpus_per_rank))
    _refuse_to_wait_for_itself(kind, chosen, count, config)
    return DeviceRequest(
        kind,
        tuple((candidate.name, candidate.label) for candidate in chosen),
        count,
        config.oversubscribe,
        cpus_per_rank,
    )


def visible_gpus(device: str) -> list[Candidate]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves; empty without any.

    Of a GPU that is divided into MIG instances, its instances.
    """
    return _usable_gpus(device)[0]


def _usable_gpus(device: str) -> tuple[list[Candidate], str]:
    """Return the GPUs that a run may get, and what to say of those that are broken."""
    from nbkit.telemetry.nvml import open_nvml

    broken, setting = "", os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        gpus, broken = _candidates(open_nvml, setting)
        where = "NVML" if setting is None else f"CUDA_VISIBLE_DEVICES={setting!r}"
        reason = f"{where} lists none. Make a GPU visible, or set device='cpu'."
        if broken and not gpus:
            # A machine with GPUs is a GPU machine: never fall back in silence.
            what = f"device={device!r}, but no usable GPU: {broken}"
            message = f"{what}, or set device='cpu'."
            raise DeviceError(message)
    except NvmlUnavailableError as error:
        _refuse_unknown((), setting, {})
        gpus, reason = [], str(error)
        if device == "auto" and Path("/proc/driver/nvidia/version").exists():
            message = f"device='auto': {reason} Fix the GPUs, or set device='cpu'."
            raise DeviceError(message) from error
    if not gpus and device == "cuda":
        message = f"device='cuda', but no usable GPU: {reason}"
        raise DeviceError(message)
    return gpus, broken


def _replayed_gpus() -> list[Candidate]:
    setting = SourceSetting.from_environment()
    if setting.kind != "replay":
        message = (
            f"device='replay' requires a trace in {SOURCE_VARIABLE}. Set it, for "
            "example to replay:eight-gpus, or set device='cpu'."
        )
        raise DeviceError(message)
    try:
        return _candidates(setting.open, None)[0]
    except NvmlUnavailableError as error:
        message = f"device='replay': {error}"
        raise DeviceError(message) from error


def _candidates(
    open_source: Callable[[], GpuSource], setting: str | None
) -> tuple[list[Candidate], str]:
    """Return the devices of a source that a setting leaves, and which are broken."""
    source = open_source()
    try:
        gpus = source.devices()
        divided = {str(gpu.uuid) for gpu in gpus if gpu.mig_enabled}
        samples = source.read(divided) if divided else ()
    finally:
        source.close()
    instances = {
        str(gpu.uuid): [
            Candidate(
                mig.uuid,
                f"GPU {gpu.index} MIG {n}",
                mig.name,
                is_instance=True,
                memory_total_bytes=mig.memory_total_bytes,
            )
            for n, mig in enumerate(gpu.mig_instances or ())
        ]
        for gpu in samples
    }
    parents = _parents(instances)
    _refuse_unknown(gpus, setting, parents)
    broken = _broken(visible_devices(gpus, setting, parents), instances)
    return visible_candidates(gpus, instances, setting), broken


def _broken(
    gpus: Sequence[GpuDevice], instances: Mapping[str, Sequence[Candidate]]
) -> str:
    """Return which GPUs no run can use, why, and what to do; empty without any."""
    lost = [_read_error(gpu) for gpu in gpus if gpu.error]
    empty = [
        f"GPU {gpu.index} is in MIG mode and has no instance"
        for gpu in gpus
        if gpu.mig_enabled and not gpu.error and not instances.get(str(gpu.uuid))
    ]
    kinds = ((lost, RESET), (empty, _DIVIDE))
    return "; ".join(f"{' and '.join(who)}: {what}" for who, what in kinds if who)


def _refuse_unknown(
    gpus: Sequence[GpuDevice], setting: str | None, parents: Mapping[str, str]
) -> None:
    """Raise if CUDA_VISIBLE_DEVICES names a GPU that is not there.

    CUDA would ignore it and all that follow: fewer GPUs, or none, in silence.
    """
    entry = unknown_entry(gpus, setting, parents)
    if entry is None:
        return
    present = "GPU 0" if len(gpus) == 1 else f"GPUs 0 to {len(gpus) - 1}"
    what = f"{entry!r} is not a GPU of this host, which has {present} (nvidia-smi -L)"
    what += "".join(f"; {_read_error(gpu)}" for gpu in gpus if gpu.error)
    if not gpus:
        what = f"{entry!r} is not a number or UUID: CUDA ignores it and later entries"
    message = (
        f"CUDA_VISIBLE_DEVICES={setting!r}: {what}. Correct or unset it (in a "
        "notebook: os.environ.pop('CUDA_VISIBLE_DEVICES'))."
    )
    raise DeviceError(message)


def _read_error(gpu: GpuDevice) -> str:
    return f"GPU {gpu.index} cannot be read ({gpu.error})"


def _parents(instances: Mapping[str, Sequence[Candidate]]) -> dict[str, str]:
    """Return the UUID of the GPU that contains an instance, by the instance's."""
    return {mig.name: gpu for gpu, migs in instances.items() for mig in migs}


def visible_candidates(
    gpus: Sequence[GpuDevice],
    instances: dict[str, list[Candidate]],
    setting: str | None,
) -> list[Candidate]:
    """Return the devices that CUDA_VISIBLE_DEVICES leaves, in its order.

    MIG instances are given by the UUID of the GPU that contains them.
    """
    devices: list[Candidate] = []
    for gpu in visible_devices(gpus, setting, _parents(instances)):
        uuid = str(gpu.uuid)
        if gpu.error or gpu.uuid is None:
            continue
        if gpu.mig_enabled:
            migs = instances.get(uuid, [])
            kept = visible_instances([mig.name for mig in migs], setting)
            devices += [mig for mig in migs if mig.name in kept]
        else:
            device = Candidate(
                uuid,
                f"GPU {gpu.index}",
                gpu.name,
                gpu.index,
                numa_node=gpu.numa_node,
                memory_total_bytes=gpu.memory_total_bytes,
            )
            devices.append(device)
    return devices


def _choose(
    config: ExperimentConfig, gpus: Sequence[Candidate], broken: str = ""
) -> list[Candidate]:
    """Return the GPUs that will do."""
    if config.devices is not None:
        names = config.devices
        named = [_named(name, gpus, broken) for name in names][: config.gpus]
        if len(set(named)) < len(named):
            message = (
                f"devices={config.devices} lists a GPU twice. List each GPU once; "
                "several ranks share it with oversubscribe=True."
            )
            raise DeviceError(message)
        if config.gpus > 1:
            _refuse_instances(config, named)
        return named
    usable = gpus
    if config.gpus > 1:
        usable = [gpu for gpu in gpus if not gpu.is_instance]
    if len(usable) < config.gpus and not (config.oversubscribe and usable):
        visible = plural(len(usable), "visible GPU")
        message = f"gpus={config.gpus} exceeds the {visible}"
        if len(usable) < len(gpus):
            message += f"; MIG instances ({len(gpus) - len(usable)}) need gpus=1"
        message += f"; {broken}" if broken else ""
        message += f". Use gpus={max(len(usable), 1)}"
        message += " or oversubscribe=True." if usable else "."
        raise DeviceError(message)
    return list(usable)


def _refuse_instances(config: ExperimentConfig, named: Sequence[Candidate]) -> None:
    """Raise if ranks would have to meet over MIG instances, which NCCL cannot connect.

    Source: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/ (limitations)
    """
    instances = [gpu.name for gpu in named if gpu.is_instance]
    if instances:
        message = (
            f"devices={config.devices}, gpus={config.gpus}: a run on several devices "
            f"cannot use MIG instances ({', '.join(instances)}). Use gpus=1, or GPUs "
            "that are not in MIG mode."
        )
        raise DeviceError(message)


def _named(name: int | str, gpus: Sequence[Candidate], broken: str) -> Candidate:
    for gpu in gpus:
        if name in (gpu.index, gpu.name) or str(name) == str(gpu.index):
            return gpu
    labels = ", ".join(f"{gpu.label.removeprefix('GPU ')} ({gpu.name})" for gpu in gpus)
    message = f"devices: {name!r} is not a visible GPU. Visible: {labels}"
    message += f"; {broken}." if broken else "."
    raise DeviceError(message)


def _cpus(config: ExperimentConfig, cpus: int) -> list[Candidate]:
    """Return the CPUs on which this process may run."""
    if config.gpus > cpus and not config.oversubscribe:
        message = (
            f"gpus={config.gpus} exceeds the {plural(cpus, 'usable CPU')} (affinity, "
            "quota, cpus); without GPUs, each rank requires a CPU. Use "
            f"gpus={cpus} or oversubscribe=True."
        )
        raise DeviceError(message)
    numbers = sorted(config.cpus or os.sched_getaffinity(0))
    if RUN_ID_VARIABLE not in os.environ:  # else its own run holds them
        # Under a quota, runs share as many CPUs as it allows. Users of a host, who each
        # have a quota, should not wait for each other.
        first = os.getuid() * cpus % len(numbers)
        numbers = [*numbers[first:], *numbers[:first]][:cpus]
    return [Candidate(f"cpu-{number}", f"CPU {number}") for number in numbers]


def _refuse_unusable_cpus(cpus: Sequence[int]) -> None:
    usable = os.sched_getaffinity(0)
    if not usable.issuperset(cpus):
        message = (
            f"cpus={tuple(cpus)}: this process may only use CPUs "
            f"{', '.join(map(str, sorted(usable)))}. Use only these."
        )
        raise DeviceError(message)


def threads_of_a_rank(config: ExperimentConfig) -> int:
    """Return how many threads a rank has: what the user set, or its share of CPUs."""
    setting = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    num_threads = int(setting) if setting.isdecimal() else 0
    return num_threads or max(1, _usable(config) // config.gpus)


def _usable(config: ExperimentConfig) -> int:
    cpus = max(1, int(usable_cpus()))
    return cpus if config.cpus is None else min(cpus, len(config.cpus))


def _refuse_to_wait_for_itself(
    kind: str, chosen: Sequence[Candidate], count: int, config: ExperimentConfig
) -> None:
    """Raise if a rank launches what could only start once its own run has ended."""
    own = os.environ.get(RUN_ID_VARIABLE)
    if own is None or config.oversubscribe:
        return
    mine = {name for name, runs in leases(kind).items() if own in runs}
    other_devices = [device for device in chosen if device.name not in mine]
    if len(other_devices) < count:
        what, how = ("CPUs", "cpus=") if kind == "cpu" else ("GPUs", "gpus=, devices=")
        message = (
            f"this run needs {count} of {len(chosen)} {what}, but run {own}, which "
            f"launches it, leaves only {len(other_devices)} (deadlock). Use fewer or "
            f"other {what} ({how}), or oversubscribe=True."
        )
        raise DeviceError(message)


def whole_gpus(gpus: Sequence[Candidate]) -> int:
    """Return on how many devices one run can be: all GPUs, or one MIG instance."""
    whole = sum(not gpu.is_instance for gpu in gpus)
    return whole or min(len(gpus), 1)
