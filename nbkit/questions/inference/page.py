"""Report of an inference study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from nbkit import statistics
from nbkit.config import ExperimentConfig
from nbkit.questions.inference.chart import latency_chart, throughput_chart
from nbkit.questions.inference.latency import (
    FormatAccuracy,
    Served,
    accuracy_in_words,
    computed_sentence,
)
from nbkit.questions.inference.literature import published_of
from nbkit.questions.inference.tables import (
    accuracy_table,
    formats_table,
    latency_table,
    published_table,
    speed_table,
)
from nbkit.references.rows import PublishedRow, lookup
from nbkit.reports.arm_rows import ArmRow
from nbkit.reports.arm_tables import each_run, held_together
from nbkit.reports.arms import Arms
from nbkit.reports.conditions import HOW_MEASURED, WELCH
from nbkit.reports.page import Evidence, page
from nbkit.reports.renderer import Figure, Note, Report, Source, Table
from nbkit.statistics import (
    ACCURACY_MARGIN,
    LatencyTiming,
    NoiseFloor,
    Ratio,
    Summary,
)

_QUESTION = "Inference latency, throughput and accuracy by number format"
_SOURCES = (
    WELCH,
    Source(
        "Dell EMC Ready Solutions for AI: Deep Learning with NVIDIA, architecture "
        "guide (2018), inference in FP32, FP16 and INT8"
    ),
    Source(
        "B. Jacob et al., Quantization and training of neural networks for efficient "
        "integer-arithmetic-only inference (2018)",
        "https://arxiv.org/abs/1712.05877",
    ),
    Source(
        "Q. McNemar, Note on the sampling error of the difference between correlated "
        "proportions or percentages, Psychometrika 12 (1947)",
        "https://doi.org/10.1007/BF02295996",
    ),
    Source(
        "D. G. Bonett and R. M. Price, Adjusted Wald confidence interval for a "
        "difference of binomial proportions based on paired data (2012)",
        "https://doi.org/10.3102/1076998611411915",
    ),
)
_COSTS_OF_A_CPU = (
    "Memory: peak RSS of the process so far, including loading, calibration, "
    "conversion and earlier batch sizes.",
)
_COSTS_OF_A_GPU = (
    "Memory: peak CUDA allocation at this batch size after warm-up, weights included.",
    "J/image: GPU energy over at least 5 s of back-to-back passes; unknown if other "
    "processes used the GPU.",
)


@dataclass(frozen=True)
class InferenceResult:
    """Results of a study of number formats at inference."""

    evidence: Evidence
    by_batch_size: Mapping[int, Arms]
    """The comparison of all formats at one batch size."""
    timings: Mapping[str, Sequence[Mapping[int, LatencyTiming]]]
    """Timings of every process start by format, each by batch size."""
    accuracies: Mapping[str, FormatAccuracy]
    """Accuracy by format; the control among them."""
    configs: Mapping[str, ExperimentConfig]
    workers: Mapping[str, Mapping[str, Any]]
    """``worker.json`` of the first process start, by format."""

    def among(self, comparisons: int) -> InferenceResult:
        """Return the result with verdicts corrected for this number of comparisons."""
        arms = self.by_batch_size.items()
        shared = {
            size: replace(arms_at_size, comparisons=comparisons)
            for size, arms_at_size in arms
        }
        return replace(self, by_batch_size=shared)

    @property
    def verdicts(self) -> list[Ratio]:
        """On every format at every batch size."""
        return [
            verdict for arms in self.by_batch_size.values() for verdict in arms.verdicts
        ]

    @property
    def _any(self) -> Arms:
        return next(iter(self.by_batch_size.values()))

    @property
    def baseline(self) -> str:
        """The format that the others are compared with."""
        return self._any.baseline

    @cached_property
    def served(self) -> list[Served]:
        """Every format at every batch size, formats in the plan's order."""
        return [
            self._served(row, size)
            for row_arm in self._any.runs
            for size, arms in self.by_batch_size.items()
            for row in [arms.row(row_arm)]
        ]

    def _served(self, row: ArmRow, size: int) -> Served:
        timings = [timing[size] for timing in self.timings[row.arm]]
        assert row.images_per_second is not None
        p50 = _over_runs([timing.p50_seconds for timing in timings])
        assert p50 is not None
        return Served(
            arm=row.arm,
            precision=self.configs[row.arm].precision,
            batch_size=size,
            passes=min(timing.passes for timing in timings),
            p50_seconds=p50,
            p95_seconds=_over_runs([timing.p95_seconds for timing in timings]),
            p99_seconds=_over_runs([timing.p99_seconds for timing in timings]),
            images_per_second=row.images_per_second,
            against=row.ratio,
            peak_memory_bytes=row.peak_memory_bytes,
            joules_per_image=row.joules_per_image,
            is_control=row.arm == self._any.control,
        )

    @property
    def table(self) -> Table:
        """The headline: every format at every batch size."""
        where, costs = "a GPU", _COSTS_OF_A_GPU
        if self.evidence.is_cpu:
            where, costs = "a CPU", _COSTS_OF_A_CPU
        controls = [
            f"Batch size {size}. {arms.control_sentence}"
            for size, arms in self.by_batch_size.items()
            if arms.control is not None
        ]
        largest = max(self.by_batch_size)
        needed = self.by_batch_size[largest].needed_sentence
        more = [f"Batch size {largest}. {needed}"] if needed else []
        ended = self._ended_by_time
        notes = [*controls, *more, self._how_rates, *ended, *costs]
        notes += held_together(self.verdicts)
        notes += each_run(
            {
                f"{arm}, batch size {size}": arms.rates(arm)
                for size, arms in self.by_batch_size.items()
                for arm in arms.runs
            }
        )
        return speed_table(self.served, self.baseline, where, notes)

    @property
    def controls(self) -> list[NoiseFloor]:
        """Noise floor from the A/A control at every batch size."""
        return [
            control for arms in self.by_batch_size.values() for control in arms.controls
        ]

    @property
    def _how_rates(self) -> str:
        [how, *_] = {
            timing.throughput
            for starts in self.timings.values()
            for start in starts
            for timing in start.values()
        }
        return f"Images per second: computed from {how}."

    @property
    def _ended_by_time(self) -> list[str]:
        """Return how many passes were timed where the time limit ended them."""
        plan = self.configs[self.baseline].inference
        all_starts = [start for starts in self.timings.values() for start in starts]
        sentences: list[str] = []
        for size in self.by_batch_size:
            counts = [start[size].passes for start in all_starts]
            few, many = min(counts), max(counts)
            if few < plan.batches:
                passes = f"{few:,}" if few == many else f"{few:,} to {many:,}"
                sentences.append(
                    f"Batch size {size}: {passes} of {plan.batches:,} timed passes per "
                    f"run (limit {plan.limit_seconds:g} s)."
                )
        return sentences

    @property
    def accuracy(self) -> Table | Note:
        """Accuracy of the formats, or why it is unknown."""
        accuracies = {
            arm: accuracy
            for arm, accuracy in self.accuracies.items()
            if arm != self._any.control
        }
        if all(accuracy.score is None for accuracy in accuracies.values()):
            return Note(
                [
                    "Accuracy is unknown without evaluation images. Set -p data to "
                    "a folder with train/ and val/."
                ]
            )
        margin = self.evidence.plan.get("accuracy_margin", ACCURACY_MARGIN)
        return accuracy_table(accuracies, self.baseline, margin)

    @property
    def _unavailable(self) -> dict[str, str]:
        return self.evidence.plan.get("unavailable", {})

    @cached_property
    def _beside(self) -> list[PublishedRow]:
        """Published results of this GPU, in the chart."""
        config = self.configs[self.baseline]
        if self.evidence.is_cpu or config.image_size != 224:
            return []
        gpu_name = self.evidence.conditions["device_name"]
        return [
            row
            for precision in dict.fromkeys(served.precision for served in self.served)
            for row in lookup(
                model=config.model,
                gpu_name=gpu_name,
                precision=precision,
                world_size=1,
                phase="infer",
            )
            if bool(row.compile) == config.compile
            and row.images_per_second
            and row.batch_size_per_gpu
        ]

    @cached_property
    def figures(self) -> list[Figure]:
        """Charts of throughput (the answer) and latency."""
        is_cpu = self.evidence.is_cpu
        throughput = throughput_chart(self.served, self._beside, is_cpu=is_cpu)
        latency = latency_chart(self.served, is_cpu=is_cpu)
        return [
            Figure("Inference throughput by batch size and number format", throughput),
            Figure("Inference latency by batch size and number format", latency),
        ]

    @property
    def answer(self) -> str:
        """One sentence, computed from the data."""
        return computed_sentence(
            self.served,
            self.accuracies,
            self.baseline,
            floors={
                size: arms.noise_floor
                for size, arms in self.by_batch_size.items()
                if arms.noise_floor is not None
            },
        )

    @property
    def untimed(self) -> str:
        """Accuracies: the part of the answer that does not depend on times."""
        own = (self.baseline, self._any.control)
        texts = "; ".join(
            f"{arm}: {words}"
            for arm, accuracy in self.accuracies.items()
            if arm not in own and (words := accuracy_in_words(accuracy, self.baseline))
        )
        return f"{texts}." if texts else ""

    def report(self) -> Report:
        """Return everything in one report."""
        config = self.configs[self.baseline]
        elsewhere = published_of(config.model, list(self.by_batch_size))
        weights = self.workers[self.baseline].get("weights")
        numbers = {arm: worker.get("numbers") for arm, worker in self.workers.items()}
        compiled = "compiled" if config.compile else "not compiled"
        return page(
            _QUESTION,
            self.evidence,
            self.answer,
            [
                self.table,
                latency_table(
                    [served for served in self.served if not served.is_control]
                ),
                self.accuracy,
                formats_table(
                    {
                        arm: facts or {}
                        for arm, facts in numbers.items()
                        if arm != self._any.control
                    },
                    weights or {},
                    self._unavailable,
                ),
                published_table(elsewhere, config.model),
                *self.figures,
            ],
            untimed=self.untimed,
            on_cpu="On a CPU",
            trains=False,
            method=[
                f"{self._how_rates} Tables show the median over process starts.",
                *HOW_MEASURED[1:],
                f"Timed images: random, {config.image_size}x{config.image_size}, "
                f"already on the device; {config.memory_format}, {compiled}.",
            ],
            sources=[*_SOURCES, *(Source(row.source, row.url) for row in elsewhere)],
            numbers={
                "served": [asdict(served) for served in self.served],
                "accuracy": {
                    arm: asdict(accuracy) for arm, accuracy in self.accuracies.items()
                },
                "numbers": numbers,
                "weights": weights,
                "unavailable": dict(self._unavailable),
                "noise_floors": {
                    str(size): arms.to_dict()["noise_floor"]
                    for size, arms in self.by_batch_size.items()
                },
                "published": [asdict(row) for row in self._beside],
            },
            controls=self.controls,
        )


def _over_runs(values: Sequence[float | None]) -> Summary | None:
    """Return what process starts show together; None if one does not know it."""
    known = statistics.all_known(values)
    return statistics.summarise(known) if known else None
