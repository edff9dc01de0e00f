"""Report of a precision study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import chain

from nbkit.config import ExperimentConfig
from nbkit.launch.run import Run
from nbkit.questions.precision.answers import (
    LOSS_TOLERANCE,
    ROUNDING,
    LossParity,
    check_loss_parity,
)
from nbkit.questions.precision.layouts import (
    Format,
    LayoutEffect,
    format_of,
    layout_effects,
    layout_sentence,
    left_out_sentences,
    like_for_like,
)
from nbkit.questions.precision.sentence import MeasuredArm, computed_sentence
from nbkit.questions.precision.tables import (
    answers_table,
    bounds_table,
    caveat_notes,
    first_step_cell,
    layout_table,
    loss_cell,
    pairs_table,
    published_table,
)
from nbkit.references.measured import reference_sentence
from nbkit.references.rows import PublishedRow, published_pairs
from nbkit.reports.arm_charts import speedup_figure
from nbkit.reports.arm_tables import held_together
from nbkit.reports.arms import Arms, arms_of, require_runs
from nbkit.reports.batch_norms import batch_norm_of, batch_norm_sentence
from nbkit.reports.conditions import HOW_MEASURED, WELCH
from nbkit.reports.page import Evidence, page
from nbkit.reports.renderer import Note, Report, Source, Table
from nbkit.statistics import Ratio, comparisons_at_once
from nbkit.studies.study import Study

_SEARCH = (
    "cuDNN benchmarking was off in all arms. On an H100 (ResNet-50, batch 256, n=1), "
    "cudnn_benchmark=10 increases fp32 from 885 to 956 images/s and reduces fp16 / "
    "fp32 from 5.6x to 5.2x."
)
_FIRST_STEP = "First step: time in the first run, then median over the later runs."
_QUESTION = (
    "Mixed precision, TF32, channels_last, torch.compile: speedup and loss parity"
)
_SPEEDUP = "Training speedup by precision and layout"
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
    """Results of a study of formats, layouts and compilation."""

    evidence: Evidence
    arms: Arms
    configs: Mapping[str, ExperimentConfig]
    """By arm; the control among them."""
    answers: Mapping[str, LossParity]
    """By arm that has a finished run."""
    steps: int
    """Number of steps after which losses are compared."""
    batch_norms: Mapping[str, str | None] = field(default_factory=dict)
    """Library of the batch-norm kernels, by arm."""
    references: Sequence[str] = ()
    """Comparison of arms with nbkit's reference on the same GPU model."""

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
        """Return the format of an arm."""
        return format_of(self.configs[arm])

    @property
    def table(self) -> Table:
        """The headline: speed, cost and loss of every arm."""
        return self.arms.table(
            more={
                "loss": {arm: loss_cell(a) for arm, a in self.answers.items()},
                "first step": {
                    a: first_step_cell(r) for a, r in self.arms.runs.items()
                },
            },
            notes=[*self.references, *caveat_notes(self.answers), _FIRST_STEP]
            + ([kernels] if (kernels := batch_norm_sentence(self.batch_norms)) else []),
        )

    @property
    def answer_table(self) -> Table:
        """Loss parity of all arms after the same number of steps."""
        return answers_table(
            self.answers,
            self.steps,
            self.evidence.plan.get("loss_tolerance", LOSS_TOLERANCE),
        )

    @cached_property
    def layouts(self) -> list[LayoutEffect]:
        """Layout effect on each precision with loss parity in both layouts."""
        return layout_effects(
            self._rates,
            self.format(self.arms.baseline),
            self.arms.noise_floor,
            self._with_caveat("loss suspect", "not judged"),
            self.arms.comparisons or 1,
        )

    def among(self, comparisons: int) -> PrecisionResult:
        """Return the result with verdicts corrected for this number of comparisons."""
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
        """Layout effect on each precision, or why it is unknown."""
        left_out = left_out_sentences(
            self._rates,
            self.format(self.arms.baseline),
            self._with_caveat("loss suspect"),
            self._with_caveat("not judged"),
        )
        if not self.layouts:
            unmeasured = (
                "No precision was measured in both layouts. Use "
                "memory_format=channels_last,channels_first."
            )
            return Note(left_out or [unmeasured])
        return layout_table(self.layouts, [*left_out, *held_together(self.verdicts)])

    @cached_property
    def published(self) -> dict[str, list[PublishedRow]]:
        """Published results of this GPU in the same format, by arm."""
        # What is published is of one GPU, and of ImageNet's usual size.
        config = self.configs[self.arms.baseline]
        if self.evidence.is_cpu or (config.world_size, config.image_size) != (1, 224):
            return {}
        rows_by_arm = {
            measured_arm.arm: like_for_like(
                measured_arm.format,
                model=config.model,
                gpu_name=self._gpu_name,
            )
            for measured_arm in self.measured
            if not measured_arm.is_control
        }
        return {arm: rows for arm, rows in rows_by_arm.items() if rows}

    @property
    def bounds(self) -> Table | Note:
        """Share of the roofline that every arm reaches, or why it is unknown."""
        return bounds_table(
            self.measured,
            self.configs,
            None if self.evidence.is_cpu else self._gpu_name,
        )

    @property
    def _gpu_name(self) -> str | None:
        return self.evidence.conditions["device_name"]

    @property
    def answer(self) -> str:
        """The fastest arm with loss parity, and faster arms that were excluded."""
        return computed_sentence(
            self.measured,
            self.arms.baseline,
            steps=self.steps,
            floor=self.arms.noise_floor,
        )

    @property
    def untimed(self) -> str:
        """Losses and gradients: the part of the answer independent of times."""
        own = (self.arms.baseline, self.arms.control, *self.arms.diverged)
        findings = "; ".join(
            f"{arm}: {answer.caveat or 'ok'}"
            for arm, answer in self.answers.items()
            if arm not in own
        )
        if not findings:
            return ""
        return f"losses and gradients after {self.steps} steps ({findings})."

    def report(self) -> Report:
        """Return everything in one report."""
        conditions = self.evidence.conditions
        caveats = {arm: a.caveat for arm, a in self.answers.items() if a.caveat}
        cited = [row for pair in published_pairs() for row in (pair.first, pair.last)]
        cited += chain(*self.published.values())
        searched = [_SEARCH] if conditions.get("cudnn_benchmark") is False else []
        notes = filter(
            None, [layout_sentence(self.layouts), self.arms.control_sentence]
        )
        return page(
            _QUESTION,
            self.evidence,
            self.answer,
            [
                Note([*notes]),
                *(self.table, self.answer_table, self.layout),
                *([published_table(self.published)] if self.published else []),
                pairs_table(published_pairs()),
                *(self.bounds, self.arms.certainty),
                speedup_figure(self.arms, _SPEEDUP, caveats),
            ],
            untimed=self.untimed,
            method=[*searched, *HOW_MEASURED],
            sources=[
                *(WELCH, _LOSS_SCALING, _LAYOUTS),
                *(Source(row.source, row.url) for row in cited),
            ],
            numbers={
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
            controls=self.arms.controls,
            answered_causes=("layout",) if self.layouts else (),
        )


def result(study: Study) -> PrecisionResult:
    """Return the result of a study, read from the store.

    Raises
    ------
    NotEnoughDataError
        If the baseline has no finished run, or a run no measured step.
    """
    evidence = Evidence.of(study)
    require_runs(study, study.base, evidence.runs)
    arms = arms_of(study)
    arms.require_rate()
    finished, facts = evidence.runs, dict(evidence.conditions)
    facts.pop("memory_format", None)  # it differs from arm to arm
    searched = finished[arms.baseline][0].worker.get("cudnn_benchmark")
    if searched is not None:
        facts["cudnn_benchmark"] = searched
    perturbed = _perturbed(study)
    if facts["steps"] is None:
        every = [*chain(*finished.values()), *perturbed.values()]
        each = [steps[-1]["step"] for run in every if (steps := run.metrics())]
        facts["compared_steps"] = min(each)
    shared = facts["steps"] or facts["compared_steps"]
    answers = check_loss_parity(
        {
            arm: {
                int(run.record["tags"]["repeat"]): run.summary_until(shared)
                for run in runs
            }
            for arm, runs in finished.items()
        },
        arms.baseline,
        control=arms.control,
        tolerance=evidence.plan.get("loss_tolerance", LOSS_TOLERANCE),
        perturbed={
            arm: summarised and summarised.summary_until(shared)
            for arm, config in study.arms.items()
            for summarised in [perturbed.get(ROUNDING.get(config.precision, 0.0))]
        },
    )
    # A repeat that was ended as diverged has no finished run to look at.
    for arm, lost in arms.diverged.items():
        if arm in answers and not answers[arm].suspicions:
            answers[arm] = replace(answers[arm], suspicions=(str(lost),))
    measured = PrecisionResult(
        evidence=replace(evidence, conditions=facts),
        arms=arms,
        configs=study.arms,
        answers=answers,
        steps=shared,
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


def _perturbed(study: Study) -> dict[float, Run]:
    """Return the runs whose weights were changed, by how much of themselves."""
    runs = study.runs_by_arm()
    return {
        study.arms[name].weight_perturbation: run
        for name in study.unrepeated
        for run in runs.get(name, [])
    }
