"""The report of any study: throughput of its arms and recorded differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.launch.run import Run
from nbkit.questions.precision.answers import LossParity
from nbkit.questions.precision.chart import arms_chart
from nbkit.questions.precision.layouts import Format
from nbkit.questions.precision.sentence import MeasuredArm
from nbkit.reports.arms import Arms, arms_of, finished_arms
from nbkit.reports.bandwidth import NCCL_TESTS, bandwidth
from nbkit.reports.conditions import (
    HOW_MEASURED,
    WELCH,
    conditions,
    describe_images,
    where_and_when,
)
from nbkit.reports.renderer import Figure, Report, Table
from nbkit.reproduction.comparison import run_facts
from nbkit.reproduction.differences import differences, shortened
from nbkit.statistics import quantities as wording
from nbkit.studies.study import Study


def report(study: Study) -> Report:
    """Return the report of a study of which nothing but its arms is known.

    Parameters
    ----------
    study
        A study with at least one finished run of an arm.

    Raises
    ------
    NotEnoughDataError
        If no run of an arm has finished.
    """
    arms = arms_of(study)
    by_arm = finished_arms(study)
    facts = {**shared_conditions(by_arm), "study_id": study.study_id}
    exchange = bandwidth(study)
    tables = [arms.table()]
    if arms.is_comparison:
        tables += [arms.certainty, table_of_differences(arms.baseline, by_arm)]
    if exchange.rows:
        tables.append(exchange.table)
    return Report(
        title=f"{study.name}: throughput{' by arm' * arms.is_comparison}",
        answer=arms.sentence,
        notes=[
            *filter(None, [arms.control_sentence]),
            *(exchange.note.sentences if study.unrepeated else ()),
        ],
        tables=[*tables, _process_starts(by_arm)],
        figures=[*_figures(study, arms), *exchange.figures],
        method=[
            *HOW_MEASURED,
            f"Order: n={study.repeats} per arm, interleaved (ABBA).",
            *describe_images(facts),
            where_and_when(facts),
        ],
        sources=[WELCH, *([NCCL_TESTS] if exchange.rows else [])],
        result={"conditions": facts, **arms.to_dict()},
        next_step=_next_step(arms),
        controls=arms.controls,
    )


def shared_conditions(by_arm: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """Return the conditions that hold for every arm; the others are None."""
    conditions_by_arm = [conditions(runs) for runs in by_arm.values()]
    all_conditions = conditions([run for runs in by_arm.values() for run in runs])
    shared = {
        name: value
        for name, value in all_conditions.items()
        if all(arm_conditions[name] == value for arm_conditions in conditions_by_arm)
    }
    own = ("started", "run_ids", "images", "oversubscribed")
    return {
        **dict.fromkeys(all_conditions),
        **shared,
        **{name: all_conditions[name] for name in own},
    }


def _figures(study: Study, arms: Arms) -> list[Figure]:
    """Return the answer as a picture; none where no rate was measured."""
    configs = study.arms
    measured = [
        MeasuredArm(
            arm=row.arm,
            format=_format(configs[row.arm]),
            images_per_second=row.images_per_second,
            against=row.ratio,
            answer=_unjudged(row.arm),
            is_control=row.arm == arms.control,
        )
        for row in arms.rows
        if row.images_per_second is not None
    ]
    if not measured:
        return []
    title = "Training throughput by arm"
    kind = "cpu" if arms.is_functional else "cuda"
    return [Figure(title, arms_chart(measured, {}, device_type=kind, title=title))]


def _unjudged(arm: str) -> LossParity:
    """Return an answer without suspicion: arms need not train alike."""
    return LossParity(
        arm=arm,
        first_loss=None,
        final_loss=None,
        difference=None,
        mean_loss_difference=None,
        updates_skipped=None,
        weights_finite=None,
        suspicions=(),
    )


def _format(config: ExperimentConfig) -> Format:
    return Format(config.precision, config.memory_format, config.compile)


def _next_step(arms: Arms) -> str:
    if arms.is_comparison and arms.control is None:
        return (
            f"Study.create(..., control={arms.baseline!r}) adds an A/A control, which "
            "shows the run-to-run noise"
        )
    return ""


def table_of_differences(base: str, by_arm: Mapping[str, Sequence[Run]]) -> Table:
    """Return in what each arm differs from the base, by what was recorded."""
    facts = {arm: [run_facts(run) for run in runs] for arm, runs in by_arm.items()}
    rows = [
        [
            arm,
            difference.part,
            difference.name,
            shortened(difference.a),
            shortened(difference.b),
        ]
        for arm, of_arm in facts.items()
        if arm != base
        for difference in differences(facts[base], of_arm)
    ]
    same = [arm for arm in facts if arm not in {base, *(row[0] for row in rows)}]
    notes = [f"{'; '.join(same)}: no recorded differences."] if same else []
    return Table(
        f"Recorded differences from {base}",
        ["arm", "part", "name", base, "this arm"],
        rows,
        notes,
    )


def _process_starts(by_arm: Mapping[str, Sequence[Run]]) -> Table:
    """Return every run with what it measured, so that each number can be traced."""
    runs = [(arm, run, run.summary) for arm, runs in by_arm.items() for run in runs]
    return Table(
        "Process starts",
        ["arm", "images/s", "quartiles over steps", "steps", "started", "run"],
        [
            [
                arm,
                wording.rate(summary.images_per_second),
                None
                if summary.images_per_second_q25 is None
                else f"{wording.rate(summary.images_per_second_q25)} to "
                f"{wording.rate(summary.images_per_second_q75)}",
                f"{summary.n_steps}",
                run.record["time"]["started"],
                run.run_id,
            ]
            for arm, run, summary in runs
        ],
        values={
            "images_per_second": [s.images_per_second for _, _, s in runs],
            "images_per_second_q25": [s.images_per_second_q25 for _, _, s in runs],
            "images_per_second_q75": [s.images_per_second_q75 for _, _, s in runs],
        },
    )
