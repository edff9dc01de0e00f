"""`reproduce`: repetition of a recorded run."""

from __future__ import annotations

import hashlib
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from nbkit import statistics
from nbkit.config import ExperimentConfig
from nbkit.datasets.enough import check_enough_images
from nbkit.errors import ConfigError, RunError, StoreError
from nbkit.launch.code.entry import RunEntry, stored_entry
from nbkit.launch.code.provenance import describe_code, describe_environment
from nbkit.launch.code.trust import Permit, permit_run
from nbkit.launch.code.variables import rank_variables
from nbkit.launch.run import Run, attach
from nbkit.launch.start import start_run
from nbkit.launch.submit import existing_data, variables_set
from nbkit.reading import can_enter, read_file
from nbkit.reproduction.comparison import code_facts, environment_facts, run_facts
from nbkit.reproduction.differences import (
    Difference,
    RunFacts,
    difference_table,
    differences,
)
from nbkit.reproduction.outcome import Reproduction, compare_losses
from nbkit.store.paths import RunPaths
from nbkit.store.record import RunState
from nbkit.studies.progress import Progress
from nbkit.studies.study import Study
from nbkit.telemetry.machine import describe_machine

_NOTHING = "–"
_MOST_WARNED = 20
_AGAIN = "again: "
"""Before the name of a run that repeats another, to tell the two apart in lists."""


@dataclass(frozen=True)
class ReproductionPlan:
    """What is to be run again."""

    original: Run
    permit: Permit
    config: ExperimentConfig
    entry: RunEntry | None
    cwd: Path
    """Where the ranks run."""

    @classmethod
    def of(cls, original: Run, permit: Permit) -> Self:
        """Return what a new run of a finished one executes."""
        config = original.config
        title = f"{_AGAIN}{config.title.removeprefix(_AGAIN)}"
        config = config.replace(data=existing_data(config.data), name=title)
        check_enough_images([config])
        launched_in = Path(original.submission.get("cwd") or ".").absolute()
        cwd = launched_in if can_enter(launched_in) else Path.cwd()
        entry = stored_entry(original.paths) if config.has_entry else None
        return cls(original, permit, config, entry, cwd)


def reproduce(
    run: Run | str,
    *,
    repeats: int = 1,
    strict: bool = False,
    progress: bool = True,
    trust: bool = False,
) -> Reproduction:
    """Repeat a run from its record, and compare the result with the original.

    Blocks until the new runs have ended; an interrupt stops the current one. Cells and
    scripts are the recorded ones, but modules are imported in their current version.

    Parameters
    ----------
    run
        A finished run, or its id. The new runs use its stored configuration, and its
        script or its function with the arguments.
    repeats
        Number of new runs, executed in sequence and named ``again: NAME``. An interval
        needs two runs on both sides, a verdict five.
    strict
        Raise an error if any recorded value differs: before the first run starts, or
        after a run for values that are known only then.
    progress
        Show the progress.
    trust
        Also execute an imported run, or one that other users own or can write; what it
        executes is printed first.

    Returns
    -------
    Reproduction
        ``run``, ``runs``, ``differences``, ``ratio``, ``losses``, ``sentence``;
        printed as a table.

    Raises
    ------
    RunError
        If the run has not finished, needs ``trust``, or cannot be run here (its files
        are incomplete, or its function was pickled by another Python version); with
        `strict`, also if anything differs.
    ConfigError
        If ``run`` is not a run, `repeats` is below 1, or the data does not exist.
    RunFailedError, RunStoppedError
        If a new run fails, or is stopped.

    Warns
    -----
    UserWarning
        If packages, environment, code, folder or machine differ, with both values.

    Notes
    -----
    A run executes its author's code: only trust runs of people you trust. To repeat it
    with its own modules, first check out ``run.record["code"]["commit"]`` and apply
    ``code/diff.patch`` from its folder.

    Examples
    --------
    >>> nbkit.reproduce(nbkit.runs()[0]).sentence  # doctest: +SKIP
    """
    original = attach(run) if isinstance(run, str) else run
    if not isinstance(original, Run):
        message = f"run={original!r:.60} is not a run. Pass a run or its id."
        raise ConfigError(message)
    if repeats < 1:
        message = f"repeats={repeats} is below 1. Use 1 or more."
        raise ConfigError(message)
    if original.state is not RunState.FINISHED:
        message = (
            f"Run {original.run_id} is {original.state}. Only finished runs can be "
            "reproduced."
        )
        raise RunError(message)
    permit = permit_run(original.paths, trust=trust)
    plan = ReproductionPlan.of(original, permit)
    before = [*differences_now(plan)]
    if before:
        table = difference_table(before[:_MOST_WARNED], "original", "now")
        if len(before) > _MOST_WARNED:
            table += f"\n… and {len(before) - _MOST_WARNED} more"
        message = f"Run {original.run_id} was recorded under other conditions:\n{table}"
        if strict:
            _refuse(message)
        warnings.warn(message, stacklevel=2)
    shown = Progress(f"reproduce {original.run_id}", repeats, quiet=not progress)
    runs: list[Run] = []
    for number in range(repeats):
        shown.start(f"run {number + 1}")
        runs.append(_run_once(plan, shown))
        if strict and (after := _all_differences(plan, runs, before)):
            table = difference_table(after, "original", "now")
            _refuse(f"Run {runs[-1].run_id} differs from {original.run_id}:\n{table}")
    shown.close()
    return _reproduction(plan, runs, before)


def _run_once(plan: ReproductionPlan, shown: Progress) -> Run:
    """Launch, and wait for the end."""
    run = start_run(
        plan.config,
        plan.entry,
        permit=plan.permit,
        on_owner_exit="stop",
        parameter_sources=plan.original.submission.get("parameter_sources", {}),
        tags={"reproduces": plan.original.run_id},
        environment=plan.original.submission.get("environment"),
        cwd=plan.cwd,
    )
    try:
        run.wait(on_poll=shown.poll)
    except BaseException as error:
        if not run.state.is_final:
            is_interrupt = isinstance(error, KeyboardInterrupt)
            run.stop(by="interrupt" if is_interrupt else "an error in the notebook")
        raise
    finally:
        shown.end(run)
    return run


def _reproduction(
    plan: ReproductionPlan, runs: Sequence[Run], before: Sequence[Difference]
) -> Reproduction:
    original = plan.original
    beside = [same_run.summary.images_per_second for same_run in _same_arm(original)]
    rates = [run.summary.images_per_second for run in runs]
    known = [[rate for rate in arm if rate] for arm in (rates, beside)]
    ratio = None
    if known == [rates, beside] and not any(run.nonfinite for run in (original, *runs)):
        ratio = statistics.ratio(
            known[0], known[1], a_name="reproduction", b_name="original"
        )
    return Reproduction(
        original=original,
        runs=tuple(runs),
        differences=tuple(_all_differences(plan, runs, before)),
        ratio=ratio,
        between_runs=statistics.summarise(known[1]) if known[1] else None,
        losses=compare_losses(original, runs),
    )


def _same_arm(original: Run) -> list[Run]:
    """Return the runs of the original's arm, if a study has made it, else itself."""
    tags = original.record.get("tags") or {}
    if "study" in tags and "arm" in tags:
        try:
            arm = Study.open(tags["study"]).runs_by_arm().get(tags["arm"], [])
        except StoreError:
            arm = []  # the study's folder was removed
        if original.run_id in [run.run_id for run in arm]:
            return arm
    return [original]


# What differs


def differences_now(plan: ReproductionPlan) -> Iterator[Difference]:
    """Yield what is known to differ before a run starts."""
    record = plan.original.record
    with variables_set(plan.original.submission.get("environment") or {}):
        variables = rank_variables(plan.original.config, plan.original.paths)
    with tempfile.TemporaryDirectory() as folder:
        here = RunPaths(Path(folder))
        now = {
            "code": code_facts(describe_code(plan.cwd, here), here),
            "environment": environment_facts(describe_environment(here, variables)),
            "machine": describe_machine(gpus=False),
            "packages": _packages(here),
        }
    then = {
        "code": code_facts(record.get("code") or {}, plan.original.paths),
        "environment": environment_facts(record.get("environment") or {}),
        "machine": record.get("machine") or {},
        "packages": _packages(plan.original.paths),
    }
    if plan.config.engine != "local":
        # The machine of a job, and what Slurm gives it, is known once that has run.
        for facts in (now, then):
            del facts["machine"]
            given = facts["environment"]["variables"]
            rest = {k: v for k, v in given.items() if not k.startswith("SLURM")}
            facts["environment"]["variables"] = rest
    candidates = differences(
        [RunFacts(plan.original.run_id, None, then)], [RunFacts("now", None, now)]
    )
    yield from _counted(candidates)
    yield from _differences_of_code(plan)


def _all_differences(
    plan: ReproductionPlan, runs: Sequence[Run], before: Sequence[Difference]
) -> list[Difference]:
    """Return what the runs have recorded, and what only was seen before them."""
    facts = [run_facts(run) for run in runs]
    only_before = ("packages", "source", "folder")
    return [
        *_counted(differences([run_facts(plan.original)], facts)),
        *(difference for difference in before if difference.part in only_before),
    ]


def _counted(candidates: Iterator[Difference]) -> Iterator[Difference]:
    for difference in candidates:
        # Every package is compared apart.
        if not (
            difference.part == "environment" and difference.name.startswith("packages.")
        ):
            yield difference


def _packages(paths: RunPaths) -> dict[str, str]:
    try:
        lines = read_file(paths.code / "packages.txt").decode().splitlines()
    except FileNotFoundError:
        return {}
    return {name: version for name, _, version in (x.partition("==") for x in lines)}


def _differences_of_code(plan: ReproductionPlan) -> Iterator[Difference]:
    launched_in = plan.original.submission.get("cwd")
    if launched_in != str(plan.cwd):
        yield Difference("folder", "cwd", launched_in or _NOTHING, str(plan.cwd))
    if plan.entry is None:
        return
    for path, source in plan.entry.description["sources"].items():
        # Cells and the script are run as they were kept.
        if source["file"].startswith("modules/"):
            then = _hash(plan.entry.sources[source["file"]])
            try:
                now = _hash(Path(path).read_bytes())
            except OSError:
                now = _NOTHING
            if then != now:
                yield Difference("source", path, then, now)


def _hash(content: bytes) -> str:
    return f"sha256 {hashlib.sha256(content).hexdigest()[:12]}"


def _refuse(message: str) -> None:
    text = f"{message}\nRemove the differences, or set strict=False."
    raise RunError(text)
