"""What the machines notebook shows: two machines like for like, and published ones."""

from __future__ import annotations

import datetime
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from nbkit.questions.machines import tables
from nbkit.questions.machines.bundles import Machine
from nbkit.questions.machines.chart import machines_chart
from nbkit.questions.machines.literature import (
    MachinePair,
    Mismatch,
    published_pairs,
    published_sentence,
)
from nbkit.questions.machines.planning import MachinesPlan, machines_of, measure
from nbkit.questions.machines.ratios import (
    FINITE,
    Conditions,
    Floor,
    MatchedArm,
    compare_machines,
    measured_sentence,
    result_document,
)
from nbkit.reports.auditor import audit, findings_table
from nbkit.reports.bandwidth import NCCL_TESTS
from nbkit.reports.caveats import Caveat, caveats, prepend_caveats
from nbkit.reports.conditions import HOW_MEASURED, WELCH
from nbkit.reports.renderer import Figure, Note, Report, SavedReport, Source, Table
from nbkit.reports.source_statistics import SOURCES, statistics_table
from nbkit.review.findings import Audit
from nbkit.review.usable_arms import no_verdict_sentence
from nbkit.store.metrics import store_error
from nbkit.store.paths import reports_folder
from nbkit.store.private import make_store
from nbkit.studies.parameters import papermill_command
from nbkit.studies.study import Study

_QUESTION = "Machines: training throughput, like for like"


@dataclass(frozen=True)
class MachinesResult:
    """What runs of two machines say, and published results."""

    plan: MachinesPlan
    a: Machine
    b: Machine
    study_id: str | None
    """Of what was measured here; None if nothing was."""

    @cached_property
    def _compared(self) -> tuple[list[MatchedArm], list[Mismatch]]:
        return compare_machines(self.a.runs, self.b.runs, self.a.name, self.b.name)

    @property
    def matched(self) -> list[MatchedArm]:
        """What both machines ran under the same conditions."""
        return self._compared[0]

    @property
    def left_out(self) -> list[Mismatch]:
        """What only one of them ran so: never compared."""
        return self._compared[1]

    @cached_property
    def _published(self) -> tuple[list[MachinePair], list[Mismatch]]:
        return published_pairs(
            *self.plan.published,
            model=self.plan.published_model,
            precision=self.plan.precision,
        )

    @property
    def pairs(self) -> list[MachinePair]:
        """Published numbers that may stand side by side."""
        return self._published[0]

    @property
    def measured_answer(self) -> str:
        """What the runs show, in a sentence an arm."""
        names = self.a.name, self.b.name
        return measured_sentence(self.matched, self.left_out, *names, self._floors)

    @property
    def _floors(self) -> dict[Conditions, list[Floor]]:
        """What the controls of both machines show, by arm."""
        return {
            arm.conditions: [
                (machine.name, floor)
                for machine in (self.a, self.b)
                for floor in machine.controls[arm.conditions]
            ]
            for arm in self.matched
        }

    @property
    def answer(self) -> str:
        """What was measured first, then published results."""
        published = published_sentence(self.pairs, *self.plan.published)
        first = no_verdict_sentence(self.not_finite)
        return f"{first} {self.measured_answer} {published}".lstrip()

    @property
    def not_finite(self) -> dict[str, str]:
        """What was not finite, by arm and machine."""
        return {
            f"{mismatch.what} on {machine.name}": value
            for mismatch in self.left_out
            if mismatch.condition == FINITE
            for machine, value in ((self.a, mismatch.a), (self.b, mismatch.b))
            if value not in (None, "yes")
        }

    @property
    def table(self) -> Table | Note:
        """The headline: every arm that both machines have."""
        if not self.matched:
            return Note([self.measured_answer])
        ratios = tables.ratio_table(self.matched, self.a, self.b)
        return replace(ratios, lead=self._lead)

    def _lead(self) -> str:
        """Return what takes back what is compared; empty if it stands."""
        if not self._caveats:
            return ""
        warned = self._told_first(Report("", ""))
        return " ".join([warned.answer, *warned.notes])

    def _told_first(self, report: Report) -> Report:
        lost = no_verdict_sentence(self.not_finite)
        return prepend_caveats(report, {}, self._caveats, first=lost)

    @property
    def costs(self) -> Table | Note:
        """What an image costs on each machine: waiting, memory, energy, CPU time."""
        if not self.matched:
            return Note([])
        return tables.costs_table(self.matched, self.a, self.b)

    @property
    def not_alike(self) -> Table | Note:
        """What was measured and not compared, with the value on each side."""
        if not self.left_out:
            return Note([])
        caption = "Measured, not compared: conditions differ"
        names = self.a.name, self.b.name
        return tables.left_out_table(caption, self.left_out, names)

    @property
    def side_by_side(self) -> Table:
        """The machines: virtualization, GPUs, links, network, software."""
        return tables.side_by_side_table(self.a, self.b)

    @property
    def bandwidth(self) -> Table | Note:
        """How fast each exchanges gradients, where both have measured it."""
        return tables.bandwidth_table(self.a, self.b)

    @property
    def differences(self) -> Table | Note:
        """What else is different between the runs that are compared."""
        return tables.differences_table(self.matched, self.a, self.b)

    @property
    def by_source(self) -> Table | Note:
        """What the sources' own statistics make of the first arm of both machines."""
        if not self.matched:
            return Note([])
        first = self.matched[0]
        a, b = (machine.statistics[first.conditions] for machine in (self.a, self.b))
        return statistics_table(a, b, (self.a.name, self.b.name), first.name)

    @property
    def published(self) -> Table | Note:
        """Published results of two GPUs, like for like."""
        gpus = self.plan.published
        if not self.pairs:
            return Note([published_sentence([], *gpus)])
        return tables.published_table(self.pairs, gpus, self.plan.published_model)

    @property
    def published_not_alike(self) -> Table | Note:
        """Where a publisher has both GPUs, and not under the same conditions."""
        left_out = self._published[1]
        if not left_out:
            return Note([])
        caption = "Published, not compared: conditions differ"
        return tables.left_out_table(caption, left_out, self.plan.published)

    @cached_property
    def figures(self) -> list[Figure]:
        """The answer as a picture; none if there is nothing to draw."""
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

    @property
    def notes(self) -> list[str]:
        """What a reader has to know before believing the answer."""
        return [
            "Runs of two machines are not interleaved: the CI covers run-to-run noise, "
            "not drift between the two studies.",
        ]

    @cached_property
    def _audits(self) -> list[Audit]:
        rows = [row for pair in self.pairs for row in (pair.a, pair.b)]
        about = f"published results of {' and '.join(self.plan.published)}"
        measured = [
            Audit(
                f"runs on {machine.name}",
                [
                    finding
                    for findings in machine.audits.values()
                    for finding in findings
                ],
            )
            for machine in (self.a, self.b)
            if machine.audits
        ]
        return [*measured, *([Audit(about, audit(rows))] if rows else [])]

    @property
    def audit(self) -> Note:
        """What is suspicious about each machine's runs, and about what is published."""
        return Note([line for audit in self._audits for line in audit.summary()])

    def report(self) -> Report:
        """Return everything in one report."""
        parts = (
            *(self.table, self.costs, self.bandwidth, self.not_alike),
            *(self.side_by_side, self.differences),
            *(self.published, self.published_not_alike, self.by_source),
            findings_table(self._audits),
        )
        # What there is no table of; the first and the answer say the same.
        notes = [part for part in parts[1:] if isinstance(part, Note)]
        sentences = [sentence for note in notes for sentence in note.sentences]
        exchange = [NCCL_TESTS] if isinstance(self.bandwidth, Table) else []
        sources = [WELCH, *exchange, *_sources(self.pairs)]
        sources += SOURCES if self.matched else ()
        names = self.a.name, self.b.name
        left_out = [*self.left_out, *self._published[1]]
        report = Report(
            title=_QUESTION,
            answer=self.answer,
            conditions=" | ".join(map(_software, (self.a, self.b))),
            notes=list(dict.fromkeys([*self.notes, *sentences, *self.audit.sentences])),
            tables=[part for part in parts if isinstance(part, Table)],
            figures=self.figures,
            method=[*self.plan.notes, *HOW_MEASURED],
            sources=list(dict.fromkeys(sources)),
            result={
                **result_document(self.matched, left_out, self.pairs, *names),
                "machines": {
                    machine.name: machine.facts for machine in (self.a, self.b)
                },
                "study_id": self.study_id,
                "audit": [
                    finding for audit in self._audits for finding in audit.to_dicts()
                ],
            },
            next_step=_next_step(self.plan),
        )
        if not self._caveats:
            return report
        warned = self._told_first(report)
        # The published numbers do not depend on these runs.
        published = published_sentence(self.pairs, *self.plan.published)
        return replace(warned, notes=[*warned.notes, published])

    @cached_property
    def _caveats(self) -> list[Caveat]:
        """Why what is compared of the two machines cannot be believed."""
        reasons = [
            _of_machine(caveat, machine)
            for arm in self.matched
            for machine in (self.a, self.b)
            for caveat in caveats(
                machine.controls[arm.conditions], machine.bottlenecks[arm.conditions]
            )
        ]
        # Of what disturbs runs each kind once, of controls every one that differs.
        kinds = {
            reason.reason if reason.code == "control" else reason.code: reason
            for reason in reversed(reasons)
        }
        once = list(kinds.values())[::-1]
        # What a control shows comes first, of whichever machine.
        return sorted(once, key=lambda reason: reason.code != "control")

    def save(self) -> SavedReport:
        """Write the report into a new folder of the store.

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
        return self.report().save(folder)


def result(plan: MachinesPlan, study: Study | None) -> MachinesResult:
    """Return what the machines' runs say.

    Parameters
    ----------
    plan
        From `plan`.
    study
        From `measure`: what was measured here, if anything.
    """
    a, b = machines_of(plan, study)
    return MachinesResult(plan, a, b, None if study is None else study.study_id)


def run(plan: MachinesPlan) -> MachinesResult:
    """Measure here what a plan asks for, and compare the machines.

    Raises
    ------
    RunError
        If the runs need ``trust``, see `measure`; nothing is started then.
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
    return compared.save()


def _of_machine(caveat: Caveat, machine: Machine) -> Caveat:
    """Return a caveat that names its machine; what disturbs runs does so already."""
    if caveat.code != "control":
        return caveat
    return replace(caveat, reason=f"on {machine.name}, {caveat.reason}")


def _sources(pairs: Sequence[MachinePair]) -> list[Source]:
    rows = [row for pair in pairs for row in (pair.a, pair.b)]
    cited = {(f"{row.source}, {row.year}", row.url): None for row in rows}
    return [Source(text, url) for text, url in cited]


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
    command = papermill_command("machines", {})
    if plan.is_example:
        return (
            "run the same study on two machines, nbkit.export(study, 'one.zip') on "
            f"each, and copy both files here: {command} -p bundles one.zip,other.zip"
        )
    if not plan.arms:
        bundles = shlex.quote(",".join(plan.parameters["bundles"]))
        return f"measure here too: {command} -p bundles {bundles} -p measure true"
    return "nbkit.export the study measured here, to compare it on other machines."
