"""The notes of a scaling plan, before anything starts."""

from __future__ import annotations

from collections.abc import Sequence

from nbkit.config import ExperimentConfig
from nbkit.plural import plural
from nbkit.statistics.quantities import size_label
from nbkit.studies.devices import Devices


def arm_name(precision: str, nodes: int, size: int, *, is_cpu: bool) -> str:
    """Return what an arm is called, such as ``fp16, 2 x 8 GPUs``."""
    what = "process" if is_cpu else "GPU"
    plural = "" if size == 1 else "es" if is_cpu else "s"
    return f"{precision}, {size_label(nodes * size, nodes)} {what}{plural}"


def notes(
    devices: Devices,
    requested: tuple[int, int],
    configs: Sequence[ExperimentConfig],
    repeats: int,
    *,
    why_cpus: str,
) -> tuple[str, ...]:
    """Return what is measured, what is missing first; the conditions are the last.

    Parameters
    ----------
    requested
        Nodes, and GPUs of each.
    why_cpus
        Why CPU processes are used; only read if they are.
    """
    labels = (size_label(config.world_size, config.nnodes) for config in configs)
    sizes = list(dict.fromkeys(labels))
    largest = configs[-1]
    if devices.is_cpu:
        lines = _on_cpus(devices, sizes, largest, why_cpus)
    else:
        lines = _on_gpus(devices, requested, sizes, largest)
    return (*lines, *_of_slurm(configs), _conditions(configs[0], repeats))


def _on_cpus(
    devices: Devices, sizes: Sequence[str], largest: ExperimentConfig, why: str
) -> list[str]:
    shared = " Two processes share one CPU." if devices.count < largest.gpus else ""
    plural = "" if sizes == ["1"] else "es"
    return [
        f"CPU smoke test: {why}. Each process uses 1 thread; this is not a GPU "
        f"benchmark.{shared}",
        f"Sizes: {', '.join(sizes)} process{plural}{_nodes_times(largest)}.",
    ]


def _on_gpus(
    devices: Devices,
    requested: tuple[int, int],
    sizes: Sequence[str],
    largest: ExperimentConfig,
) -> list[str]:
    where = f" on {devices.count} x {devices.name}" if devices.name else ""
    what = "GPU" if sizes == ["1"] else "GPUs"
    measured = f"Sizes: {', '.join(sizes)} {what}{_nodes_times(largest)}{where}."
    nodes, gpus_per_node = requested
    if largest.world_size >= nodes * gpus_per_node:
        return [measured]
    several = "" if nodes == 1 else f" ({nodes} nodes x {gpus_per_node})"
    beyond = (
        "Results for more GPUs are projections."
        if len(sizes) > 1
        else "A projection to more GPUs needs two measured sizes."
    )
    return [
        f"Requested: {plural(nodes * gpus_per_node, 'GPU')}{several}; available: "
        f"{sizes[-1]}. {beyond}",
        measured,
    ]


def _nodes_times(largest: ExperimentConfig) -> str:
    return "" if largest.nnodes == 1 else " (nodes x processes per node)"


def _of_slurm(configs: Sequence[ExperimentConfig]) -> list[str]:
    """Return what a queue does to the numbers."""
    slurm = configs[0].slurm
    if configs[0].engine != "slurm":
        return []
    where = f" in partition {slurm.slurm_partition}" if slurm.slurm_partition else ""
    shared = (
        " Other jobs may run on its nodes; exclude them with -p slurm "
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
        f"{size}x{size}, {config.memory_format}, {_source(config)}; "
        f"{config.length}; n={repeats} per size, interleaved."
    )


def _source(config: ExperimentConfig) -> str:
    if config.data == "synthetic":
        return "synthetic data"
    return f"images of {config.data} ({config.loader} loader)"
