"""Report of the comparison of two machines."""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import chain

from nbkit.questions.machines import tables
from nbkit.questions.machines.bundles import Machine
from nbkit.questions.machines.chart import machines_chart
from nbkit.questions.machines.literature import (
    MachinePair,
    published_pairs,
    published_sentence,
)
from nbkit.questions.machines.planning import MachinesPlan, machines_of, measure
from nbkit.questions.machines.ratios import (
    FINITE,
    MatchedArm,
    Mismatch,
    compare_machines,
    is_on_cpu,
    measured_sentence,
)
from nbkit.reports.auditor import audit, findings_table
from nbkit.reports.bandwidth import NCCL_TESTS
from nbkit.reports.caveats import caveats, prepend_caveats
from nbkit.reports.conditions import HOW_MEASURED, WELCH
from nbkit.reports.renderer import Figure, Note, Report, SavedReport, Source, Table
from nbkit.review.findings import Audit, AuditFinding
from nbkit.review.usable_arms import no_verdict_sentence
from nbkit.store.metrics import store_error
from nbkit.store.paths import reports_folder
from nbkit.store.private import make_store
from nbkit.studies.parameters import papermill_command
from nbkit.studies.study import Study

_QUESTION = "Machines: training throughput under equal conditions"
_NOT_INTERLEAVED = (
    "Runs of two machines are not interleaved: the CI covers run-to-run noise, not "
    "drift between the two studies."
)
_RATIO_FIELDS = (
    *("estimate", "ci_low", "ci_high", "bootstrap_low", "bootstrap_high"),
    *("verdict", "n_a", "n_b", "confidence", "margin"),
)


@dataclass(frozen=True)
class MachinesResult:
    """Comparison of two machines by their runs, and published results."""

    plan: MachinesPlan
    a: Machine
    b: Machine
    study_id: str | None
    """Study of what was measured here; None if nothing was."""
    matched: Sequence[MatchedArm]
    """Runs of both machines under equal conditions."""
    left_out: Sequence[Mismatch]
    """Conditions that are not compared: of one machine only, or with NaN or Inf."""
    pairs: Sequence[MachinePair]
    """Comparable published results."""

    @property
    def answer(self) -> str:
        """The measured ratios, then published ones."""
        floors = {
            arm.conditions: [
                (machine.name, floor)
                for machine in (self.a, self.b)
                for floor in machine.controls[arm.conditions]
            ]
            for arm in self.matched
        }
        names = self.a.name, self.b.name
        ratios = measured_sentence(self.matched, self.left_out, *names, floors)
        first = no_verdict_sentence(self.diverged)
        return f"{first} {ratios} {self._published}".lstrip()

    @property
    def _published(self) -> str:
        return published_sentence(self.pairs, *self.plan.published)

    @property
    def diverged(self) -> dict[str, str]:
        """First NaN or Inf by arm and machine."""
        return {
            f"{mismatch.what} on {machine.name}": value
            for mismatch in self.left_out
            if mismatch.condition == FINITE
            for machine, value in ((self.a, mismatch.a), (self.b, mismatch.b))
            if value not in (None, "yes")
        }

    @property
    def figures(self) -> list[Figure]:
        """The chart of the answer; empty if there is nothing to draw."""
        if not self.matched and not self.pairs:
            return []
        caption = "Speedup, measured and published"
        chart = machines_chart(
            self.matched,
            self.pairs,
            measured_names=(self.a.name, self.b.name),
            published_names=self.plan.published,
            title=caption,
        )
        return [Figure(caption, chart)]

    @cached_property
    def _audits(self) -> list[Audit]:
        rows = [row for pair in self.pairs for row in (pair.a, pair.b)]
        about = f"published results of {' and '.join(self.plan.published)}"
        measured = [
            Audit(f"runs on {machine.name}", [*chain(*machine.audits.values())])
            for machine in (self.a, self.b)
            if machine.audits
        ]
        return [*measured, *([Audit(about, audit(rows))] if rows else [])]

    def report(self) -> Report:
        """Return everything in one report."""
        sides, matched, parts = (self.a, self.b), self.matched, list[object]()
        if matched:
            parts += [tables.ratio_table(matched, *sides)]
            parts += [tables.costs_table(matched, *sides)]
        parts += [bandwidth := tables.bandwidth_table(*sides)]
        if self.left_out:
            parts += [tables.left_out_table(self.left_out, *sides)]
        parts += [tables.side_by_side_table(*sides)]
        parts += [tables.differences_table(matched, *sides)]
        if self.pairs:
            names, model = self.plan.published, self.plan.published_model
            parts += [tables.published_table(self.pairs, names, model)]
        parts += [findings_table(self._audits)]
        # What there is no table of.
        notes = [part.sentences for part in parts if isinstance(part, Note)]
        rows = [row for pair in self.pairs for row in (pair.a, pair.b)]
        sources = [
            WELCH,
            *([NCCL_TESTS] if isinstance(bandwidth, Table) else []),
            *(Source(f"{row.source}, {row.year}", row.url) for row in rows),
        ]
        findings = [line for audit in self._audits for line in audit.summary()]
        report = Report(
            title=_QUESTION,
            answer=self.answer,
            conditions=" | ".join(map(_software, sides)),
            notes=[*dict.fromkeys([_NOT_INTERLEAVED, *chain(*notes), *findings])],
            tables=[part for part in parts if isinstance(part, Table)],
            figures=self.figures,
            method=[*self.plan.notes, *HOW_MEASURED],
            sources=[*dict.fromkeys(sources)],
            result={
                "schema": 1,
                "quantity": "images_per_second",
                "is_smoke_test": is_on_cpu(self.matched),
                "a": self.a.name,
                "b": self.b.name,
                "measured": [
                    {
                        "arm": arm.name,
                        "conditions": dict(arm.conditions),
                        "ratio": {n: getattr(arm.ratio, n) for n in _RATIO_FIELDS},
                        "a": [asdict(run) for run in arm.a],
                        "b": [asdict(run) for run in arm.b],
                    }
                    for arm in self.matched
                ],
                "left_out": [asdict(mismatch) for mismatch in self.left_out],
                "published": [
                    {"ratio": pair.ratio, "a": asdict(pair.a), "b": asdict(pair.b)}
                    for pair in self.pairs
                ],
                "machines": {machine.name: machine.facts for machine in sides},
                "study_id": self.study_id,
                "audit": [*chain(*(audit.to_dicts() for audit in self._audits))],
            },
            next_step=_next_step(self.plan),
        )
        if not self._caveats:
            return report
        lost = no_verdict_sentence(self.diverged)
        warned = prepend_caveats(report, {}, self._caveats, first=lost)
        # The published numbers do not depend on these runs.
        return replace(warned, notes=[*warned.notes, self._published])

    @cached_property
    def _caveats(self) -> list[AuditFinding]:
        """Why what is compared of the two machines cannot be believed."""
        reasons: dict[str, AuditFinding] = {}
        for arm in self.matched:
            for machine in (self.a, self.b):
                controls = machine.controls[arm.conditions]
                for caveat in caveats(controls, machine.bottlenecks[arm.conditions]):
                    # Of what disturbs runs, and names its machine, each kind once.
                    if caveat.code != "control-differs":
                        reasons.setdefault(caveat.code, caveat)
                        continue
                    evidence = f"on {machine.name}, {caveat.evidence}"
                    reasons.setdefault(evidence, replace(caveat, evidence=evidence))
        # What a control shows comes first, of whichever machine.
        return sorted(reasons.values(), key=lambda one: one.code != "control-differs")


def result(plan: MachinesPlan, study: Study | None) -> MachinesResult:
    """Return the comparison of the machines.

    Parameters
    ----------
    plan
        From `plan`.
    study
        Study from `measure`, if anything was measured here.
    """
    a, b = machines_of(plan, study)
    matched, left_out = compare_machines(a.runs, b.runs, a.name, b.name)
    pairs = published_pairs(
        *plan.published,
        model=plan.published_model,
        precision=plan.parameters.precision,
    )
    study_id = None if study is None else study.study_id
    return MachinesResult(plan, a, b, study_id, matched, left_out, pairs)


def run(plan: MachinesPlan) -> MachinesResult:
    """Execute the plan's measurements here, and compare the machines.

    Raises
    ------
    RunError
        If the runs need ``trust`` (see `measure`); no run is started.
    RunFailedError
        If a run fails.
    """
    return result(plan, measure(plan))


def report(compared: MachinesResult) -> SavedReport:
    """Write the report of a comparison into a new folder of the store.

    Raises
    ------
    StoreError
        If the store cannot be written.
    """
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    folder = reports_folder() / f"{now}-machines-{secrets.token_hex(2)}"
    try:
        make_store()
        folder.mkdir(parents=True)
    except OSError as error:
        raise store_error(folder, error) from error
    return compared.report().save(folder)


def _software(machine: Machine) -> str:
    """Return a machine's name with its software and driver."""
    labels = ("torch", "CUDA", "driver")
    known = [
        f"{label} {machine.facts[label]}"
        for label in labels
        if machine.facts.get(label)
    ]
    return ", ".join([machine.name, *known])


def _next_step(plan: MachinesPlan) -> str:
    if plan.parameters.bundles is None:
        command = papermill_command("machines", {"bundles": ["one.zip", "other.zip"]})
        return (
            "run the same study on two machines, export it with nbkit.export(study, "
            "'one.zip') on one machine and nbkit.export(study, 'other.zip') on the "
            f"other machine, copy both files here, and run: {command}"
        )
    if not plan.arms:
        kept = ("bundles", "a", "model", "precision", "published")  # b is this machine
        chosen = {name: value for name in kept if (value := plan.parameters[name])}
        command = papermill_command("machines", {**chosen, "measure": True})
        return f"also measure here: {command}"
    return "to compare on another machine, export the study with nbkit.export."
