"""Tables of the storage report: epochs, supply against demand, places."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from nbkit import statistics
from nbkit.questions.storage.demand import UTILIZATION_NEEDED, Demand, Supply
from nbkit.questions.storage.epochs import EpochRow
from nbkit.questions.storage.places import Place, Source
from nbkit.reports.arm_tables import (
    each_run,
    held_together,
    rate_interval,
    ratio_interval,
)
from nbkit.reports.parts import Note, Table
from nbkit.review.claim_checks import cache_evidence, times_in_words
from nbkit.statistics import MINIMUM_RUNS, NoiseFloor, Ratio, Summary
from nbkit.statistics import quantities as wording


def epochs_table(
    rows: Sequence[EpochRow], sources: Sequence[Source], *, is_cpu: bool
) -> Table:
    """Return images/s and utilization, the first epoch apart from the later ones."""
    sizes = {source.name: source.bytes for source in sources}
    where = "with CPU processes (functional)" if is_cpu else "on GPUs"
    return Table(
        f"Measured {where}: epochs",
        [
            *("arm", "page cache before", "images/s, first epoch"),
            *("95 % interval (runs)", "later epochs", "95 % interval"),
            *("busy, first epoch", "busy, later", "verdict", "data wait"),
            "arrived",
        ],
        [_epoch_cells(row, sizes[row.source]) for row in rows],
        [
            "Images/s: images over time without warm-up, of each run; the median over "
            "runs. The first epoch of a cold run comes from the storage, the later "
            "ones from wherever the data fit.",
            "Busy: share of the time in which an emulated accelerator computes, its "
            "first step left out (MLPerf Storage); "
            f"{UTILIZATION_NEEDED * 100:.0f} % are required, and a verdict needs "
            f"{MINIMUM_RUNS} runs. The computation is a pause as long as a published "
            "rate implies: nothing is computed.",
            "Arrived: bytes that the disks of this host, or its network cards for a "
            "file server, delivered to all processes during a run, beside the size of "
            "the data. Once, with several epochs, means that the later ones came from "
            "memory; less than once, that the first one did. Unknown where neither of "
            "them counts the data, as with RDMA, 9p and FUSE.",
            *each_run(
                {
                    f"{row.arm}, {epochs}": runs
                    for row in rows
                    for epochs, runs in (
                        ("first epoch", row.first_runs),
                        ("later", row.later_runs),
                    )
                }
            ),
        ],
        {
            "first_images_per_second": [_median(row.first) for row in rows],
            "later_images_per_second": [_median(row.later) for row in rows],
            "first_utilization": [_median(row.first_utilization) for row in rows],
            "later_utilization": [_median(row.later_utilization) for row in rows],
            "arrived_bytes": [row.arrived_bytes for row in rows],
            "runs": [row.n for row in rows],
        },
    )


def _epoch_cells(row: EpochRow, size_bytes: int) -> list[str | None]:
    return [
        row.arm,
        row.cache,
        _rate(row.first),
        f"{_interval(row.first) or wording.UNKNOWN} ({row.n})",
        _rate(row.later),
        _interval(row.later),
        utilization_cell(row.first_utilization),
        utilization_cell(row.later_utilization),
        row.verdict,
        wording.percent(row.data_wait_share),
        None
        if row.arrived_bytes is None
        else f"{wording.size(row.arrived_bytes)} "
        f"({row.arrived_bytes / size_bytes:.2f} x)",
    ]


def utilization_cell(found: Summary | None) -> str | None:
    """Return a utilization with its interval as text."""
    if found is None:
        return None
    middle = wording.percent(found.median)
    if found.ci_low is None or found.ci_high is None:
        return middle
    # An interval of logarithms may reach beyond what can be.
    high = min(found.ci_high, 1.0)
    return f"{middle} ({found.ci_low * 100:.1f} to {high * 100:.1f})"


def comparison_table(rows: Sequence[EpochRow], control: str | None) -> Table | Note:
    """Return what files, packs and places give, each against the first."""
    loads = [row for row in rows if row.stage == "load" and row.first_runs]
    if len(loads) < 2:
        return Note(["One data set was loaded, so there is nothing to compare."])
    base, *others = loads
    floors = noise_floors(rows, control)
    compare = {
        (row.arm, name): partial(
            statistics.ratio, ours, theirs, noise_floor=floors.get(name)
        )
        for row in others
        for name in ("first_runs", "later_runs")
        if (ours := getattr(row, name)) and (theirs := getattr(base, name))
    }
    # Verdicts of one table hold together, those of the control's twin aside.
    twins = {key: compare.pop(key) for key in [*compare] if key[0] == control}
    ratios = dict(zip(compare, statistics.holm([*compare.values()]), strict=True))
    together = held_together([*ratios.values()])
    ratios |= {key: twin() for key, twin in twins.items()}
    said = [f"{floor.sentence}" for floor in floors.values()] or [
        "No control: no arm was measured twice, so these runs do not say how large a "
        "difference chance alone makes."
    ]
    return Table(
        f"Images/s against {base.arm}",
        [
            *("arm", "first epoch", "95 % interval", "verdict"),
            *("later epochs", "95 % interval", "verdict"),
        ],
        [
            [
                row.arm,
                *_against(ratios.get((row.arm, "first_runs"))),
                *_against(ratios.get((row.arm, "later_runs"))),
            ]
            for row in others
        ],
        [*said, *together],
    )


def noise_floors(
    rows: Sequence[EpochRow], control: str | None
) -> dict[str, NoiseFloor]:
    """Return what the control shows of the first epoch and of the later ones."""
    loads = [row for row in rows if row.stage == "load" and row.first_runs]
    twin = next((row for row in loads[1:] if row.arm == control), None)
    return {
        name: statistics.noise_floor(
            getattr(loads[0], name), getattr(twin, name), name=loads[0].arm
        )
        for name in ("first_runs", "later_runs")
        if twin is not None and getattr(loads[0], name) and getattr(twin, name)
    }


def _against(found: Ratio | None) -> list[str | None]:
    if found is None:
        return [None, None, None]
    ends = ratio_interval(found.ci_low, found.ci_high)
    return [f"{found.estimate:.3f}", ends, found.verdict]


def _median(found: Summary | None) -> float | None:
    return None if found is None else found.median


def _rate(found: Summary | None) -> str | None:
    return None if found is None else wording.rate(found.median)


def _interval(found: Summary | None) -> str | None:
    return None if found is None else rate_interval(found.ci_low, found.ci_high)


def supply_table(
    supplies: Sequence[Supply],
    demand: Demand | None,
    sources: Sequence[Source],
    notes: Sequence[str],
) -> Table | Note:
    """Return what every place gives, as a part of what is asked for."""
    if not supplies:
        return Note(["Nothing was measured that could be compared with a demand."])
    asked = None if demand is None else demand.images_per_second
    said = [
        "Images/s of reads are their bytes over the mean image of the data set, GB/s "
        "of a loader its images times that."
    ]
    if demand is not None:
        sizes = (
            f"{one.name} {one.bytes_per_image / 1e3:,.0f} kB each, "
            f"{demand.images_per_second * one.bytes_per_image / 1e9:.3g} GB/s"
            for one in sources
        )
        said.append(
            f"Demand, not measured: {demand.gpus} x {demand.gpu_name} at "
            f"{wording.rate(demand.images_per_second)} images/s ({'; '.join(sizes)}). "
            f"One GPU's rate: {demand.source}."
        )
    return Table(
        "Supply against demand",
        [
            *("place", "measured", "images/s", "lowest to highest", "n", "GB/s"),
            "of the demand",
        ],
        [
            [
                one.place,
                one.what,
                wording.rate(one.images_per_second.median),
                None
                if one.images_per_second.n == 1
                else f"{wording.rate(one.images_per_second.minimum)} to "
                f"{wording.rate(one.images_per_second.maximum)}",
                f"{one.images_per_second.n}",
                f"{one.bytes_per_second.median / 1e9:.3g}",
                None
                if asked is None
                else f"{one.images_per_second.median / asked:.2f} x",
            ]
            for one in supplies
        ],
        [*said, *notes],
        {
            "images_per_second": [one.images_per_second.median for one in supplies],
            "bytes_per_second": [one.bytes_per_second.median for one in supplies],
        },
    )


def places_table(places: Sequence[Place], memory_bytes: int | None) -> Table:
    """Return where the data are, and whether they are too small to test it."""
    rows = []
    for place in places:
        storage = place.storage
        for source in place.sources:
            times = source.bytes / memory_bytes if memory_bytes else None
            rows.append(
                [
                    source.name,
                    f"{source.images:,} images in {source.files:,} "
                    f"file{'s' * (source.files != 1)}",
                    wording.size(source.bytes),
                    None if times is None else times_in_words(times),
                    name_of_test(source, memory_bytes),
                    storage.get("file_system"),
                    storage.get("source"),
                    storage.get("device_model"),
                    storage.get("options"),
                ]
            )
    return Table(
        "Where the data are",
        [
            *("data", "of", "size", "times the memory", "so it is a"),
            *("file system", "device or server", "model", "mount options"),
        ],
        rows,
        [
            "MLPerf Storage asks for data of five times the memory of all hosts; "
            "below that, epochs can come from memory, and the test is one of caches."
        ],
    )


def name_of_test(source: Source, memory_bytes: int | None) -> str | None:
    """Return what a data set of this size can test; None if memory is unknown."""
    if not memory_bytes:
        return None
    evidence = cache_evidence(source.bytes, memory_bytes, 1)
    return "storage test" if evidence is None else "cache test"
