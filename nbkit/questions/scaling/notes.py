"""The notes of a scaling plan, before anything starts."""

from __future__ import annotations

from collections.abc import Sequence

from nbkit.config import ExperimentConfig
from nbkit.statistics.quantities import size_label
from nbkit.studies.devices import Devices


def arm_name(precision: str, nodes: int, size: int, *, is_cpu: bool) -> str:
    """Return what an arm is called, such as ``fp16, 2 x 8 GPUs``."""
    what = "process" if is_cpu else "GPU"
    plural = "" if size == 1 else "es" if is_cpu else "s"
    return f"{precision}, {size_label(nodes * size, nodes)} {what}{plural}"


def notes(
    devices: Devices,
    asked: tuple[int, int],
    configs: Sequence[ExperimentConfig],
    repeats: int,
    *,
    cpu_was_asked: bool,
) -> tuple[str, ...]:
    """Return what is measured, what is missing first."""
    sizes = list(
        dict.fromkeys(size_label(one.world_size, one.nnodes) for one in configs)
    )
    largest = configs[-1]
    if devices.is_cpu:
        said = _on_cpus(devices, asked, sizes, largest, cpu_was_asked=cpu_was_asked)
    else:
        said = _on_gpus(devices, asked, sizes, largest)
    return (*said, *_of_slurm(configs), _conditions(configs[0], repeats))


def _on_cpus(
    devices: Devices,
    asked: tuple[int, int],
    sizes: Sequence[str],
    largest: ExperimentConfig,
    *,
    cpu_was_asked: bool,
) -> list[str]:
    there = "here" if largest.engine == "local" else "on these nodes"
    why = (
        "device=cpu was asked for"
        if cpu_was_asked
        else f"{_in_all(asked)} were asked for and there is none {there}"
    )
    shared = ""
    if devices.count < largest.gpus:
        shared = " Two of them share the one CPU."
    plural = "" if sizes == ["1"] else "es"
    return [
        f"CPU, functional: {why}, so CPU processes of one thread each are used "
        "instead. The numbers show that everything works and say nothing about a "
        f"GPU.{shared}",
        f"Sizes: {', '.join(sizes)} process{plural}{_nodes_times(largest)}. Nothing "
        "is projected from CPUs.",
    ]


def _on_gpus(
    devices: Devices,
    asked: tuple[int, int],
    sizes: Sequence[str],
    largest: ExperimentConfig,
) -> list[str]:
    where = f"on {devices.count} x {devices.name}" if devices.name else "of a queue"
    plural = "" if sizes == ["1"] else "s"
    measured = f"Sizes: {', '.join(sizes)} GPU{plural}{_nodes_times(largest)} {where}."
    if largest.world_size >= asked[0] * asked[1]:
        return [measured]
    beyond = (
        f"beyond {sizes[-1]} is a projection."
        if len(sizes) > 1
        else "a projection needs at least two measured sizes, so there is none."
    )
    return [
        f"{_in_all(asked)} were asked for and {devices.count} are here: what exists is "
        f"measured; {beyond}",
        measured,
    ]


def _in_all(asked: tuple[int, int]) -> str:
    nodes, each = asked
    several = "" if nodes == 1 else f" ({nodes} nodes x {each})"
    return f"{nodes * each} GPUs{several}"


def _nodes_times(largest: ExperimentConfig) -> str:
    return "" if largest.nnodes == 1 else " (nodes x processes of each)"


def _of_slurm(configs: Sequence[ExperimentConfig]) -> list[str]:
    """Return what a queue does to the numbers."""
    slurm = configs[0].slurm
    if configs[0].engine != "slurm":
        return []
    where = f" in partition {slurm.slurm_partition}" if slurm.slurm_partition else ""
    shared = (
        " Other jobs may run on the same nodes; -p slurm "
        "'{\"slurm_exclusive\": true}' keeps them out."
    )
    return [
        f"Slurm: each start is a separate job{where}, on the nodes that Slurm "
        f"chooses.{'' if slurm.slurm_exclusive else shared}"
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
