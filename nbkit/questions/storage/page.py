"""What the storage notebook shows: reads, epochs, supply against demand, report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from nbkit.questions.storage.chart import supply_chart
from nbkit.questions.storage.demand import Demand, Supply, limit_sentence, scaled
from nbkit.questions.storage.epochs import EpochRow, epoch_row
from nbkit.questions.storage.places import Place
from nbkit.questions.storage.places import Source as DataSource
from nbkit.questions.storage.reads import Reads
from nbkit.questions.storage.tables import (
    comparison_table,
    epochs_table,
    name_of_test,
    noise_floors,
    places_table,
    supply_table,
)
from nbkit.questions.storage.timeline import epoch_moments, over_time
from nbkit.readspeed.places import Counter, counter_of
from nbkit.references.rows import lookup
from nbkit.reports.arms import finished_arms
from nbkit.reports.conditions import conditions, describe_images, where_and_when
from nbkit.reports.doubts import lead_of
from nbkit.reports.finite_arms import not_finite
from nbkit.reports.parts import Lead
from nbkit.reports.renderer import Figure, Note, Report, Source, Table
from nbkit.review.usable_arms import NOTHING_COMPARED, usable_arms
from nbkit.statistics import MINIMUM_RUNS
from nbkit.statistics import quantities as wording
from nbkit.store.nonfinite import NonFinite
from nbkit.studies.parameters import next_command
from nbkit.studies.study import Study

_QUESTION = "Is the storage fast enough for the GPUs, cold and warm?"
_MLPERF = Source(
    "MLCommons, MLPerf Storage: submission guidelines",
    "https://github.com/mlcommons/storage/blob/main/Submission_guidelines.md",
)
_FADVISE = Source(
    "Linux manual: posix_fadvise(2), POSIX_FADV_DONTNEED",
    "https://man7.org/linux/man-pages/man2/posix_fadvise.2.html",
)
_MINCORE = Source(
    "Linux manual: mincore(2)",
    "https://man7.org/linux/man-pages/man2/mincore.2.html",
)
_FIO = Source("fio: the flexible I/O tester", "https://fio.readthedocs.io/")


@dataclass(frozen=True)
class StorageResult:
    """What a study says about storage."""

    rows: Sequence[EpochRow]
    """One for each arm, in the plan's order."""
    reads: Reads
    places: tuple[Place, ...]
    plan: Mapping[str, Any]
    """`StoragePlan.facts`."""
    repeats: int
    conditions: Mapping[str, Any]
    """What fixes the meaning of the numbers."""
    control: str | None = None
    """The arm that is the first one measured once more."""
    not_finite: Mapping[str, NonFinite] = field(default_factory=dict)
    """By arm, where a training stopped being finite."""
    epoch_moments: Sequence[Mapping[str, Any]] = ()
    """What arrived over time in a run of each arm."""
    lead: Lead | None = None
    """What takes the answer back, above the headline."""

    @property
    def is_cpu(self) -> bool:
        """Whether CPU processes were used instead of GPUs."""
        return self.plan["is_cpu"]

    @property
    def table(self) -> Table:
        """The headline: every arm, its first epoch apart from the later ones."""
        sources = [source for place in self.places for source in place.sources]
        made = epochs_table(self.rows, sources, is_cpu=self.is_cpu)
        return replace(made, lead=self.lead)

    @property
    def comparison(self) -> Table | Note:
        """Files against packs, and place against place: the loader alone."""
        return comparison_table(self.rows, self.control)

    @cached_property
    def demand(self) -> Demand | None:
        """What the emulated GPUs ask for; None without one."""
        emulated = self.plan["emulated"]
        if emulated is None:
            return None
        return Demand(
            gpu_name=emulated["gpu_name"],
            gpus=self.plan["gpus"],
            images_per_second=emulated["images_per_second"] * self.plan["gpus"],
            source=emulated["source"],
        )

    @cached_property
    def supplies(self) -> list[Supply]:
        """What every place gives: reads from the storage, then images."""
        sources = {place.name: place.sources[0] for place in self.places}
        found = []
        for place, speed in self.reads.found:
            if speed.cache != "cold" or speed.coldness.state == "not proven":
                continue
            size = sources[place].bytes_per_image
            found.append(
                Supply(
                    place,
                    f"{speed.pattern} reads, {speed.coldness.name}",
                    "read",
                    scaled(speed.bytes_per_second, 1 / size),
                    size,
                    decides=speed.pattern == "random",
                )
            )
        for row in self.rows:
            # The control's twin is the first arm once more, and would count twice.
            if row.stage != "load" or row.arm == self.control:
                continue
            size = self._sources[row.source].bytes_per_image
            of_epochs = (
                (f"loader, first epoch, {row.cache}", row.first, row.is_cold),
                ("loader, later epochs", row.later, False),
            )
            found += [
                Supply(row.source, what, "loader", rate, size, decides)
                for what, rate, decides in of_epochs
                if rate is not None
            ]
        return found

    @property
    def _sources(self) -> dict[str, DataSource]:
        """Every data set by its name."""
        return {one.name: one for place in self.places for one in place.sources}

    @property
    def supply(self) -> Table | Note:
        """What every place gives, as a part of what is asked for."""
        return supply_table(
            self.supplies,
            self.demand,
            list(self._sources.values()),
            [*self._limits, *self._emulations],
        )

    @property
    def _limits(self) -> list[str]:
        """Which part of the way is below the demand, place by place."""
        if self.demand is None:
            return []
        return [
            f"{place.name}: {limit_sentence(self.demand, self._of(place))}"
            for place in self.places
        ]

    def _of(self, place: Place) -> list[Supply]:
        names = {place.name, *(source.name for source in place.sources)}
        return [one for one in self.supplies if one.place in names]

    @property
    def _emulations(self) -> list[str]:
        """What MLPerf Storage assumes of such a GPU, where it does."""
        if self.demand is None:
            return []
        rows = lookup(gpu_name=self.demand.gpu_name, phase="emulation")
        return [
            f"MLPerf Storage assumes {wording.rate(row.images_per_second)} images/s of "
            f"an emulated {row.gpu_name} ({row.source})."
            for row in rows
        ]

    @property
    def where(self) -> Table:
        """Where the data are, and whether they are enough."""
        return places_table(self.places, self.plan["memory_bytes"])

    @cached_property
    def figure(self) -> Figure | Note:
        """The answer as a picture."""
        if not self.supplies:
            return Note(["Nothing was measured that could be drawn."])
        title = "What storage and loader give"
        counts = [row.n for row in self.rows]
        runs = f"{max(counts)} run{'' if max(counts) == 1 else 's'} an arm"
        subtitle = f"medians; bars: lowest to highest of repeats or runs ({runs})"
        if self.is_cpu:
            subtitle = f"CPU, functional; {subtitle}"
        chart = supply_chart(self.supplies, self.demand, title=title, subtitle=subtitle)
        return Figure(title, chart)

    @cached_property
    def over_time(self) -> list[Figure]:
        """Throughput, reads and their size over time, of reads and of epochs."""
        return over_time(self.reads, self.epoch_moments)

    @property
    def _counted(self) -> list[EpochRow]:
        """The rows of the arms that may stand for the answer."""
        usable = usable_arms([row.arm for row in self.rows], self.not_finite)
        return [row for row in self.rows if row.arm in usable]

    @property
    def answer(self) -> str:
        """One sentence, computed from the data."""
        text = self._emulated_answer() or self._loader_answer()
        return f"CPU, functional: {text}" if self.is_cpu else text

    def _test_name(self, row: EpochRow) -> str:
        """Return ``cache test: `` where a row's data are too small for another."""
        name = name_of_test(self._sources[row.source], self.plan["memory_bytes"])
        return "cache test: " if name == "cache test" else ""

    def _emulated_answer(self) -> str | None:
        rows = [row for row in self._counted if row.first_utilization is not None]
        if not rows or self.demand is None:
            return None
        best = max(rows, key=_first_utilization)
        found = best.first_utilization
        assert found is not None
        place = next(
            place
            for place in self.places
            if best.source in {source.name for source in place.sources}
        )
        demand = self.demand
        size = self._sources[best.source].bytes_per_image
        runs = f"{found.n} run{'' if found.n == 1 else 's'}"
        return (
            f"{self._test_name(best)}{best.source} keeps {demand.gpus} emulated "
            f"{demand.gpu_name} busy {wording.percent(found.median)} of the first "
            f"epoch ({best.cache}; {runs}, {best.verdict}; 90 % are required, 100 % "
            f"take {demand.images_per_second * size / 1e9:.3g} GB/s). "
            f"{limit_sentence(demand, self._of(place))}"
        )

    def _loader_answer(self) -> str:
        rows = [row for row in self._counted if row.first is not None]
        if not rows and self.not_finite:
            return NOTHING_COMPARED
        if not rows:
            return "No epoch has steps after its warm-up, so there is no result."
        best = max(rows, key=lambda row: row.first.median if row.first else 0.0)
        later = f", later ones {wording.rate(best.later.median)}" if best.later else ""
        first = wording.rate(best.first.median if best.first else None)
        return (
            f"{self._test_name(best)}{best.arm} has {first} images/s in its first "
            f"epoch ({best.cache}){later}; no GPU's demand was compared."
        )

    def report(self) -> Report:
        """Return everything in one report."""
        supply, figure = self.supply, self.figure
        parts = (self.table, supply, self.comparison, self.reads.table, self.where)
        return Report(
            title=_QUESTION,
            answer=self.answer,
            notes=self.plan["notes"],
            tables=[part for part in parts if isinstance(part, Table)],
            figures=[
                *([figure] if isinstance(figure, Figure) else []),
                *self.over_time,
            ],
            method=[
                *self._method,
                *describe_images(self.conditions),
                where_and_when(self.conditions),
            ],
            sources=[_MLPERF, _FADVISE, _MINCORE, _FIO, *self._demand_source],
            result={
                "schema": 1,
                "quantity": "images_per_second",
                "origin": "measured",
                "functional_only": self.is_cpu,
                "conditions": dict(self.conditions),
                "rows": [row.to_dict() for row in self.rows],
                "supplies": [
                    {**asdict(one), "bytes_per_second": asdict(one.bytes_per_second)}
                    for one in self.supplies
                ],
                "demand": None if self.demand is None else asdict(self.demand),
                "emulated": self.plan["emulated"],
                **self.reads.facts,
                "places": [asdict(place) for place in self.places],
                "memory_bytes": self.plan["memory_bytes"],
            },
            next_step=self._next_step,
            controls=[*noise_floors(self.rows, self.control).values()],
        )

    @property
    def _method(self) -> list[str]:
        order = (
            "every arm once"
            if self.repeats == 1
            else f"{self.repeats} process starts of every arm, the arms forward, then "
            "backward, and so on"
        )
        return [
            f"Order: {order}. Before each start the files of its data are dropped from "
            "the page cache (posix_fadvise), and mincore must show that no page is "
            "left, or the study ends; names and sizes of files stay in memory."
            if self.plan["cache"] == "cold"
            else f"Order: {order}. Before each start the data are read once.",
            "Intervals: Student's t on logarithms of one number a run.",
        ]

    @property
    def _demand_source(self) -> list[Source]:
        emulated = self.plan["emulated"]
        return [] if emulated is None else [Source(emulated["title"], emulated["url"])]

    @property
    def _next_step(self) -> str:
        chosen = dict(self.plan.get("chosen", {}))
        if self.repeats < MINIMUM_RUNS:
            chosen["repeats"] = MINIMUM_RUNS
        return next_command("storage", chosen, is_cpu=self.is_cpu)


def result(study: Study) -> StorageResult:
    """Return what a study says, from the store alone.

    Raises
    ------
    NotEnoughDataError
        If no run of an arm has finished.
    """
    finished, facts = finished_arms(study), study.plan
    first, twin = study.control or ("", "")
    names = {**facts["stage_of"], twin: facts["stage_of"].get(first, ())}
    places = tuple(Place.from_dict(one) for one in facts["places"])
    counters: dict[str, Counter | None] = {
        source.name: counter_of(place.storage)
        for place in places
        for source in place.sources
    }
    sizes = {
        source.name: source.bytes_per_image
        for place in places
        for source in place.sources
    }
    runs = [run for many in finished.values() for run in many]
    rows = [
        epoch_row(
            arm,
            many,
            stage=names[arm][0],
            source=names[arm][1],
            bytes_per_image=sizes[names[arm][1]],
            counter=counters[names[arm][1]],
        )
        for arm, many in finished.items()
    ]
    return StorageResult(
        rows=rows,
        reads=Reads.of(facts),
        places=places,
        plan=facts,
        repeats=study.repeats,
        conditions={**conditions(runs), "study_id": study.study_id},
        control=twin or None,
        not_finite=not_finite(study),
        epoch_moments=epoch_moments(
            [(arm, many[0]) for arm, many in finished.items()],
            {arm: counters[names[arm][1]] for arm in finished},
        ),
        lead=partial(lead_of, study, [*noise_floors(rows, twin or None).values()]),
    )


def report(study: Study) -> Report:
    """Return the report of a study, from the store alone.

    Raises
    ------
    NotEnoughDataError
        If no run of an arm has finished.
    """
    return result(study).report()


def _first_utilization(row: EpochRow) -> float:
    return 0.0 if row.first_utilization is None else row.first_utilization.median
