"""Report of a storage study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from nbkit.questions.storage.chart import supply_chart
from nbkit.questions.storage.demand import (
    UTILIZATION_NEEDED,
    Demand,
    Supply,
    limit_sentence,
    scaled,
)
from nbkit.questions.storage.epochs import EpochRow, epoch_row
from nbkit.questions.storage.places import DataSource as DataSource
from nbkit.questions.storage.places import Place
from nbkit.questions.storage.reads import Reads
from nbkit.questions.storage.tables import (
    comparison_table,
    epochs_table,
    name_of_test,
    noise_floors,
    places_table,
    supply_table,
    utilization_text,
)
from nbkit.questions.storage.timeline import epoch_moments, over_time
from nbkit.readspeed.places import counter_of
from nbkit.references.rows import lookup
from nbkit.reports.page import Evidence, page
from nbkit.reports.renderer import Figure, Report, Source, Table
from nbkit.review.usable_arms import NOTHING_COMPARED, usable_arms
from nbkit.statistics import NoiseFloor, Summary
from nbkit.statistics import quantities as wording
from nbkit.studies.study import Study

_QUESTION = "Storage: throughput and GPU demand, cold and warm cache"
_MAN = "https://man7.org/linux/man-pages/man2"
_SOURCES = (
    Source(
        "MLCommons, MLPerf Storage: submission guidelines",
        "https://github.com/mlcommons/storage/blob/main/Submission_guidelines.md",
    ),
    Source(
        "Linux manual: posix_fadvise(2), POSIX_FADV_DONTNEED",
        f"{_MAN}/posix_fadvise.2.html",
    ),
    Source("Linux manual: mincore(2)", f"{_MAN}/mincore.2.html"),
    Source("fio: the flexible I/O tester", "https://fio.readthedocs.io/"),
)


@dataclass(frozen=True)
class StorageResult:
    """What a study says about storage."""

    evidence: Evidence
    rows: Sequence[EpochRow]
    """One for each arm, in the plan's order."""
    reads: Reads
    places: tuple[Place, ...]
    epoch_moments: Sequence[Mapping[str, Any]] = ()
    """Bytes read over time in a run of each arm."""

    @property
    def _controls(self) -> list[NoiseFloor]:
        return [*noise_floors(self.rows, self.evidence.control).values()]

    @cached_property
    def demand(self) -> Demand:
        """What the emulated GPUs ask for."""
        emulated, gpus = self.evidence.plan["emulated"], self.evidence.plan["gpus"]
        return Demand(
            gpu_name=emulated["gpu_name"],
            gpus=gpus,
            images_per_second=emulated["images_per_second"] * gpus,
            source=emulated["source"],
        )

    @cached_property
    def supplies(self) -> list[Supply]:
        """Throughput of every place: reads from the storage, then images."""
        sizes = {place.name: place.sources[0].bytes_per_image for place in self.places}
        reads = [
            Supply(
                place,
                f"{speed.pattern} reads, {speed.page_cache.name}",
                "read",
                scaled(speed.bytes_per_second, 1 / sizes[place]),
                sizes[place],
                decides=speed.pattern == "random",
            )
            for place, speed in self.reads.speeds
            if speed.cache == "cold" and speed.page_cache.state != "not proven"
        ]
        # The control's twin is the first arm once more, and would count twice.
        loads = [
            Supply(row.source, what, "loader", rate, size, decides)
            for row in self.rows
            if row.stage == "load" and row.arm != self.evidence.control
            for size in [self._sources[row.source].bytes_per_image]
            for what, rate, decides in (
                (f"loader, first epoch, {row.cache}", row.first, row.is_cold),
                ("loader, later epochs", row.later, False),
            )
            if rate is not None
        ]
        return [*reads, *loads]

    @cached_property
    def _sources(self) -> dict[str, DataSource]:
        """Every data set by its name."""
        return {
            source.name: source for place in self.places for source in place.sources
        }

    @property
    def supply(self) -> Table:
        """Throughput of every place relative to the demand."""
        demand = self.demand
        # With one place, the answer says it.
        places = self.places if len(self.places) > 1 else ()
        notes = [f"{place.name}: {self._limit(place)}" for place in places]
        notes += [
            f"MLPerf Storage emulates the {row.gpu_name} at "
            f"{wording.rate(row.images_per_second)} images/s ({row.source})."
            for row in lookup(gpu_name=demand.gpu_name, phase="emulation")
        ]
        return supply_table(self.supplies, demand, [*self._sources.values()], notes)

    def _limit(self, place: Place) -> str:
        """Return which part of the way is below the demand."""
        names = {place.name, *(source.name for source in place.sources)}
        supplies = [supply for supply in self.supplies if supply.place in names]
        return limit_sentence(self.demand, supplies)

    @property
    def figure(self) -> Figure:
        """The answer as a picture."""
        title = "Storage and data-loader throughput"
        n = max(row.n for row in self.rows)
        subtitle = f"median and range over read repeats and loader runs (loader n={n})"
        if self.evidence.is_cpu:
            subtitle = f"CPU smoke test; {subtitle}"
        chart = supply_chart(self.supplies, self.demand, title=title, subtitle=subtitle)
        return Figure(title, chart)

    @property
    def answer(self) -> str:
        """Utilization or throughput of the best arm, and the bottleneck."""
        arms = [row.arm for row in self.rows if row.arm != self.evidence.control]
        usable = usable_arms(arms, self.evidence.lost)
        rows = [row for row in self.rows if row.arm in usable]
        busy = [(row.first_utilization, row) for row in rows if row.first_utilization]
        if busy:
            share, row = max(busy, key=lambda pair: pair[0].median)
            return self._emulated_answer(share, row)
        loaded = [(row.first, row) for row in rows if row.first]
        if loaded:
            return self._loader_answer(*max(loaded, key=lambda pair: pair[0].median))
        if self.evidence.lost:
            return NOTHING_COMPARED
        return (
            "No result: the first epoch of every arm ended within the warm-up. Use "
            "more images."
        )

    def _test_name(self, row: EpochRow) -> str:
        """Return `` (cache test)`` where a row's data are too small for another."""
        memory_bytes = self.evidence.plan["memory_bytes"]
        name = name_of_test(self._sources[row.source], memory_bytes)
        return " (cache test)" if name == "cache test" else ""

    def _emulated_answer(self, share: Summary, row: EpochRow) -> str:
        source, demand = self._sources[row.source], self.demand
        place = next(place for place in self.places if source in place.sources)
        return (
            f"{source.name}{self._test_name(row)} reaches "
            f"{utilization_text(share)} accelerator utilization (target "
            f"{UTILIZATION_NEEDED:.0%}) with {demand.gpus} emulated {demand.gpu_name} "
            f"in the first epoch ({row.cache}; n={share.n}, {row.verdict}). "
            f"{self._limit(place)}"
        )

    def _loader_answer(self, first: Summary, row: EpochRow) -> str:
        later = f", {wording.rate(row.later.median)} later" if row.later else ""
        return (
            f"{row.arm}{self._test_name(row)} delivers {wording.rate(first.median)} "
            f"images/s in the first epoch ({row.cache}){later}. No GPU was emulated."
        )

    def report(self) -> Report:
        """Return everything in one report."""
        plan, emulated = self.evidence.plan, self.evidence.plan["emulated"]
        is_cpu, sources = self.evidence.is_cpu, [*self._sources.values()]
        compared = comparison_table(self.rows, self.evidence.control)
        return page(
            _QUESTION,
            self.evidence,
            self.answer,
            [
                epochs_table(self.rows, sources, is_cpu=is_cpu),
                *([self.supply] if self.supplies else []),
                *([compared] if compared else []),
                self.reads.table,
                places_table(self.places, plan["memory_bytes"]),
                *([self.figure] if self.supplies else []),
                *over_time(self.reads, self.epoch_moments),
            ],
            method=_method(plan["cache"]),
            sources=[*_SOURCES, Source(emulated["title"], emulated["url"])],
            numbers={
                "rows": [row.to_dict() for row in self.rows],
                "supplies": [
                    {
                        **asdict(supply),
                        "bytes_per_second": asdict(supply.bytes_per_second),
                    }
                    for supply in self.supplies
                ],
                "demand": asdict(self.demand),
                "emulated": emulated,
                **self.reads.facts,
                "places": [asdict(place) for place in self.places],
                "memory_bytes": plan["memory_bytes"],
            },
            controls=self._controls,
            answered_causes=("input",),
        )


def _method(cache: str) -> list[str]:
    return [
        "Cold start: posix_fadvise drops the data from the page cache before each run "
        "and mincore verifies it; file metadata stays cached."
        if cache == "cold"
        else "Warm start: the data are read once before each run.",
        "CI: computed with Student's t from the logarithms of the runs' rates.",
    ]


def result(study: Study) -> StorageResult:
    """Return the result of a study, read from the store.

    Raises
    ------
    NotEnoughDataError
        If no run of an arm has finished.
    """
    evidence = Evidence.of(study)
    facts, (first, twin) = evidence.plan, study.control or ("", "")
    names = {**facts["stage_of"], twin: facts["stage_of"].get(first, ())}
    places = tuple(map(Place.from_dict, facts["places"]))
    sources = {
        source.name: (source.bytes_per_image, counter_of(place.storage))
        for place in places
        for source in place.sources
    }
    rows, counters = [], {}
    for arm, runs in evidence.runs.items():
        stage, source = names[arm]
        size, counters[arm] = sources[source]
        rows.append(
            epoch_row(
                arm,
                runs,
                stage=stage,
                source=source,
                bytes_per_image=size,
                counter=counters[arm],
            )
        )
    moments = epoch_moments(
        [(arm, runs[0]) for arm, runs in evidence.runs.items()], counters
    )
    return StorageResult(evidence, rows, Reads.of(facts), places, moments)
