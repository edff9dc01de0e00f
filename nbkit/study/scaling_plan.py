"""What the scaling notebook will measure on this machine, decided before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from typing import Any, Self

from nbkit import registry
from nbkit.analysis.projection import DeviceType
from nbkit.config import AllReduceConfig, ExperimentConfig
from nbkit.errors import ConfigError, DeviceError
from nbkit.launch.devices import visible_gpus, whole_gpus
from nbkit.launch.start import existing_data
from nbkit.study.parameters import Parameters
from nbkit.study.report_parts import Note
from nbkit.study.study import Study
from nbkit.telemetry.cpus import usable_cpus

__all__ = ["Devices", "ScalingPlan", "find_devices", "plan", "sweep_sizes"]


_GPU_DEFAULTS: dict[str, Any] = {
    "model": "resnet50",
    "precision": ["fp16"],
    # The batch of the published PyTorch and Paddle tables, so that they compare.
    "batch_size_per_gpu": 256,
    "image_size": 224,
    "steps": 110,
    "warmup_steps": 10,
}
_CPU_DEFAULTS: dict[str, Any] = {
    # About a quarter of a second a step on one core.
    "model": "resnet18",
    "precision": ["fp32"],
    "batch_size_per_gpu": 16,
    "image_size": 64,
    "steps": 24,
    "warmup_steps": 4,
}
_CPU_ALLREDUCE = AllReduceConfig(bytes_max=2**24, iterations=5, warmup_iterations=1)


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
        """Whether CPU processes stand in for GPUs."""
        return self.device_type == "cpu"


@dataclass(frozen=True)
class ScalingPlan:
    """What will be measured; a notebook shows its notes."""

    arms: Mapping[str, ExperimentConfig]
    """Configuration by the name of its arm."""
    allreduce: ExperimentConfig | None
    """The bandwidth measurement; None where there is nothing to reduce."""
    devices: Devices
    asked: int
    """World size that was asked for."""
    measured: int
    """Largest world size that is measured."""
    gpus_per_node: int
    """Asked for of each node."""
    repeats: int
    environment: Mapping[str, str]
    """Environment variables that every run gets."""
    notes: tuple[str, ...]
    """What a reader has to know first."""
    chosen: Mapping[str, Any] = field(default_factory=dict)
    """Parameters that somebody set."""

    @property
    def once(self) -> dict[str, ExperimentConfig]:
        """What the study measures a single time, by name: the bandwidth."""
        if self.allreduce is None:
            return {}
        return {f"all-reduce, {self.measured} ranks": self.allreduce}

    @property
    def facts(self) -> dict[str, Any]:
        """What the study keeps of the plan beside arms and order, as JSON values."""
        return {
            "devices": asdict(self.devices),
            "asked": self.asked,
            "measured": self.measured,
            "gpus_per_node": self.gpus_per_node,
            "notes": list(self.notes),
            "chosen": dict(self.chosen),
        }

    @classmethod
    def of(cls, study: Study) -> Self:
        """Return the plan that a study was made from; this machine is not looked at."""
        facts, arms = study.plan, study.arms
        once = [arms.pop(name) for name in study.once]
        return cls(
            arms=arms,
            allreduce=once[0] if once else None,
            devices=Devices(**facts["devices"]),
            asked=facts["asked"],
            measured=facts["measured"],
            gpus_per_node=facts["gpus_per_node"],
            repeats=study.repeats,
            environment=study.environment,
            notes=tuple(facts["notes"]),
            chosen=facts["chosen"],
        )

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        note = Note(self.notes)
        return {"text/html": note.to_html(), "text/plain": note.to_text()}


def plan(parameters: Parameters) -> ScalingPlan:
    """Return what to measure for these parameters; nothing is started.

    Raises
    ------
    ConfigError
        If a parameter cannot be used; the text names every bad one.
    DeviceError
        If devices are missing and ``strict_gpus`` is set, or are in use.
    """
    p = parameters
    _check_counts(p)
    devices = find_devices(p.device, p.engine, p.gpus)
    if p.strict_gpus:
        _require_gpus(devices, p.gpus)
    defaults = _CPU_DEFAULTS if devices.is_cpu else _GPU_DEFAULTS
    values = _with_defaults(p, defaults)
    gpus = _measurable(devices, p.gpus)
    sizes = [(1, size) for size in sweep_sizes(gpus)]
    if gpus == p.gpus:
        sizes += [(nodes, gpus) for nodes in sweep_sizes(p.nnodes)[1:]]
    arms = {
        _arm_name(precision, nodes, size, devices): _config(
            values, precision, nodes, size, devices
        )
        for precision in values["precision"]
        for nodes, size in sizes
    }
    _check_largest(list(arms.values()))
    measured = max(config.world_size for config in arms.values())
    asked = p.gpus * p.nnodes
    return ScalingPlan(
        arms=arms,
        allreduce=_allreduce(sizes[-1], devices, p.engine),
        devices=devices,
        asked=asked,
        measured=measured,
        gpus_per_node=p.gpus,
        repeats=p.repeats,
        # A device of the sweep is one CPU: a lone process must not use them all.
        environment={"OMP_NUM_THREADS": "1"} if devices.is_cpu else {},
        chosen={n: value for n, value in p.items() if p.origins[n] != "default"},
        notes=(
            *_notes(devices, asked, [n * s for n, s in sizes], p.device == "cpu"),
            _conditions(next(iter(arms.values())), p.repeats),
        ),
    )


def _check_counts(p: Parameters) -> None:
    """Raise unless there is at least one of everything that is counted."""
    counts = {name: p[name] for name in ("gpus", "nnodes", "repeats")}
    lines = [
        f"{name}={value} is below 1; use 1 or more."
        for name, value in counts.items()
        if value < 1
    ]
    if p.data == "":
        lines.append("data='' names nothing; use a folder of images, or 'synthetic'.")
    if lines:
        raise ConfigError("\n".join(lines))


def sweep_sizes(largest: int) -> list[int]:
    """Return 1, 2, 4 ... and the largest: 6 gives 1, 2, 4, 6.

    Raises
    ------
    ConfigError
        If the largest is below 1.
    """
    if largest < 1:
        message = f"a sweep up to {largest} has no size; use 1 or more."
        raise ConfigError(message)
    powers = takewhile(lambda size: size < largest, (2**n for n in range(largest)))
    return [*powers, largest]


def find_devices(device: str, engine: str, gpus: int) -> Devices:
    """Return what a node of this engine has.

    Parameters
    ----------
    device
        ``auto``, ``cuda``, ``cpu`` or ``replay``.
    engine
        Only ``local`` nodes can be looked at; others are taken at their word.
    gpus
        What is asked of each node.
    """
    if device in ("cpu", "replay"):
        return Devices("cpu", int(usable_cpus()))
    if engine != "local":
        return Devices("cuda", gpus)
    found = visible_gpus(device)
    if not found:
        return Devices("cpu", int(usable_cpus()))
    names = {gpu.product for gpu in found if gpu.product}
    return Devices("cuda", whole_gpus(found), " and ".join(sorted(names)) or None)


def _require_gpus(devices: Devices, gpus: int) -> None:
    found = 0 if devices.is_cpu else devices.count
    if found < gpus:
        message = (
            f"gpus={gpus} with strict_gpus=True, but there are {found} GPUs here; use "
            f"{f'gpus={found}' if found else 'a machine with GPUs'}, or "
            "strict_gpus=False to measure what there is."
        )
        raise DeviceError(message)


def _measurable(devices: Devices, gpus: int) -> int:
    """Return how many processes of one node are measured.

    On CPUs at least two: with one, nothing would be seen to work together.
    """
    return min(gpus, max(devices.count, 2 if devices.is_cpu else 1))


def _with_defaults(p: Parameters, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters, those left open chosen for the device."""
    values: dict[str, Any] = {
        name: defaults.get(name) if value is None else value
        for name, value in p.items()
    }
    if p.warmup_steps is None:
        # A short run still has something to measure.
        values["warmup_steps"] = min(values["warmup_steps"], values["steps"] // 4)
    values["data"] = existing_data(values["data"])
    return values


_CONFIG_FIELDS = (
    "model",
    "batch_size_per_gpu",
    "image_size",
    "memory_format",
    "data",
    "loader",
    "unreadable_images",
    "steps",
    "warmup_steps",
    "seed",
    "engine",
)


def _config(
    values: Mapping[str, Any], precision: str, nodes: int, size: int, devices: Devices
) -> ExperimentConfig:
    # The configuration itself checks what a notebook's parameters say.
    given: dict[str, Any] = {name: values[name] for name in _CONFIG_FIELDS}
    given["precision"] = precision
    return ExperimentConfig(
        **given,
        name=f"scaling {_arm_name(precision, nodes, size, devices)}",
        gpus=size,
        nnodes=nodes,
        device=devices.device_type,
        oversubscribe=devices.is_cpu and size > devices.count,
        # Nobody looks at the curves of a hundred steps; writing them takes CPU time.
        tensorboard=False,
    )


def _allreduce(
    size: tuple[int, int], devices: Devices, engine: str
) -> ExperimentConfig | None:
    nodes, gpus = size
    if nodes * gpus == 1:
        return None
    return ExperimentConfig(
        task="allreduce",
        name="scaling all-reduce",
        gpus=gpus,
        nnodes=nodes,
        device=devices.device_type,
        engine=engine,
        oversubscribe=devices.is_cpu and gpus > devices.count,
        tensorboard=False,
        allreduce=_CPU_ALLREDUCE if devices.is_cpu else AllReduceConfig(),
    )


def _check_largest(configs: Sequence[ExperimentConfig]) -> None:
    """Ask the engine whether the largest arm fits, before the first one starts."""
    largest = max(configs, key=lambda config: config.world_size)
    registry.resolve("engines", largest.engine)().check(largest)


def _arm_name(precision: str, nodes: int, size: int, devices: Devices) -> str:
    what = "process" if devices.is_cpu else "GPU"
    plural = "" if size == 1 else "es" if devices.is_cpu else "s"
    across = "" if nodes == 1 else f"{nodes} x "
    return f"{precision}, {across}{size} {what}{plural}"


def _notes(
    devices: Devices, asked: int, sizes: Sequence[int], cpu_was_asked: bool
) -> list[str]:
    """Return what is measured, what is missing first."""
    listed = ", ".join(map(str, sizes))
    if devices.is_cpu:
        why = (
            "device=cpu was asked for"
            if cpu_was_asked
            else f"{asked} GPUs were asked for and there is none here"
        )
        shared = " Two of them share the one CPU." if devices.count < sizes[-1] else ""
        return [
            f"CPU, functional: {why}, so CPU processes of one thread each stand in for "
            "the GPUs. The numbers show that everything works and say nothing about a "
            f"GPU.{shared}",
            f"Sizes: {listed} processes. Nothing is projected from CPUs.",
        ]
    here = f"{devices.count} x {devices.name}" if devices.name else "nodes of a queue"
    measured = f"Sizes: {listed} GPUs on {here}."
    if sizes[-1] >= asked:
        return [measured]
    beyond = (
        f"beyond {sizes[-1]} is a projection."
        if len(sizes) > 1
        else "a projection needs at least two measured sizes, so there is none."
    )
    return [
        f"{asked} GPUs were asked for and {devices.count} are here: what exists is "
        f"measured; {beyond}",
        measured,
    ]


def _conditions(config: ExperimentConfig, repeats: int) -> str:
    """Return what all arms have in common."""
    starts = "1 process start" if repeats == 1 else f"{repeats} process starts"
    size = config.image_size
    return (
        f"Conditions: {config.model}, {config.batch_size_per_gpu} images of {size} x "
        f"{size} pixels per device and step, {config.memory_format}, "
        f"{_source(config)}; {starts} of each size in balanced order, "
        f"{config.steps} steps of which the first {config.warmup_steps} are warm-up."
    )


def _source(config: ExperimentConfig) -> str:
    if config.data == "synthetic":
        return "synthetic data"
    return f"images of {config.data} through the {config.loader} loader"
