"""Machines out of bundles, studies and runs; the user's store is only read.

A bundle is unpacked into a temporary store, through the checks of an
import, and what is needed of its runs is kept in memory. Reading it in place would have
to repeat those checks, and importing it would fill the user's store with runs of others
that they did not ask for.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from nbkit import statistics
from nbkit.config import ExperimentConfig
from nbkit.errors import NbkitError, ParameterError, StoreError
from nbkit.launch.run import Run, attach
from nbkit.plural import plural
from nbkit.questions.machines.facts import (
    cluster_of,
    conditions,
    identity,
    machine_facts,
    not_known,
    variables_of,
)
from nbkit.questions.machines.ratios import Conditions, MachineRun
from nbkit.reading import expanded
from nbkit.references.gpu_names import canonical_gpu_name
from nbkit.reports.auditor import audit
from nbkit.reports.bottlenecks import ArmBottlenecks
from nbkit.reports.energy_per_image import joules_per_image
from nbkit.reproduction.comparison import run_facts
from nbkit.reproduction.differences import RunFacts
from nbkit.review.findings import AuditFinding
from nbkit.statistics import NoiseFloor
from nbkit.store.bundle_import import unpack_bundle
from nbkit.store.paths import is_study, runs_folder
from nbkit.store.record import RunState
from nbkit.studies.order import twin
from nbkit.studies.starts import has_diverged
from nbkit.studies.study import Study

_UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a record of another shape leads to: a bundle's files are whole, as its sums
show, and may hold anything."""

_EXAMPLES = ("two-cpu-vm", "one-cpu-vm")


@dataclass(frozen=True)
class AllReduceRun:
    """One all-reduce measurement: bus bandwidth by message size."""

    ranks: str
    """Number of devices and nodes, and the library."""
    bus_bandwidths_bytes_per_second: dict[int, float]
    """Bus bandwidth as defined by nccl-tests, by message size in bytes."""


@dataclass(frozen=True)
class MeasuredKind:
    """A kind of run: its configuration with the values that the ranks used."""

    config: ExperimentConfig
    device_type: str | None
    batch_size_per_gpu: int | None
    omp_num_threads: str | None
    """Variable of that name, if it was set."""

    @property
    def trains_on_cpus(self) -> bool:
        """Whether its rate depends on the number of threads."""
        return self.device_type == "cpu" and self.config.task == "train"


@dataclass(frozen=True)
class Machine:
    """One machine in one state, from the records of its runs."""

    name: str
    runs: Sequence[MachineRun]
    """Training runs that have finished or diverged."""
    bandwidths: Sequence[AllReduceRun]
    facts: dict[str, str | None]
    """Facts for the comparison with another machine."""
    audits: Mapping[Conditions, Sequence[AuditFinding]]
    """Audit findings on the runs with these conditions."""
    bottlenecks: Mapping[Conditions, ArmBottlenecks]
    """Bottlenecks of the runs, with the machine's name."""
    controls: Mapping[Conditions, Sequence[NoiseFloor]]
    """Noise floors from the A/A controls of their studies."""
    records: Sequence[RunFacts]
    """All recorded facts, to list further differences."""
    kinds: Sequence[MeasuredKind]
    """One run of each kind, to measure the same elsewhere."""
    first: str
    """When the first of its runs started (UTC)."""
    last: str


@dataclass
class _Reading:
    """What was read so far, and what could not be."""

    model: str | None
    precision: Sequence[str] | None
    runs: dict[str, Run] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, run: Run, source: str) -> None:
        """Keep a run if it is asked for, and can be compared with any other."""
        config = run.config
        if config.task == "train" and (
            self.model not in (None, config.model)
            or config.precision not in (self.precision or [config.precision])
        ):
            return
        why = why_not_comparable(run)
        if why is None:
            self.runs.setdefault(run.run_id, run)
        else:
            self.notes.append(f"Omitted: run {run.run_id} of {source}, {why}.")


def example_bundles() -> list[Path]:
    """Return the bundles that come with nbkit.

    They were recorded on one virtual machine (KVM, 2 CPUs of an Intel Xeon with AMX,
    24 GB, no GPU), once with both CPUs and once restricted to one CPU. They only
    demonstrate the comparison; the numbers do not apply to GPUs.
    """
    folder = resources.files("nbkit.questions.machines") / "bundles"
    return [Path(str(folder / f"{name}.zip")) for name in _EXAMPLES]


def read_bundles(
    entries: Sequence[str],
    model: str | None = None,
    precision: Sequence[str] | None = None,
) -> tuple[list[Machine], list[str]]:
    """Return the machines of bundles, studies and runs, and notes on omitted runs."""
    reading, errors = _Reading(model, precision), []
    with tempfile.TemporaryDirectory(prefix="nbkit-machines-") as folder:
        for number, entry in enumerate(entries):
            try:
                _read(entry, Path(folder) / str(number), reading)
            except NbkitError as error:
                errors.append(f"bundles: {error}")
            except _UNREADABLE as error:
                errors.append(f"bundles: {_not_nbkits(entry, error)}")
        if errors:
            raise ParameterError("\n".join(errors))
        try:
            return _machines(list(reading.runs.values())), reading.notes
        except _UNREADABLE as error:
            message = f"bundles: {_not_nbkits(' or '.join(entries), error)}"
            raise ParameterError(message) from error


def _machines(runs: Sequence[Run]) -> list[Machine]:
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(identity(run), []).append(run)
    names = _names(list(groups.values()))
    return [
        machine_of(members, name)
        for members, name in zip(groups.values(), names, strict=True)
    ]


def _not_nbkits(entry: str, error: BaseException) -> str:
    return (
        f"{entry} contains an invalid record ({type(error).__name__}: {error}). Export "
        "it again, or omit it."
    )


def machine_of(runs: Sequence[Run], name: str) -> Machine:
    """Return the machine of these runs, and read the runs."""
    training = [run for run in runs if run.config.task == "train"]
    others = [run for run in runs if run.config.task == "allreduce"]
    started = sorted(str(run.record["time"]["started"]) for run in runs)
    alike: dict[Conditions, list[Run]] = {}
    for run in training:
        alike.setdefault(tuple(conditions(run).items()), []).append(run)
    floors = _controls(training, name)
    kinds: dict[str, MeasuredKind] = {}
    for run in runs:
        summary = run.summary
        kind = MeasuredKind(
            run.config,
            summary.device_type,
            summary.batch_size_per_gpu,
            variables_of(run).get("OMP_NUM_THREADS"),
        )
        kinds.setdefault(_kind(run), kind)
    return Machine(
        name=name,
        runs=[_machine_run(run) for run in training],
        bandwidths=[_allreduce_run(run) for run in others],
        facts=machine_facts(training or others),
        audits={key: audit(alike[key]) for key in alike},
        bottlenecks={key: ArmBottlenecks({name: alike[key]}) for key in alike},
        controls={
            key: [
                floors[study]
                for study in dict.fromkeys(map(_study, alike[key]))
                if study in floors
            ]
            for key in alike
        },
        records=[run_facts(run) for run in training],
        kinds=list(kinds.values()),
        first=started[0],
        last=started[-1],
    )


def _controls(training: Sequence[Run], name: str) -> dict[str, NoiseFloor]:
    """Return what the control of each study shows, by the study's id in the runs."""
    rates: dict[tuple[str, str], list[float]] = {}
    for run in training:
        rate = run.summary.images_per_second
        if rate is not None:
            key = _study(run), str(run.record.get("tags", {}).get("arm"))
            rates.setdefault(key, []).append(rate)
    return {
        study: statistics.noise_floor(first, rates[study, twin(arm)], name=name)
        for (study, arm), first in rates.items()
        if (study, twin(arm)) in rates
    }


def _study(run: Run) -> str:
    return str(run.record.get("tags", {}).get("study"))


def _read(entry: str, store: Path, reading: _Reading) -> None:
    path = expanded(entry, "entry")
    if path.suffix == ".zip" or path.is_file() or "/" in entry:
        bundle = unpack_bundle(path, store)
        try:
            for run_id in bundle.run_ids:
                reading.add(Run(runs_folder(store) / run_id), path.name)
        except StoreError as error:
            # It names an unpacked folder that is gone when this is read.
            message = _not_nbkits(path.name, error.__cause__ or error)
            raise ParameterError(message) from error
        return
    if is_study(entry):
        study = Study.open(entry)
        for run in (
            run for runs in study.runs_by_arm(diverged=True).values() for run in runs
        ):
            reading.add(run, entry)
        if study.missing:
            missing = plural(len(study.missing), "run")
            reading.notes.append(f"Study {entry} is incomplete: {missing} missing.")
        return
    reading.add(attach(entry), "the store")


def why_not_comparable(run: Run) -> str | None:
    """Return why a run cannot be compared with any other; None if it can."""
    if run.state is not RunState.FINISHED and not has_diverged(run):
        return f"which is {run.state}"
    if run.config.task == "allreduce":
        return None if run.metrics("allreduce") else "which measured nothing"
    if run.record.get("tags", {}).get("concurrent"):
        return "which ran concurrently with other jobs of its study"
    if run.config.task != "train":
        return f"whose task is {run.config.task!r}, not 'train'"
    if run.summary.images_per_second is None and not run.nonfinite:
        return "which has no measured step"
    if run.summary.oversubscribed:
        return "in which several ranks shared a device (oversubscribe)"
    if missing := not_known(run):
        return f"which does not record: {', '.join(missing)}"
    return None


def _machine_run(run: Run) -> MachineRun:
    summary = run.summary
    return MachineRun(
        run_id=run.run_id,
        conditions=conditions(run),
        images_per_second=summary.images_per_second or 0.0,
        device_type=summary.device_type,
        data_wait_share=summary.data_wait_share,
        peak_memory_bytes=summary.peak_memory_bytes,
        joules_per_image=joules_per_image(run),
        cpu_ms_per_image=summary.cpu_ms_per_image,
        nonfinite=summary.nonfinite,
    )


def _allreduce_run(run: Run) -> AllReduceRun:
    rows = [statistics.allreduce_timing(row) for row in run.metrics("allreduce")]
    nodes = run.config.nnodes
    across = "" if nodes == 1 else f" on {nodes} nodes"
    shared = " sharing a device" if run.summary.oversubscribed else ""
    backend = run.worker.get("backend") or "unknown backend"
    return AllReduceRun(
        f"{plural(run.config.world_size, 'rank')}{across}{shared}, {backend}",
        {row.message_bytes: row.bus_bandwidth_bytes_per_second for row in rows},
    )


def _kind(run: Run) -> str:
    """Return what tells one kind of run from another, as text."""
    config = run.config
    if config.task == "allreduce":
        return f"all-reduce, {config.nnodes} x {config.gpus} ranks"
    return str(sorted(conditions(run).items()))


def _names(groups: Sequence[Sequence[Run]]) -> list[str]:
    """Return a name of each machine: host or cluster, and GPU where there is one."""
    names = [_name(runs[0]) for runs in groups]
    return [
        name if names.count(name) == 1 else f"{name} ({names[:place].count(name) + 1})"
        for place, name in enumerate(names)
    ]


def _name(run: Run) -> str:
    machine: dict[str, Any] = run.record.get("machine") or {}
    host = str(cluster_of(run) or machine.get("hostname") or "unknown host")
    device = run.summary.device_name
    if run.summary.device_type != "cuda" or device is None:
        return host
    return f"{canonical_gpu_name(device) or device} of {host}"
