"""Speedup and efficiency by number of devices.

Weak scaling: the batch per device is the same at every size. Every number is a median
over runs (separate process starts) of each run's images over time, and is given with
the number of runs and an interval. What was measured on CPU processes is called
"CPU smoke test" everywhere: it shows that the machinery works, nothing about GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from nbkit.questions.scaling.projection import ProjectedPoint
from nbkit.review.usable_arms import usable_arms
from nbkit.statistics import (
    Ratio,
    Summary,
    holm,
    interval_in_words,
    median_of,
    ratio,
    summarise,
)
from nbkit.statistics.quantities import device_label, percent, size_label
from nbkit.statistics.quantities import rate as rate_text
from nbkit.store.nonfinite import NonFinite
from nbkit.studies.devices import DeviceType


@dataclass(frozen=True)
class MeasuredRun:
    """One finished run, in the numbers that scaling needs. ``None`` is unknown."""

    arm: str
    """The compared arm, such as ``fp16`` or ``fp16 channels_first``."""
    world_size: int
    """Devices of all nodes together."""
    nnodes: int
    device_type: DeviceType
    images_per_second: float
    """Images / time of the measured steps, over all devices."""
    data_wait_share: float | None = None
    communication_share: float | None = None
    """Share of the step spent in communication not overlapped with computation."""
    peak_memory_bytes: float | None = None
    """Of the device that used most."""
    cpu_ms_per_image: float | None = None


@dataclass(frozen=True)
class ScalingRow:
    """Results of one arm at one world size."""

    arm: str
    world_size: int
    nnodes: int
    device_type: DeviceType
    images_per_second: Summary
    """Over runs, all devices together."""
    runs: tuple[float, ...]
    """Images/s of each run."""
    base_world_size: int
    """Smallest measured size of the arm, the base of the next fields."""
    speedup: float
    efficiency: float
    """Rate per device relative to the smallest size; 1 is linear scaling."""
    efficiency_low: float | None
    efficiency_high: float | None
    """Ends of the interval; ``None`` for the base and with a single run."""
    efficiency_bootstrap_low: float | None
    """Lower end by bootstrap over runs, a cross-check of ``efficiency_low``."""
    efficiency_bootstrap_high: float | None
    data_wait_share: float | None
    communication_share: float | None
    peak_memory_bytes: float | None
    cpu_ms_per_image: float | None
    node_efficiency: float | None = None
    """Rate per device relative to one whole node; ``None`` on one node, and if no
    single node with as many devices was measured."""
    node_efficiency_low: float | None = None
    """Lower end of the interval; ``None`` with a single run."""
    node_efficiency_high: float | None = None
    """Upper end of the interval; ``None`` with a single run."""
    base_nnodes: int = 1
    is_valid: bool = True
    """Whether the arm's trainings were finite at every size; otherwise, speedup and
    efficiency are omitted."""

    @property
    def label(self) -> str:
        """Short label of the size: ``8``, or ``2 x 8`` for several nodes."""
        return size_label(self.world_size, self.nnodes)

    @property
    def devices(self) -> str:
        """The size in words: ``8 GPUs``, or ``2 CPU processes``."""
        return device_label(self.device_type, self.world_size, self.nnodes)

    @property
    def images_per_second_per_device(self) -> float:
        """Images per second of one device."""
        return self.images_per_second.median / self.world_size


_Sizes = dict[str, dict[int, list[MeasuredRun]]]
"""Runs by arm and world size."""


def _by_size(runs: Iterable[MeasuredRun]) -> _Sizes:
    groups: _Sizes = {}
    for run in runs:
        groups.setdefault(run.arm, {}).setdefault(run.world_size, []).append(run)
    return groups


def scaling_table(
    runs: Iterable[MeasuredRun], diverged: Mapping[str, NonFinite] | None = None
) -> list[ScalingRow]:
    """Return one row for each arm and world size."""
    groups = _by_size(runs)
    usable = usable_arms(groups, diverged or {})
    return [
        replace(
            _row(sizes[size], sizes[min(sizes)], _one_node(sizes, size)),
            is_valid=arm in usable,
        )
        for arm, sizes in groups.items()
        for size in sorted(sizes)
    ]


def compare_arms(
    runs: Iterable[MeasuredRun], diverged: Mapping[str, NonFinite] | None = None
) -> list[Ratio]:
    """Return each arm's rate / the first arm's, at their largest common size."""
    groups = _by_size(runs)
    (first, base), *compared = groups.items()
    usable = usable_arms(groups, diverged or {}, (first,))
    compare = []
    for arm, sizes in compared:
        shared = set(sizes) & set(base)
        if shared and arm in usable:
            size = max(shared)
            run = sizes[size][0]
            where = device_label(run.device_type, size, run.nnodes)
            compare.append(
                partial(
                    ratio,
                    [run.images_per_second for run in sizes[size]],
                    [run.images_per_second for run in base[size]],
                    a_name=f"{arm} on {where}",
                    b_name=first,
                )
            )
    return holm(compare)


def _one_node(
    sizes: dict[int, list[MeasuredRun]], size: int
) -> list[MeasuredRun] | None:
    """Return the runs of one whole node, which those of several compare with."""
    nnodes = sizes[size][0].nnodes
    single = sizes.get(size // nnodes)
    return single if nnodes > 1 and single and single[0].nnodes == 1 else None


def _row(
    runs: Sequence[MeasuredRun],
    base: Sequence[MeasuredRun],
    one_node: Sequence[MeasuredRun] | None,
) -> ScalingRow:
    first = runs[0]
    base_size = base[0].world_size
    rates = [run.images_per_second for run in runs]
    against = ratio(rates, [run.images_per_second for run in base])
    # Efficiency is the ratio of the rates in units of what linear scaling would give.
    per_device = base_size / first.world_size
    interval, check = (None, None), (None, None)
    if runs is not base:
        interval = _scaled(against.ci_low, against.ci_high, per_device)
        check = _scaled(against.bootstrap_low, against.bootstrap_high, per_device)
    of_node: tuple[float | None, ...] = (None, None, None)
    if one_node is not None:
        nodes = ratio(rates, [run.images_per_second for run in one_node])
        ends = _scaled(nodes.ci_low, nodes.ci_high, 1 / first.nnodes)
        of_node = (nodes.estimate / first.nnodes, *ends)
    return ScalingRow(
        arm=first.arm,
        world_size=first.world_size,
        nnodes=first.nnodes,
        device_type=first.device_type,
        images_per_second=summarise(rates),
        runs=tuple(rates),
        base_world_size=base_size,
        base_nnodes=base[0].nnodes,
        speedup=against.estimate,
        efficiency=against.estimate * per_device,
        efficiency_low=interval[0],
        efficiency_high=interval[1],
        efficiency_bootstrap_low=check[0],
        efficiency_bootstrap_high=check[1],
        data_wait_share=median_of(runs, lambda run: run.data_wait_share),
        communication_share=median_of(runs, lambda run: run.communication_share),
        peak_memory_bytes=median_of(runs, lambda run: run.peak_memory_bytes),
        cpu_ms_per_image=median_of(runs, lambda run: run.cpu_ms_per_image),
        node_efficiency=of_node[0],
        node_efficiency_low=of_node[1],
        node_efficiency_high=of_node[2],
    )


def _scaled(
    low: float | None, high: float | None, factor: float
) -> tuple[float | None, float | None]:
    if low is None or high is None:
        return None, None
    return low * factor, high * factor


def points(rows: Sequence[ScalingRow], arm: str) -> list[ProjectedPoint]:
    """Return an arm's measured points as input of `project`."""
    return [
        ProjectedPoint(
            world_size=row.world_size,
            nnodes=row.nnodes,
            images_per_second=row.images_per_second.median,
            device_type=row.device_type,
            run_scatter=row.images_per_second.relative_scatter,
        )
        for row in rows
        if row.arm == arm
    ]


def computed_sentence(rows: Sequence[ScalingRow]) -> str:
    """Return the results of the table, one sentence per arm.

    Each arm is described at its largest size, the fastest first.
    """
    last = {row.arm: row for row in rows}  # sizes ascend within an arm
    fastest_first = sorted(
        last.values(), key=lambda row: row.images_per_second.median, reverse=True
    )
    return " ".join(f"{_clause(row)}." for row in fastest_first)


def _clause(row: ScalingRow) -> str:
    rate = row.images_per_second
    interval = _interval(rate.ci_low, rate.ci_high, rate_text)
    runs = f"(95% CI, n={rate.n})" if interval else f"(n={rate.n}, no CI)"
    text = f"{row.arm} on {row.devices}: {rate_text(rate.median)} images/s{interval}"
    if row.world_size == row.base_world_size:
        return f"{text}, the only size measured {runs}"
    base = device_label(row.device_type, row.base_world_size, row.base_nnodes)
    gpus_per_node = row.world_size // row.nnodes
    text += f", {row.speedup:.2f}x {base}, efficiency {percent(row.efficiency)}"
    text += _interval(row.efficiency_low, row.efficiency_high, percent)
    if row.node_efficiency is not None and gpus_per_node != row.base_world_size:
        node = _interval(row.node_efficiency_low, row.node_efficiency_high, percent)
        text += f", {percent(row.node_efficiency)}{node} relative to one node"
    return f"{text} {runs}"


def _interval(
    low: float | None,
    high: float | None,
    shown: Callable[[float], str],
) -> str:
    """Return an interval in brackets; nothing where there is none."""
    if low is None or high is None:
        return ""
    return f" {interval_in_words(low, high, shown)}"
