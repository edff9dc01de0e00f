"""Plan of the scaling notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nbkit import registry
from nbkit.config import AllReduceConfig, ExperimentConfig
from nbkit.config.fields import DATA_FAULT_FIELDS
from nbkit.datasets.enough import check_enough_images
from nbkit.errors import ConfigError, DeviceError
from nbkit.launch.submit import existing_data
from nbkit.plural import plural
from nbkit.questions.study_plan import Plan, PlanValues, below_one, images_in_words
from nbkit.statistics.quantities import size_label
from nbkit.studies.devices import Devices, find_devices, sweep_sizes
from nbkit.studies.parameters import Parameters

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


_SLURM = ("slurm_partition", "slurm_account", "timeout_min", "cpus_per_task")
"""Fields of `nbkit.config.SlurmConfig` that are parameters themselves; ``slurm`` has
the others."""

_CONFIG_FIELDS = (
    *("model", "batch_size_per_gpu", "image_size", "memory_format", "data", "loader"),
    *("steps", "warmup_steps", "seed", "engine"),
    *DATA_FAULT_FIELDS,
)


def plan(parameters: Parameters) -> Plan:
    """Return the plan for these parameters, without starting anything.

    Raises
    ------
    ConfigError
        If a parameter is invalid.
    DeviceError
        If devices are in use, or are missing and ``strict_gpus`` is set.
    """
    p = parameters
    slurm = _checked_slurm(p)
    devices = find_devices(p.device, p.engine, p.gpus, slurm=slurm, nnodes=p.nnodes)
    if p.strict_gpus:
        _require_gpus(devices, p.gpus)
    values = p.filled(_CPU_DEFAULTS if devices.is_cpu else _GPU_DEFAULTS)
    values |= {"data": existing_data(values["data"]), "slurm": slurm}
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
    return Plan(
        arms=arms,
        unrepeated=_allreduce(configs[-1], devices),
        prepared={
            "devices": {"count": devices.count, "name": devices.name},
            "requested": p.gpus * p.nnodes,
            "measured": configs[-1].world_size,
            "gpus_per_node": p.gpus,
        },
        repeats=p.repeats,
        first_arms=[next(iter(arms)), list(arms)[len(sizes) - 1]],
        # A device of the sweep is one CPU: a lone process must not use them all.
        environment={"OMP_NUM_THREADS": "1"} if devices.is_cpu else {},
        parameters=p,
        describe=describe,
    )


def describe(plan: PlanValues) -> list[str]:
    """Return what is measured, what is missing first; the conditions are the last."""
    configs = sorted(plan.arms.values(), key=lambda config: config.world_size)
    labels = (size_label(config.world_size, config.nnodes) for config in configs)
    sizes = list(dict.fromkeys(labels))
    on_devices = _on_cpus if plan.is_cpu else _on_gpus
    return [
        *on_devices(plan, sizes, configs[-1]),
        *_of_slurm(configs[0]),
        _conditions(configs[0], plan.repeats),
    ]


def arm_name(precision: str, nodes: int, size: int, *, is_cpu: bool) -> str:
    """Return the name of an arm, such as ``fp16, 2 x 8 GPUs``."""
    nouns = ("process", "processes") if is_cpu else ("GPU", "GPUs")
    return f"{precision}, {size_label(nodes * size, nodes)} {nouns[size > 1]}"


def _checked_slurm(p: Parameters) -> dict[str, Any]:
    """Return the fields of a run's ``slurm``; raise with all that cannot be used."""
    lines = below_one(p, "gpus", "nnodes", "repeats")
    if p.data == "":
        lines.append("data='' is empty. Use an image folder, or 'synthetic'.")
    named = {name: p[name] for name in _SLURM if p[name] is not None}
    fields: dict[str, Any] = p.slurm or {}
    lines += [
        f"{name}={named[name]!r} conflicts with {fields[name]!r} in slurm. Omit one."
        for name in named
        if name in fields
    ]
    if p.engine != "slurm":
        given = {**named, **({"slurm": fields} if fields else {})}
        lines += [
            f"{name}={value!r} requires engine='slurm', not {p.engine!r}. Add -p "
            f"engine slurm, or omit {name}."
            for name, value in given.items()
        ]
    if lines:
        raise ConfigError("\n".join(lines))
    return {**fields, **named}


def _require_gpus(devices: Devices, gpus: int) -> None:
    available = 0 if devices.is_cpu else devices.count
    if available < gpus:
        message = (
            f"gpus={gpus} with strict_gpus=True exceeds the available "
            f"{plural(available, 'GPU')}. "
            f"Use {f'gpus={available}' if available else 'a machine with GPUs'}, or "
            f"strict_gpus=False to measure {'fewer GPUs' if available else 'on CPUs'}."
        )
        raise DeviceError(message)


def _sizes(devices: Devices, gpus: int, nnodes: int) -> list[tuple[int, int]]:
    """Return what is measured, as nodes and processes of each: one node, then whole.

    On CPUs at least two: with one, nothing would be seen to work together.
    """
    gpus_per_node = min(gpus, max(devices.count, 2 if devices.is_cpu else 1))
    one_node = [(1, size) for size in sweep_sizes(gpus_per_node)]
    return one_node + [(count, gpus_per_node) for count in sweep_sizes(nnodes)[1:]]


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


def _on_cpus(
    plan: PlanValues, sizes: Sequence[str], largest: ExperimentConfig
) -> list[str]:
    usable_cpus = plan.facts["devices"]["count"]
    shared = " Two processes share one CPU." if usable_cpus < largest.gpus else ""
    processes = "process" if sizes == ["1"] else "processes"
    return [
        *plan.smoke_test(
            f"Each process uses 1 thread. This is not a GPU benchmark.{shared}"
        ),
        f"Sizes: {', '.join(sizes)} {processes}{_nodes_times(largest)}.",
    ]


def _on_gpus(
    plan: PlanValues, sizes: Sequence[str], largest: ExperimentConfig
) -> list[str]:
    devices, requested = plan.facts["devices"], plan.facts["requested"]
    where = f" on {devices['count']} x {devices['name']}" if devices["name"] else ""
    what = "GPU" if sizes == ["1"] else "GPUs"
    measured = f"Sizes: {', '.join(sizes)} {what}{_nodes_times(largest)}{where}."
    if largest.world_size >= requested:
        return [measured]
    nodes, gpus = plan.parameters["nnodes"], plan.parameters["gpus"]
    several = "" if nodes == 1 else f" ({nodes} nodes x {gpus})"
    beyond = (
        "Results for more GPUs are projections."
        if len(sizes) > 1
        else "A projection to more GPUs requires two measured sizes."
    )
    return [
        f"Requested: {plural(requested, 'GPU')}{several}; available: "
        f"{sizes[-1]}. {beyond}",
        measured,
    ]


def _nodes_times(largest: ExperimentConfig) -> str:
    return "" if largest.nnodes == 1 else " (nodes x processes per node)"


def _of_slurm(config: ExperimentConfig) -> list[str]:
    """Return what a queue does to the numbers."""
    slurm = config.slurm
    if config.engine != "slurm":
        return []
    where = f" in partition {slurm.slurm_partition}" if slurm.slurm_partition else ""
    shared = (
        " Other jobs may use the same nodes; reserve whole nodes with -p slurm "
        "'{\"slurm_exclusive\": true}'."
    )
    return [
        f"Slurm: each run is a separate job{where}."
        f"{'' if slurm.slurm_exclusive else shared}"
    ]


def _conditions(config: ExperimentConfig, repeats: int) -> str:
    """Return what all arms have in common."""
    size = config.image_size
    return (
        f"Conditions: {config.model}, batch {config.batch_size_per_gpu} per rank, "
        f"{size}x{size}, {config.memory_format}, {images_in_words(config)}; "
        f"{config.length}; n={repeats} per size, interleaved."
    )
