"""Tables of the storage report: epochs, supply against demand, places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from nbkit import statistics
from nbkit.plural import plural
from nbkit.questions.storage.demand import UTILIZATION_NEEDED, Demand, Supply
from nbkit.questions.storage.epochs import EpochRow
from nbkit.questions.storage.places import DataSource, Place
from nbkit.reports.arm_tables import each_run, held_together
from nbkit.reports.columns import Column, number, rate, ratio, spread, table
from nbkit.reports.parts import Table
from nbkit.review.claim_checks import cache_evidence, times_in_words
from nbkit.statistics import MINIMUM_RUNS, NoiseFloor, Ratio, Summary
from nbkit.statistics import quantities as wording


def utilization_text(share: Summary) -> str:
    """Return an accelerator utilization and its 95% CI as text."""
    middle = wording.percent(share.median)
    if share.ci_low is None or share.ci_high is None:
        return middle
    # An interval of logarithms may reach beyond 1.
    high = min(share.ci_high, 1.0)
    return f"{middle} [{share.ci_low * 100:.1f}, {high * 100:.1f}]"


_EPOCHS = (
    Column("arm", "arm"),
    Column("page cache at start", "cache"),
    *rate(
        *("images/s, first epoch", "95% CI (n)"),
        *("first", "first_images_per_second"),
        n="n",
    ),
    *rate("later epochs", "95% CI", "later", "later_images_per_second"),
    number("AU, first epoch", "first_utilization", utilization_text),
    number("AU, later", "later_utilization", utilization_text),
    Column("verdict", "verdict"),
    Column("data wait", "data_wait_share", wording.percent),
)


def epochs_table(
    rows: Sequence[EpochRow],
    sources: Sequence[DataSource],
    *,
    is_cpu: bool,
) -> Table:
    """Return images/s and utilization in the first and in later epochs."""
    sizes = {source.name: source.bytes for source in sources}

    def arrived(row: EpochRow) -> str | None:
        size = row.arrived_bytes
        if size is None:
            return None
        return f"{wording.size(size)} ({size / sizes[row.source]:.2f}x)"

    return table(
        f"Measured throughput by epoch{' (CPU smoke test)' if is_cpu else ''}",
        (
            *_EPOCHS,
            Column("bytes read", arrived),
            number(None, "arrived_bytes"),
            Column(None, "n", csv="runs"),
        ),
        rows,
        [
            "Only the first epoch of a cold run tests the storage; later epochs may "
            "be read from the page cache.",
            "AU: accelerator utilization without the first step (MLPerf Storage); "
            f"target {UTILIZATION_NEEDED:.0%}; a verdict requires n={MINIMUM_RUNS}.",
            "An emulated accelerator does not compute; each step waits for the step "
            "time derived from a published rate.",
            "Bytes read: by all processes of the host, counted at disks or network "
            "cards; unknown for RDMA, 9p and FUSE.",
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
    )


class _Compared(NamedTuple):
    arm: str
    first: Ratio | None
    later: Ratio | None


def comparison_table(rows: Sequence[EpochRow], control: str | None) -> Table | None:
    """Return ratios of data formats and places to the first; None without another."""
    loads = [row for row in rows if row.stage == "load" and row.first_runs]
    if len(loads) < 2:
        return None
    base, *compared = loads
    floors, epochs = noise_floors(rows, control), ("first_runs", "later_runs")
    compare = {
        (row.arm, name): partial(
            statistics.ratio, ours, theirs, noise_floor=floors.get(name)
        )
        for row in compared
        for name in epochs
        if (ours := getattr(row, name)) and (theirs := getattr(base, name))
    }
    # Verdicts of one table hold together, those of the control's twin aside.
    twins = {key: compare.pop(key) for key in [*compare] if key[0] == control}
    ratios = dict(zip(compare, statistics.holm([*compare.values()]), strict=True))
    together = held_together([*ratios.values()])
    ratios |= {key: twin() for key, twin in twins.items()}
    floor_sentences = [floor.sentence for floor in floors.values()] or [
        "No A/A control: run-to-run noise is unknown."
    ]
    return table(
        f"Images/s against {base.arm}",
        (
            Column("arm", "arm"),
            *ratio("first epoch", "first"),
            *ratio("later epochs", "later"),
        ),
        [
            _Compared(row.arm, *(ratios.get((row.arm, name)) for name in epochs))
            for row in compared
        ],
        [*floor_sentences, *together],
    )


def noise_floors(
    rows: Sequence[EpochRow], control: str | None
) -> dict[str, NoiseFloor]:
    """Return the noise floors of the first and of later epochs."""
    # It is the first arm once more.
    alike = [row for row in rows if row.stage == rows[0].stage and row.first_runs]
    twin = next((row for row in alike[1:] if row.arm == control), None)
    return {
        name: statistics.noise_floor(
            getattr(alike[0], name), getattr(twin, name), name=alike[0].arm
        )
        for name in ("first_runs", "later_runs")
        if twin is not None and getattr(alike[0], name) and getattr(twin, name)
    }


_SUPPLY = (
    Column("place", "place"),
    Column("measured", "what"),
    Column("images/s", "images_per_second.median", wording.rate, "images_per_second"),
    Column("range", "images_per_second", spread(wording.rate)),
    Column("n", "images_per_second.n"),
    Column("GB/s", "bytes_per_second.median", wording.gigabytes, "bytes_per_second"),
)


def supply_table(
    supplies: Sequence[Supply],
    demand: Demand,
    sources: Sequence[DataSource],
    notes: Sequence[str],
) -> Table:
    """Return the throughput of every place relative to the demand of GPUs."""
    required = demand.images_per_second
    sizes = (
        f"{source.name} {source.bytes_per_image / 1e3:,.0f} kB per image, "
        f"{required * source.bytes_per_image / 1e9:.3g} GB/s"
        for source in sources
    )
    part = Column(
        "vs. demand",
        lambda supply: supply.images_per_second.median / required,
        "{:.2f}x".format,
    )
    return table(
        "Throughput and demand",
        (*_SUPPLY, part),
        supplies,
        [
            "Images/s of file reads and GB/s of loaders are calculated from the mean "
            "image size.",
            f"Demand (published): {demand.gpus} x {demand.gpu_name} at "
            f"{wording.rate(required)} images/s ({'; '.join(sizes)}). "
            f"Source: {demand.source}.",
            *notes,
        ],
    )


class _Stored(NamedTuple):
    source: DataSource
    storage: Mapping[str, Any]
    times_memory: float | None
    test: str | None


_PLACES = (
    Column("data", "source.name"),
    Column(
        *("images", "source"),
        lambda source: f"{source.images:,} images in {plural(source.files, 'file')}",
    ),
    Column("size", "source.bytes", wording.size),
    Column("size / memory", "times_memory", times_in_words),
    Column("test", "test"),
    *(
        Column(title, lambda row, key=key: row.storage.get(key))
        for title, key in (
            *(("file system", "file_system"), ("device or server", "source")),
            *(("model", "device_model"), ("mount options", "options")),
        )
    ),
)


def places_table(places: Sequence[Place], memory_bytes: int | None) -> Table:
    """Return locations and sizes of the data, and the result of the cache test."""
    rows = [
        _Stored(
            source,
            place.storage,
            source.bytes / memory_bytes if memory_bytes else None,
            name_of_test(source, memory_bytes),
        )
        for place in places
        for source in place.sources
    ]
    note = (
        "MLPerf Storage requires a dataset of at least 5x the memory of all hosts; a "
        "smaller dataset may be read from the page cache (cache test)."
    )
    return table("Data location", _PLACES, rows, [note])


def name_of_test(source: DataSource, memory_bytes: int | None) -> str | None:
    """Return ``storage test`` or ``cache test``; None if memory is unknown."""
    if not memory_bytes:
        return None
    evidence = cache_evidence(source.bytes, memory_bytes, 1)
    return "storage test" if evidence is None else "cache test"
