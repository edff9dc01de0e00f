"""Report of a study of input pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from nbkit import statistics
from nbkit.config import ExperimentConfig
from nbkit.questions.input_pipeline.chart import (
    devices_chart,
    pipeline_row,
    pipelines_chart,
)
from nbkit.questions.input_pipeline.idle_gpus import idle_sample_share
from nbkit.questions.input_pipeline.planning import BASELINE, arm_name
from nbkit.questions.input_pipeline.tables import (
    CHEXNET,
    GUIDE,
    AtSize,
    cores_table,
    ratio_words,
    setting_words,
    sizes_table,
    steps_table,
    tuning_table,
)
from nbkit.questions.input_pipeline.trials import Tuning
from nbkit.reports.arm_rows import arm_run
from nbkit.reports.arm_tables import each_run, held_together
from nbkit.reports.arms import ArmRow, Arms, require_runs
from nbkit.reports.conditions import HOW_MEASURED, WELCH
from nbkit.reports.page import Evidence, page
from nbkit.reports.renderer import Figure, Note, Report, Source, Table
from nbkit.review.usable_arms import NOTHING_COMPARED, usable_arms
from nbkit.statistics import Ratio, comparisons_at_once, median_of
from nbkit.statistics import quantities as wording
from nbkit.statistics.quantities import RATE_STATISTIC
from nbkit.studies.study import Study

_QUESTION = "Input pipeline: throughput and data wait by loader"
_NEW = "chexnet_new"


@dataclass(frozen=True)
class PipelineResult:
    """Results of a study of pipelines and loaders."""

    arms: Arms
    """At the largest number of devices."""
    configs: Mapping[str, ExperimentConfig]
    """By arm, at every size."""
    evidence: Evidence
    """Its runs, and where they stopped being finite, are of every size."""

    @property
    def plan(self) -> Mapping[str, Any]:
        """`PipelinePlan.facts`."""
        return self.evidence.plan

    def among(self, comparisons: int) -> PipelineResult:
        """Return the result with verdicts corrected for this number of comparisons."""
        return replace(self, arms=replace(self.arms, comparisons=comparisons))

    @property
    def verdicts(self) -> list[Ratio]:
        """On every arm, and on the new pipeline at every smaller number of devices."""
        smaller = [row.ratio for row in self.sizes if row.world_size < self._largest]
        return [*self.arms.verdicts, *(ratio for ratio in smaller if ratio is not None)]

    @property
    def is_emulated(self) -> bool:
        """Whether ranks emulated GPUs by sleeping."""
        return self.plan["emulated"] is not None

    @cached_property
    def tuning(self) -> Tuning | None:
        """Result of the tuner; None without tuning."""
        values = self.plan["tuning"]
        return None if values is None else Tuning.from_dict(values)

    @property
    def table(self) -> Table:
        """The headline: every arm at the largest number of devices."""
        where = "Measured input, emulated GPUs" if self.is_emulated else "On GPUs"
        arms = self.arms.runs
        more = {"GPU at 0%": {arm: wording.percent(self._idle(arm)) for arm in arms}}
        notes = [
            "GPU at 0%: share of samples with 0% GPU utilization, unknown for "
            "emulated GPUs."
        ]
        if self.is_emulated:
            more["AU"] = {arm: wording.percent(self._utilization(arm)) for arm in arms}
            notes.append(
                "AU (MLPerf Storage): share of time the emulated GPUs compute. Unlike "
                "data wait, it counts waiting for other ranks as idle time."
            )
        return self.arms.table(
            caption=f"{where}; ratios vs. {self.arms.baseline}",
            more=more,
            notes=notes,
        )

    @cached_property
    def sizes(self) -> list[AtSize]:
        """Both whole pipelines at every number of devices."""
        every = sorted({config.world_size for config in self.configs.values()})
        rows = []
        for size in every:
            old, new = (self._rates(name, size) for name in (BASELINE, _NEW))
            both = [arm_name(name, size) for name in (BASELINE, _NEW)]
            are_usable = usable_arms(both, self.evidence.lost) == both
            rows.append(
                AtSize(
                    size,
                    statistics.summarise(old) if old else None,
                    statistics.summarise(new) if new else None,
                    statistics.ratio(
                        new,
                        old,
                        a_name=_NEW,
                        b_name=BASELINE,
                        comparisons=self.arms.comparisons or 1,
                        noise_floor=self.arms.noise_floor,
                    )
                    if old and new and are_usable
                    else None,
                    self.demand(size),
                )
            )
        return rows

    @property
    def sizes_table(self) -> Table:
        """Throughput of both pipelines by number of devices."""
        arms = {
            arm_name(name, row.world_size): self._rates(name, row.world_size)
            for row in self.sizes
            for name in (BASELINE, _NEW)
        }
        notes = [*held_together(self.verdicts), *each_run(arms)]
        return sizes_table(self.sizes, self._device, notes)

    @property
    def cores_table(self) -> Table:
        """CPU cores that each arm needs to keep up with the devices."""
        demand = self.demand(self._largest)
        # The plan may have seen the cores of a login node.
        is_local = self.configs[self.arms.baseline].engine == "local"
        return cores_table(
            {row.arm: (demand, row.cpu_ms_per_image) for row in self._own_rows},
            self.plan["cores"] if is_local else self.evidence.conditions["usable_cpus"],
            trains=not self.is_emulated,
        )

    def demand(self, size: int) -> float | None:
        """Return the images/s that the devices would compute without data wait.

        For emulated devices, the published rate; for real ones, the rate over the time
        without data wait, from the run with the least data wait.
        """
        emulated = self.plan["emulated"]
        if emulated is not None:
            return size * emulated["images_per_second"]
        waits = [
            (run.summary.data_wait_share, run.summary.images_per_second)
            for arm, runs in self.evidence.runs.items()
            for run in runs
            if self.configs[arm].world_size == size
        ]
        known = [
            (wait, rate / (1 - wait))
            for wait, rate in waits
            if wait is not None and rate is not None and wait < 1
        ]
        return min(known)[1] if known else None

    @property
    def figures(self) -> list[Figure]:
        """Charts of the answer and of throughput by number of devices."""
        emulated = self.plan["emulated"]
        series = f"{emulated['gpu_name']}, published" if emulated else "these GPUs"
        legend = "Demand (emulated GPU)" if emulated else "Demand"
        asked = [
            {
                "series": series,
                "world_size": row.world_size,
                "images_per_second": row.demand,
            }
            for row in self.sizes
            if row.demand is not None
        ]
        size = self._largest
        rows = [
            pipeline_row(
                *(row.arm, self.configs[row.arm].loader, size),
                *(row.images_per_second, row.data_wait_share),
            )
            for row in self._own_rows
            if row.images_per_second is not None
        ]
        here = [row for row in asked if row["world_size"] == size]
        title = "Throughput by input pipeline"
        chart = pipelines_chart(rows, here, legend, title)
        over = f"Throughput by number of {self._device}"
        points = [
            pipeline_row(name, name, row.world_size, rate, None)
            for row in self.sizes
            for name, rate in ((BASELINE, row.old), (_NEW, row.new))
            if rate is not None
        ]
        by_size = devices_chart(points, asked, legend, over, self._device)
        return [Figure(title, chart), Figure(over, by_size)]

    @property
    def answer(self) -> str:
        """Best arm and demand, then the plain loader and the new pipeline."""
        size = self._largest
        where = f"{size} {'emulated ' if self.is_emulated else ''}"
        where += "GPU" if size == 1 else "GPUs"
        fastest = self._fastest
        if fastest is None:
            return NOTHING_COMPARED
        best = self._row("tuned") or fastest
        demand = self.demand(size)
        required = (
            "" if demand is None else f" (demand {wording.rate(demand)} images/s)"
        )
        parts = [f"{where}: {self._throughput(best)}{required}"]
        if fastest != best:
            parts.append(self._throughput(fastest))
        naive = self._row("naive")
        if naive is not None and naive not in (best, fastest):
            parts.append(self._throughput(naive))
        sentences = ["; ".join(parts)]
        new = self._row(_NEW)
        if new is not None and new.ratio is not None:
            sentences.append(ratio_words(new.ratio, self.arms.noise_floor))
        return " ".join(f"{sentence}." for sentence in sentences)

    def report(self) -> Report:
        """Return everything in one report."""
        emulated = self.plan["emulated"]
        # Emulated GPUs that were asked for need no others.
        is_cpu = self.is_emulated and "emulated_gpu" not in self.plan["chosen"]
        return page(
            _QUESTION,
            replace(self.evidence, is_cpu=is_cpu),
            self.answer,
            [
                Note([*filter(None, [self.arms.control_sentence])]),
                self.table,
                *([tuning_table(self.tuning)] if self.tuning else []),
                *(self.sizes_table, self.cores_table, steps_table()),
                *(self.arms.certainty, *self.figures),
            ],
            on_cpu="",
            method=HOW_MEASURED,
            sources=[
                *(WELCH, CHEXNET, GUIDE),
                *([Source(emulated["title"], emulated["url"])] if emulated else []),
            ],
            numbers={
                "statistic": RATE_STATISTIC,
                "emulated": emulated,
                **self.arms.to_dict(),
                "idle_sample_share": {arm: self._idle(arm) for arm in self.arms.runs},
                "sizes": [asdict(row) for row in self.sizes],
                "tuning": self.plan["tuning"],
            },
            controls=self.arms.controls,
            answered_causes=("input",),
        )

    @property
    def _largest(self) -> int:
        return int(self.plan["gpus"])

    @property
    def _device(self) -> str:
        return "emulated GPUs" if self.is_emulated else "GPUs"

    @property
    def _own_rows(self) -> list[ArmRow]:
        """Every arm but the control, whose rate is the noise floor's business."""
        return [row for row in self.arms.rows if row.arm != self.arms.control]

    @property
    def _fastest(self) -> ArmRow | None:
        """The fastest arm that counts; None where none does."""
        rates = [
            (row.images_per_second.median, row)
            for row in self._own_rows
            if row.images_per_second is not None and row.arm in self.arms.usable
        ]
        return max(rates, key=lambda rate: rate[0])[1] if rates else None

    def _row(self, name: str) -> ArmRow | None:
        """Return an arm at the largest size; None where there is none that counts."""
        arm = arm_name(name, self._largest)
        rows = (row for row in self.arms.rows if row.arm in self.arms.usable)
        return next((row for row in rows if row.arm == arm), None)

    def _rates(self, name: str, size: int) -> list[float]:
        runs = self.evidence.runs.get(arm_name(name, size), [])
        rates = [run.summary.images_per_second for run in runs]
        return [rate for rate in rates if rate is not None]

    def _idle(self, arm: str) -> float | None:
        return median_of(self.evidence.runs[arm], idle_sample_share)

    def _utilization(self, arm: str) -> float | None:
        seconds = self.plan["emulated"]["seconds"]
        return median_of(
            self.evidence.runs[arm],
            lambda run: statistics.accelerator_utilization(
                [line for line in run.metrics(None) if line["kind"] == "step"], seconds
            ),
        )

    def _words(self, arm: str) -> str:
        """Return an arm's name, with what the tuner chose."""
        name = arm.rpartition(",")[0]
        if name == "tuned" and self.tuning is not None:
            return f"tuned ({setting_words(self.tuning.chosen)})"
        return name

    def _throughput(self, row: ArmRow) -> str:
        wait = wording.percent(row.data_wait_share)
        rate = row.images_per_second and row.images_per_second.median
        return f"{self._words(row.arm)} {wording.rate(rate)} images/s, data wait {wait}"


def result(study: Study) -> PipelineResult:
    """Return the result of a study, read from the store.

    Raises
    ------
    NotEnoughDataError
        If the baseline has no finished run, or a run no measured step.
    """
    evidence, configs = Evidence.of(study), study.arms
    runs, baseline = evidence.runs, evidence.plan["baseline"]
    require_runs(study, baseline, runs)
    largest = {
        arm: [arm_run(run) for run in many]
        for arm, many in runs.items()
        if configs[arm].world_size == configs[baseline].world_size
    }
    arms = Arms(largest, baseline, evidence.control, evidence.lost)
    arms.require_rate()
    # The loader differs from arm to arm.
    facts = {n: value for n, value in evidence.conditions.items() if n != "loader"}
    result = PipelineResult(arms, configs, replace(evidence, conditions=facts))
    return result.among(
        comparisons_at_once(lambda shared: result.among(shared).verdicts)
    )
