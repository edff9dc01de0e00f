"""What the scaling notebook will measure, decided before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from nbkit import registry
from nbkit.config import AllReduceConfig, ExperimentConfig
from nbkit.config.fields import DATA_FAULT_FIELDS
from nbkit.datasets.enough import check_enough_images
from nbkit.errors import ConfigError, DeviceError
from nbkit.launch.submit import existing_data
from nbkit.plural import plural
from nbkit.questions.scaling.notes import arm_name, notes
from nbkit.questions.scaling.slurm import slurm_fields
from nbkit.questions.study_plan import Plan
from nbkit.studies.devices import Devices, find_devices, sweep_sizes, why_cpus
from nbkit.studies.parameters import Parameters
from nbkit.studies.study import Study

_GPU_DEFAULTS: dict[str, Any] = {
    "model": "resnet50",
    "precision": ["fp16"],
    # The batch of the published PyTorch and Paddle tables, so that they compare.
    "batch_size_per_gpu": 256,
    "image_size": 224,
    "steps": None,
    "warmup_steps": 10,
}
_CPU_DEFAULTS: dict[str, Any] = {
    # A fifth of a second a step on one core: starting a process takes longer.
    "model": "resnet18",
    "precision": ["fp32"],
    "batch_size_per_gpu": 16,
    "image_size": 32,
    "steps": 12,
    "warmup_steps": 2,
}
_CPU_ALLREDUCE = AllReduceConfig(bytes_max=2**24, iterations=5, warmup_iterations=1)


@dataclass(frozen=True, kw_only=True)
class ScalingPlan(Plan):
    """What will be measured; a notebook shows its notes."""

    devices: Devices
    asked: int
    """World size that was asked for."""
    measured: int
    """Largest world size that is measured."""
    gpus_per_node: int
    """Asked for of each node."""

    @property
    def nnodes(self) -> int:
        """Nodes that were asked for."""
        return self.asked // self.gpus_per_node

    @property
    def facts(self) -> dict[str, Any]:
        """What the study keeps of the plan beside arms and order, as JSON values."""
        return {
            "devices": asdict(self.devices),
            "asked": self.asked,
            "measured": self.measured,
            "gpus_per_node": self.gpus_per_node,
            **super().facts,
        }

    @classmethod
    def of(cls, study: Study) -> Self:
        """Return the plan that a study was made from; this machine is not looked at."""
        facts, arms = study.plan, study.arms
        chosen = facts["chosen"]
        return cls(
            unrepeated={name: arms.pop(name) for name in study.unrepeated},
            arms=arms,
            devices=Devices(**facts["devices"]),
            asked=facts["asked"],
            measured=facts["measured"],
            gpus_per_node=facts["gpus_per_node"],
            repeats=study.repeats,
            environment=study.environment,
            notes=tuple(facts["notes"]),
            first_arms=facts.get("first_arms", ()),
            parameters=Parameters(chosen, dict.fromkeys(chosen, "papermill")),
        )


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
    slurm = slurm_fields(p)
    devices = find_devices(p.device, p.engine, p.gpus, slurm=slurm, nnodes=p.nnodes)
    if p.strict_gpus:
        _require_gpus(devices, p.gpus)
    defaults = _CPU_DEFAULTS if devices.is_cpu else _GPU_DEFAULTS
    values = {**_with_defaults(p, defaults), "slurm": slurm}
    sizes = _sizes(devices, p.gpus, p.nnodes)
    arms = {
        arm_name(precision, nodes, size, is_cpu=devices.is_cpu): _config(
            values, precision, nodes, size, devices
        )
        for precision in values["precision"]
        for nodes, size in sizes
    }
    configs = sorted(arms.values(), key=lambda config: config.world_size)
    # The engine says whether the largest fits, before the smallest starts.
    registry.resolve("engines", p.engine)().check(configs[-1])
    check_enough_images(configs)
    return ScalingPlan(
        arms=arms,
        unrepeated=_allreduce(configs[-1], devices),
        devices=devices,
        asked=p.gpus * p.nnodes,
        measured=configs[-1].world_size,
        gpus_per_node=p.gpus,
        repeats=p.repeats,
        first_arms=[next(iter(arms)), list(arms)[len(sizes) - 1]],
        # A device of the sweep is one CPU: a lone process must not use them all.
        environment={"OMP_NUM_THREADS": "1"} if devices.is_cpu else {},
        parameters=p,
        notes=notes(
            devices,
            (p.nnodes, p.gpus),
            configs,
            p.repeats,
            why_cpus=why_cpus(p.device, p.engine),
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


def _require_gpus(devices: Devices, gpus: int) -> None:
    available = 0 if devices.is_cpu else devices.count
    if available < gpus:
        message = (
            f"gpus={gpus} with strict_gpus=True exceeds the available "
            f"{plural(available, 'GPU')}. "
            f"Use {f'gpus={available}' if available else 'a machine with GPUs'}, or "
            "strict_gpus=False to measure fewer."
        )
        raise DeviceError(message)


def _sizes(devices: Devices, gpus: int, nnodes: int) -> list[tuple[int, int]]:
    """Return what is measured, as nodes and processes of each: one node, then whole.

    On CPUs at least two: with one, nothing would be seen to work together.
    """
    gpus_per_node = min(gpus, max(devices.count, 2 if devices.is_cpu else 1))
    one_node = [(1, size) for size in sweep_sizes(gpus_per_node)]
    return one_node + [(count, gpus_per_node) for count in sweep_sizes(nnodes)[1:]]


def _with_defaults(p: Parameters, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters, those left open chosen for the device."""
    values: dict[str, Any] = {
        name: defaults.get(name) if value is None else value
        for name, value in p.items()
    }
    if p.warmup_steps is None and values["steps"] is not None:
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
    *DATA_FAULT_FIELDS,
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
    if values["slurm"]:
        given["slurm"] = values["slurm"]
    return ExperimentConfig(
        **given,
        name=f"scaling {arm_name(precision, nodes, size, is_cpu=devices.is_cpu)}",
        gpus=size,
        nnodes=nodes,
        device=devices.device_type,
        oversubscribe=devices.is_cpu and size > devices.count,
        # No one needs the curves of a hundred steps; writing them takes CPU time.
        tensorboard=False,
    )


def _allreduce(
    largest: ExperimentConfig, devices: Devices
) -> dict[str, ExperimentConfig]:
    """Return the bandwidth measurement; none where there is nothing to reduce."""
    if largest.world_size == 1:
        return {}
    config = ExperimentConfig(
        task="allreduce",
        name="scaling all-reduce",
        gpus=largest.gpus,
        nnodes=largest.nnodes,
        device=largest.device,
        engine=largest.engine,
        slurm=largest.slurm,
        oversubscribe=largest.oversubscribe,
        tensorboard=False,
        allreduce=_CPU_ALLREDUCE if devices.is_cpu else AllReduceConfig(),
    )
    return {f"all-reduce, {largest.world_size} ranks": config}
