"""What the precision notebook shows: speed beside the answer, layout, bound, report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Literal

from nbkit.config import ExperimentConfig
from nbkit.errors import NotEnoughDataError
from nbkit.launch.run import Run
from nbkit.questions.precision.answers import (
    LOSS_TOLERANCE,
    ROUNDING,
    LossParity,
    check_loss_parity,
)
from nbkit.questions.precision.chart import arms_chart
from nbkit.questions.precision.layouts import (
    Format,
    LayoutEffect,
    layout_effects,
    layout_sentence,
    left_out_sentences,
    like_for_like,
)
from nbkit.questions.precision.sentence import (
    MeasuredArm,
    computed_sentence,
)
from nbkit.questions.precision.tables import (
    answers_table,
    bounds_table,
    caveat_notes,
    gradient_cell,
    layout_table,
    loss_cell,
    pairs_table,
)
from nbkit.references.measured import reference_sentence
from nbkit.references.rows import PublishedRow, published_pairs
from nbkit.reports.arm_tables import held_together
from nbkit.reports.arms import Arms, arms_of, finished_arms
from nbkit.reports.batch_norms import batch_norm_of, batch_norm_sentence
from nbkit.reports.conditions import (
    HOW_MEASURED,
    WELCH,
    conditions,
    describe_images,
    where_and_when,
)
from nbkit.reports.finite_arms import BaselineLost, baseline_lost
from nbkit.reports.renderer import Figure, Note, Report, Source, Table
from nbkit.statistics import MINIMUM_RUNS, Ratio, comparisons_at_once
from nbkit.studies.parameters import SIZES_OF_A_CPU, papermill_command
from nbkit.studies.study import Study

_IMAGES_PER_SECOND = {"off": (885, 4_947), 10: (956, 4_963)}
"""Of fp32 and fp16 by ``cudnn_benchmark``: ResNet-50, batch 256, channels_last, 224 px,
one start each on an H100."""

_QUESTION = (
    "Mixed precision, TF32, channels_last, torch.compile: speedup and loss parity"
)
_LOSS_SCALING = Source(
    "P. Micikevicius et al., Mixed precision training (2018)",
    "https://arxiv.org/abs/1710.03740",
)
_LAYOUTS = Source(
    "NVIDIA, Convolutional layers user's guide: NCHW and NHWC",
    "https://docs.nvidia.com/deeplearning/performance/dl-performance-convolutional/",
)


@dataclass(frozen=True)
class PrecisionResult:
    """What a study says about formats, layouts and compilation."""

    arms: Arms
    configs: Mapping[str, ExperimentConfig]
    """By arm; the control among them."""
    answers: Mapping[str, LossParity]
    """By arm that has a finished run."""
    plan: Mapping[str, Any]
    """`PrecisionPlan.facts`."""
    repeats: int
    conditions: Mapping[str, Any]
    """What fixes the meaning of the numbers."""
    batch_norms: Mapping[str, str | None] = field(default_factory=dict)
    """Whose kernels normalised batches, by arm."""
    references: Sequence[str] = ()
    """Arms beside what nbkit measured on the same GPU model."""

    @property
    def device_type(self) -> Literal["cuda", "cpu"]:
        """On what the runs computed."""
        return "cpu" if self.is_cpu else "cuda"

    @property
    def is_cpu(self) -> bool:
        """Whether CPU processes were used instead of GPUs."""
        return self.arms.is_functional

    @cached_property
    def measured(self) -> list[MeasuredArm]:
        """Every arm that has a rate, in the plan's order."""
        return [
            MeasuredArm(
                arm=row.arm,
                format=self.format(row.arm),
                images_per_second=row.images_per_second,
                against=row.ratio,
                answer=self.answers[row.arm],
                is_control=row.arm == self.arms.control,
            )
            for row in self.arms.rows
            if row.images_per_second is not None
        ]

    def format(self, arm: str) -> Format:
        """Return what an arm is measured in."""
        config = self.configs[arm]
        return Format(config.precision, config.memory_format, config.compile)

    @property
    def table(self) -> Table:
        """The headline: every arm's speed, cost and answer."""
        headline = self.arms.table(
            more={
                "loss": {arm: loss_cell(a) for arm, a in self.answers.items()},
                "gradients": {arm: gradient_cell(a) for arm, a in self.answers.items()},
            },
            notes=[*self.references, *caveat_notes(self.answers)]
            + ([kernels] if (kernels := batch_norm_sentence(self.batch_norms)) else []),
        )
        lead = self.arms.lead(self.arms.controls, untimed=self.untimed)
        return replace(headline, lead=lead)

    @property
    def answer_table(self) -> Table:
        """Where every arm's training arrived after equally many steps."""
        return answers_table(
            self.answers,
            self._steps,
            self.plan.get("loss_tolerance", LOSS_TOLERANCE),
        )

    @cached_property
    def layouts(self) -> list[LayoutEffect]:
        """What the layout does to each precision whose answer is right in both."""
        return layout_effects(
            self._rates,
            self.format(self.arms.baseline),
            self.arms.noise_floor,
            self._with_caveat("loss suspect", "not judged"),
            self.arms.comparisons or 1,
        )

    def among(self, comparisons: int) -> PrecisionResult:
        """Return it with verdicts that share the error rate among so many."""
        return replace(self, arms=replace(self.arms, comparisons=comparisons))

    @property
    def verdicts(self) -> list[Ratio]:
        """On every arm, and on the layout of every precision but the baseline's."""
        base = self.format(self.arms.baseline)
        layout_effects = [
            layout.effect
            for layout in self.layouts
            if (layout.precision, layout.compile) != (base.precision, base.compile)
        ]
        return [*self.arms.verdicts, *layout_effects]

    @property
    def _rates(self) -> dict[Format, list[float]]:
        return {
            self.format(arm): rates
            for arm in self.arms.runs
            if arm != self.arms.control and (rates := self.arms.rates(arm))
        }

    def _with_caveat(self, *caveats: str) -> set[Format]:
        return {
            self.format(arm)
            for arm, answer in self.answers.items()
            if answer.caveat in caveats and arm != self.arms.control
        }

    @property
    def layout(self) -> Table | Note:
        """What the layout does to 16 bits here, or why nothing can be said."""
        left_out = left_out_sentences(
            self._rates,
            self.format(self.arms.baseline),
            self._with_caveat("loss suspect"),
            self._with_caveat("not judged"),
        )
        if not self.layouts:
            unmeasured = (
                "No precision was measured in both layouts. Leave memory_format unset."
            )
            return Note(left_out or [unmeasured])
        return layout_table(self.layouts, [*left_out, *held_together(self.verdicts)])

    @property
    def published_layouts(self) -> Table:
        """The same in tables that others have published."""
        return pairs_table(published_pairs())

    @cached_property
    def published(self) -> dict[str, list[PublishedRow]]:
        """Published results of this GPU in the same format, by arm."""
        # What is published is of one GPU, and of ImageNet's usual size.
        config = self.configs[self.arms.baseline]
        if self.is_cpu or (config.world_size, config.image_size) != (1, 224):
            return {}
        rows_by_arm = {
            measured_arm.arm: like_for_like(
                measured_arm.format,
                model=self.conditions["model"],
                gpu_name=self.conditions.get("device_name"),
            )
            for measured_arm in self.measured
            if not measured_arm.is_control
        }
        return {arm: rows for arm, rows in rows_by_arm.items() if rows}

    @property
    def bounds(self) -> Table | Note:
        """How much of what the GPU allows every arm reaches, or why that is unknown."""
        return bounds_table(
            self.measured,
            self.configs,
            None if self.is_cpu else self.conditions.get("device_name"),
        )

    @cached_property
    def figure(self) -> Figure:
        """The answer as a picture."""
        chart = arms_chart(self.measured, self.published, device_type=self.device_type)
        return Figure("Training throughput by precision and layout", chart)

    @property
    def answer(self) -> str:
        """One sentence, computed from the data."""
        return computed_sentence(
            self.measured,
            self.arms.baseline,
            steps=self._steps,
            device_type=self.device_type,
            floor=self.arms.noise_floor,
        )

    @property
    def untimed(self) -> str:
        """Losses and gradients: the part of the answer that no clock enters."""
        own = (self.arms.baseline, self.arms.control, *self.arms.not_finite)
        findings = "; ".join(
            f"{arm}: {answer.caveat or 'ok'}"
            for arm, answer in self.answers.items()
            if arm not in own
        )
        if not findings:
            return ""
        return f"losses and gradients after {self._steps} steps ({findings})."

    @property
    def _steps(self) -> int:
        return int(self.conditions["steps"] or self.conditions["compared_steps"])

    def report(self) -> Report:
        """Return everything in one report."""
        parts = (
            *(self.table, self.answer_table, self.layout, self.published_layouts),
            *(self.bounds, self.arms.certainty),
        )
        notes = [part.sentences for part in parts if isinstance(part, Note)]
        return Report(
            title=_QUESTION,
            answer=self.answer,
            untimed=self.untimed,
            notes=[
                *filter(None, [layout_sentence(self.layouts)]),
                *filter(None, [self.arms.control_sentence]),
                *chain(*notes),
            ],
            answered_causes=("layout",) if self.layouts else (),
            tables=[part for part in parts if isinstance(part, Table)],
            figures=[self.figure],
            method=[
                *self._search,
                *HOW_MEASURED,
                *describe_images(self.conditions),
                where_and_when(self.conditions),
            ],
            sources=[WELCH, _LOSS_SCALING, _LAYOUTS, *_sources(self.published)],
            result={
                "schema": 1,
                "quantity": "images_per_second",
                "origin": "measured",
                "functional_only": self.is_cpu,
                "conditions": dict(self.conditions),
                "batch_norms": dict(self.batch_norms),
                "formats": {arm: asdict(self.format(arm)) for arm in self.answers},
                **self.arms.to_dict(),
                "answers": {arm: a.to_dict() for arm, a in self.answers.items()},
                "layouts": [asdict(effect) for effect in self.layouts],
                "published_layouts": [asdict(pair) for pair in published_pairs()],
                "published": {
                    arm: [asdict(row) for row in rows]
                    for arm, rows in self.published.items()
                },
            },
            next_step=self._next_step,
            controls=self.arms.controls,
        )

    @property
    def _search(self) -> list[str]:
        """What a search for convolutions would change where none was made."""
        if self.conditions.get("cudnn_benchmark") is not False:
            return []
        (off_fp32, off_fp16), (fp32, fp16) = _IMAGES_PER_SECOND.values()
        return [
            "Without cuDNN's search in all arms. Measured elsewhere (one start each, "
            f"H100, ResNet-50, batch 256): a search of 10 algorithms raises fp32 from "
            f"{off_fp32:,} to {fp32:,} images/s and lowers fp16 / fp32 from "
            f"{off_fp16 / off_fp32:.1f}x to {fp16 / fp32:.1f}x."
        ]

    @property
    def _next_step(self) -> str:
        chosen = dict(self.plan.get("chosen", {}))
        if self.is_cpu:
            # A short run on a CPU is not a measurement of a GPU.
            chosen = {n: v for n, v in chosen.items() if n not in SIZES_OF_A_CPU}
        if self.repeats < MINIMUM_RUNS:
            chosen["repeats"] = MINIMUM_RUNS
        command = papermill_command("precision", chosen)
        return f"on a machine with a GPU: {command}" if self.is_cpu else command


def result(study: Study) -> PrecisionResult | BaselineLost:
    """Return what a study says, from the store alone.

    `BaselineLost` if every run of the baseline was ended as not finite.

    Raises
    ------
    NotEnoughDataError
        If the baseline has no finished run, or a run no measured step.
    """
    if lost := baseline_lost(study):
        return lost
    finished = finished_arms(study)
    arms = arms_of(study)
    if arms.row(arms.baseline).images_per_second is None:
        message = (
            f"baseline {arms.baseline!r} has a run of 0 measured steps. Use more "
            "steps, or a smaller batch for a small data set."
        )
        raise NotEnoughDataError(message)
    facts = conditions([run for many in finished.values() for run in many])
    facts.pop("memory_format", None)  # it differs from arm to arm
    perturbed = _perturbed(study)
    if facts["steps"] is None:
        every = [*chain(*finished.values()), *perturbed.values()]
        each = [steps[-1]["step"] for run in every if (steps := run.metrics())]
        facts["compared_steps"] = min(each)
    # Of the records: before there was this field, all runs on GPUs searched.
    runs = chain(*finished.values())
    searched = {run.worker.get("cudnn_benchmark") for run in runs}
    if len(searched) == 1 and None not in searched:
        facts["cudnn_benchmark"] = searched.pop()
    shared = facts["steps"] or facts["compared_steps"]
    measured = PrecisionResult(
        arms=arms,
        configs=study.arms,
        answers=check_loss_parity(
            {
                arm: {
                    int(run.record["tags"]["repeat"]): run.summary_until(shared)
                    for run in runs
                }
                for arm, runs in finished.items()
            },
            arms.baseline,
            control=arms.control,
            tolerance=study.plan.get("loss_tolerance", LOSS_TOLERANCE),
            perturbed={
                arm: one and one.summary_until(shared)
                for arm, config in study.arms.items()
                for one in [perturbed.get(ROUNDING.get(config.precision, 0.0))]
            },
        ),
        plan=study.plan,
        repeats=study.repeats,
        conditions={**facts, "study_id": study.study_id},
        batch_norms={
            arm: batch_norm_of(runs[0].worker) for arm, runs in finished.items()
        },
        references=[
            text
            for arm, many in finished.items()
            if arm != arms.control and (text := reference_sentence(many, arm))
        ],
    )
    comparisons = comparisons_at_once(lambda count: measured.among(count).verdicts)
    return measured.among(comparisons)


def report(study: Study) -> Report:
    """Return the report of a precision study; it raises what `result` does."""
    return result(study).report()


def _perturbed(study: Study) -> dict[float, Run]:
    """Return the runs whose weights were changed, by how much of themselves."""
    runs = study.runs_by_arm()
    return {
        study.arms[name].weight_perturbation: run
        for name in study.unrepeated
        for run in runs.get(name, [])
    }


def _sources(published: Mapping[str, Sequence[PublishedRow]]) -> list[Source]:
    """Return where the published numbers of tables and chart are printed."""
    rows = [row for pair in published_pairs() for row in (pair.first, pair.last)]
    rows += [row for arm_rows in published.values() for row in arm_rows]
    urls = {row.source: row.url for row in rows}
    return [Source(*cited) for cited in urls.items()]
