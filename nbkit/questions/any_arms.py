"""The report of any study: throughput of its arms and recorded differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nbkit.launch.run import Run
from nbkit.reports.arm_charts import speedup_figure
from nbkit.reports.arms import arms_of, finished_arms
from nbkit.reports.bandwidth import NCCL_TESTS, bandwidth
from nbkit.reports.columns import Column, table
from nbkit.reports.conditions import (
    HOW_MEASURED,
    WELCH,
    conditions,
    describe_images,
    where_and_when,
)
from nbkit.reports.renderer import Report, Table
from nbkit.reproduction.comparison import run_facts
from nbkit.reproduction.differences import differences, shortened
from nbkit.statistics import quantities as wording
from nbkit.studies.study import Study


def report(study: Study) -> Report:
    """Return the report of a study of any arms.

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
    reduces = any(study.arms[name].task == "allreduce" for name in study.unrepeated)
    control = (
        f"Study.create(..., control={arms.baseline!r}) adds an A/A control, which "
        "measures run-to-run noise"
    )
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
            *(exchange.note.sentences if reduces else ()),
        ],
        tables=[*tables, process_starts(by_arm, *_RATES)],
        figures=[
            *([speedup_figure(arms, "Speedup by arm", {})] if arms.verdicts else []),
            *exchange.figures,
        ],
        method=[
            *HOW_MEASURED,
            f"Order: n={study.repeats} per arm"
            f"{', interleaved (ABBA)' * (len(by_arm) > 1)}.",
            *describe_images(facts),
            where_and_when(facts),
        ],
        sources=[WELCH, *([NCCL_TESTS] if exchange.rows else [])],
        result={"conditions": facts, **arms.to_dict()},
        next_step=control if arms.is_comparison and arms.control is None else "",
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


def table_of_differences(base: str, by_arm: Mapping[str, Sequence[Run]]) -> Table:
    """Return the recorded differences of each arm from the base."""
    facts = {arm: [run_facts(run) for run in runs] for arm, runs in by_arm.items()}
    rows = [
        (arm, difference)
        for arm, of_arm in facts.items()
        if arm != base
        for difference in differences(facts[base], of_arm)
    ]
    same = [arm for arm in facts if arm not in {base, *(row[0] for row in rows)}]
    notes = [f"{'; '.join(same)}: no recorded differences."] if same else []
    return table(
        f"Recorded differences from {base}",
        [
            Column("arm", lambda row: row[0]),
            Column("part", lambda row: row[1].part),
            Column("name", lambda row: row[1].name),
            Column(base, lambda row: row[1].a, shortened),
            Column("this arm", lambda row: row[1].b, shortened),
        ],
        rows,
        notes,
    )


def process_starts(by_arm: Mapping[str, Sequence[Run]], *numbers: Column) -> Table:
    """Return every run with its measured values."""
    return table(
        "Process starts",
        [
            Column("arm", lambda row: row[0]),
            *numbers,
            Column("started", lambda row: row[1].record["time"]["started"]),
            Column("run", lambda row: row[1].run_id),
        ],
        [(arm, run) for arm, runs in by_arm.items() for run in runs],
    )


def _summary(name: str) -> Callable[[tuple[str, Run]], Any]:
    return lambda row: getattr(row[1].summary, name)


def _quartiles(row: tuple[str, Run]) -> str | None:
    low, high = (_summary(f"images_per_second_{end}")(row) for end in ("q25", "q75"))
    return None if low is None else f"{wording.rate(low)} to {wording.rate(high)}"


_RATES = (
    Column(
        "images/s", _summary("images_per_second"), wording.rate, "images_per_second"
    ),
    Column("quartiles over steps", _quartiles),
    *(
        Column(None, _summary(name), csv=name)
        for name in ("images_per_second_q25", "images_per_second_q75")
    ),
    Column("steps", _summary("n_steps")),
)
