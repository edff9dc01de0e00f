"""`compare`: two runs, or two arms of runs, side by side."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nbkit.errors import ConfigError, RunError, StoreError
from nbkit.launch.run import attach
from nbkit.reading import open_regular, read_file
from nbkit.references.measured import different_conditions, row_sentence
from nbkit.references.rows import PublishedRow
from nbkit.reports.caveats import run_caveat_text
from nbkit.reproduction.cpu_bindings import bound_to
from nbkit.reproduction.differences import (
    Comparison,
    Difference,
    RunFacts,
    compare_arms,
    steps_of_rate,
)
from nbkit.review.usable_arms import earliest
from nbkit.store.bundle_import import ImportedBundle
from nbkit.store.paths import RunPaths
from nbkit.store.private import PRIVATE_FIELDS, read_entry
from nbkit.store.record import RunState, read_json, report_corruption
from nbkit.store.redaction import redacted
from nbkit.store.stored_runs import StoredRun

Arm = StoredRun | str | Sequence[StoredRun]

_LARGEST_SOURCE_BYTES = 1 << 20
"""The differences of a larger file are too many to read."""

_OF_ONE_JOB = re.compile(
    r"SLURM\w*(ID|GTIDS|NODENAME|NODELIST|NODE_ALIASES|ADDR|_HOST|_PORTS?|_TIME"
    r"|JOB_(NAME|USER|GROUP)|SUBMIT_DIR|RESTART_COUNT|_PTY_WIN_(COL|ROW))"
)
"""Variables that name a job of Slurm, its user, nodes, processes or times; the others
say what it was given:
https://slurm.schedmd.com/sbatch.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES
"""


def compare(a: Arm, b: Arm | PublishedRow) -> Comparison:
    """Return how two arms differ in speed, configuration, environment and machine.

    Parameters
    ----------
    a, b
        A run, its id, or the runs of an arm (``study.runs_by_arm()["fp16"]``); runs may
        be imported. A verdict needs five runs each; with one run there is no
        interval. ``b`` may be a row of `nbkit.published`: the sentence then states both
        rates, and A's rate in percent of the row's if no known condition differs.

    Returns
    -------
    Comparison
        ``ratio``, ``sentence``, ``differences``; printed as a table.

    Raises
    ------
    RunError
        If a run has not finished.
    NotEnoughDataError
        If ``b`` is a row and a run has no images/s, or the row has none.
    RunNotFoundError
        If there is no run with that id.
    ConfigError
        If an arm is not a run, run id or list of runs, or a run is in both arms.

    Examples
    --------
    >>> nbkit.compare(nbkit.runs()[0], nbkit.runs()[1])  # doctest: +SKIP
    >>> [row, *_] = nbkit.published(publisher="nbkit")
    >>> nbkit.compare(nbkit.runs()[0], row)  # doctest: +SKIP
    """
    if isinstance(b, PublishedRow):
        return _beside_row(_runs("a", a), b)
    arms = [_runs("a", a), _runs("b", b)]
    twice = {run.run_id for run in arms[0]} & {run.run_id for run in arms[1]}
    if twice:
        message = f"Run {min(twice)} is in both arms. Use different runs."
        raise ConfigError(message)
    names = [_name(arms[0], "A"), _name(arms[1], "B")]
    if names[0] == names[1]:
        names = ["A", "B"]
    of_a, of_b = ([run_facts(run) for run in arm] for arm in arms)
    comparison = compare_arms(of_a, of_b, *names)
    caveat = run_caveat_text(dict(zip(names, arms, strict=True)), comparison.diverged)
    return replace(comparison, caveat=caveat, ratio=None) if caveat else comparison


def _beside_row(runs: Sequence[StoredRun], row: PublishedRow) -> Comparison:
    """Return an arm beside a published row, and in which conditions they differ."""
    name = _name(runs, "A")
    pairs = {
        key: pair
        for run in runs
        for key, pair in different_conditions(run, row).items()
    }
    different = tuple(
        Difference("conditions", key, str(ours), "–" if other is None else str(other))
        for key, (ours, other) in pairs.items()
    )
    nonfinite = earliest(run.summary.nonfinite for run in runs)
    lost = {} if nonfinite is None else {name: nonfinite}
    return Comparison(
        name,
        row.publisher,
        None,
        different,
        diverged=lost,
        reference="" if lost else row_sentence(runs, row, alike=not different),
        caveat=run_caveat_text({name: runs}, lost),
    )


def _runs(name: str, arm: Arm) -> list[StoredRun]:
    if isinstance(arm, str):
        arm = attach(arm)
    runs = [arm] if isinstance(arm, StoredRun) else arm
    if isinstance(arm, ImportedBundle):
        message = (
            f"{name}={arm!r} is a bundle. Pass one of its runs: "
            f'"{arm.run_ids[0]}", or a list of nbkit.attach(run_id) for several.'
        )
        raise ConfigError(message)
    if (
        not isinstance(runs, Sequence)
        or not runs
        or not all(isinstance(run, StoredRun) for run in runs)
    ):
        message = f"{name}={arm!r} is not a run, run id, or list of runs. Pass a run."
        raise ConfigError(message)
    for run in runs:
        if run.state is not RunState.FINISHED:
            message = (
                f"Run {run.run_id} is {run.state}. Only finished runs can be compared."
            )
            raise RunError(message)
    return list(runs)


def _name(runs: Sequence[StoredRun], otherwise: str) -> str:
    # A study's runs of one arm differ in the repeat.
    names = {re.sub(r", repeat \d+$", "", run.record.get("name") or "") for run in runs}
    return (names.pop() if len(names) == 1 else None) or otherwise


def run_facts(run: StoredRun) -> RunFacts:
    """Return the facts of a run that are compared."""
    with report_corruption(run.paths.root):
        return _run_facts(run)


def _run_facts(run: StoredRun) -> RunFacts:
    summary = run.summary
    record, worker = run.record, run.worker
    launch, system = record.get("launch") or {}, record.get("system") or {}
    devices = {
        "device_type": launch.get("device_type"),
        "names": ", ".join(
            sorted({str(device.get("name")) for device in worker.get("devices") or []})
        ),
        "world_size": worker.get("world_size"),
        "cpus_per_rank": launch.get("cpus_per_rank"),
        "bound_to": bound_to(run),
        "oversubscribed": launch.get("oversubscribed"),
        **{name: worker.get(name) for name in ("torch", "cuda", "cudnn", "nccl")},
        **{
            name: system.get(name) for name in ("driver_version", "cuda_driver_version")
        },
    }
    return RunFacts(
        run.run_id,
        summary.images_per_second,
        {
            "configuration": run.config.model_dump(mode="json"),
            "entry": _entry_facts(run),
            "data": {"fingerprint": (worker.get("data") or {}).get("fingerprint")},
            "code": code_facts(record.get("code") or {}, run.paths),
            "environment": environment_facts(record.get("environment") or {}),
            "machine": record.get("machine") or {},
            "storage": record.get("storage") or {},
            "devices": devices,
        },
        _code(run),
        steps_of_rate(run),
        summary.nonfinite,
    )


def _entry_facts(run: StoredRun) -> dict[str, Any]:
    """Return what distinguishes functions, scripts and arguments, if they are known."""
    # Unknown arguments are no two runs' own: each gets its own value.
    try:
        entry, reason = read_entry(run.paths) or {}, "not in its bundle"
    except StoreError:
        entry, reason = read_json(run.paths.entry) or {}, "readable by its owner only"
    if entry and "environment" not in entry:
        unknown = f"unknown, {reason} (run {run.run_id[-4:]})"
        entry |= dict.fromkeys(PRIVATE_FIELDS, unknown)
    elif entry.get("kind") == "function":
        entry["argv"] = entry.get("argv", [])[1:]  # the first is who launched it
    names = ("name", "module", *PRIVATE_FIELDS, "sha256", "pickle_sha256")
    return {name: redacted(entry[name]) for name in names if name in entry}


def _code(run: StoredRun) -> dict[str, str]:
    """Return what is kept of the code that ran, as far as it is text."""
    versions: dict[str, str] = {}
    diff = run.paths.code / "diff.patch"
    # One that the record does not name is an earlier attempt's.
    if (run.record.get("code") or {}).get("diff") and _is_short(diff):
        # Its files may have several encodings.
        content = read_file(diff, _LARGEST_SOURCE_BYTES)
        versions[diff.name] = content.decode(errors="replace")
    for path in run.paths.source.rglob("*"):
        if _is_short(path):
            with contextlib.suppress(UnicodeDecodeError):  # no text
                name = path.relative_to(run.paths.code).as_posix()
                versions[name] = read_file(path, _LARGEST_SOURCE_BYTES).decode()
    return versions


def _is_short(path: Path) -> bool:
    return path.is_file() and path.stat().st_size <= _LARGEST_SOURCE_BYTES


def code_facts(code: Mapping[str, Any], paths: RunPaths) -> dict[str, Any]:
    """Return a record's code, with the saved diff as its hash."""
    diff = paths.root / str(code.get("diff"))
    if not diff.is_file():
        return dict(code)
    with open_regular(diff) as file:
        return {**code, "diff_sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def environment_facts(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's environment without what nbkit sets, and what names a job."""
    variables = environment.get("variables") or {}
    own = {
        name: value
        for name, value in variables.items()
        if not name.startswith("NBKIT_") and not _OF_ONE_JOB.fullmatch(name)
    }
    return {**environment, "variables": own}
