"""What `reproduce` runs again: the configuration, function and code of a run."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from nbkit.config import ExperimentConfig
from nbkit.datasets.enough import check_enough_images
from nbkit.errors import ConfigError, RunError, StoreError
from nbkit.launch.code.entry import RunEntry
from nbkit.launch.code.trust import Permit
from nbkit.launch.run import Run
from nbkit.launch.submit import existing_data
from nbkit.reading import can_enter, read_file
from nbkit.reproduction.checkout import Checkout
from nbkit.store.private import private_part
from nbkit.store.record import RunState, read_json

CodeChoice = Literal["current", "original"]
_AGAIN = "again: "
"""Before the name of a run that repeats another, to tell the two apart in lists."""


@dataclass(frozen=True)
class ReproductionPlan:
    """What is to be run again."""

    original: Run
    permit: Permit
    config: ExperimentConfig
    entry: RunEntry | None
    checkout: Checkout | None
    """None runs the code that is there now."""
    cwd: Path
    """Where the ranks run if the code is that of now."""

    @classmethod
    def of(cls, original: Run, code: CodeChoice, permit: Permit) -> Self:
        """Return what a run that `check_reproducible` lets pass executes."""
        config = original.config
        title = f"{_AGAIN}{config.title.removeprefix(_AGAIN)}"
        config = config.replace(data=existing_data(config.data), name=title)
        check_enough_images([config])
        checkout = Checkout.of(original) if code == "original" else None
        launched_in = Path(original.submission.get("cwd") or ".").absolute()
        cwd = launched_in if can_enter(launched_in) else Path.cwd()
        entry = _kept_entry(original) if config.has_entry else None
        return cls(original, permit, config, entry, checkout, cwd)


def check_reproducible(original: Run, repeats: int, code: CodeChoice) -> None:
    """Refuse what needs no look at the code of the run."""
    if repeats < 1:
        message = f"repeats={repeats} is below 1. Use 1 or more."
        raise ConfigError(message)
    if code not in ("current", "original"):
        message = f"code={code!r} is unknown. Use 'current' or 'original'."
        raise ConfigError(message)
    run_id = original.run_id
    if original.state is not RunState.FINISHED:
        message = (
            f"Run {run_id} is {original.state}. Only finished runs can be reproduced."
        )
        raise RunError(message)
    if code == "current":
        return
    if not original.config.has_entry:
        message = (
            f"code='original': run {run_id} is a {original.config.task}, which "
            "executes nbkit's own code and plug-ins; install their versions, which "
            "the warning names, and use code='current'."
        )
        raise ConfigError(message)
    tags = original.record.get("tags", {})
    if {"reproduces", "commit"} <= tags.keys():
        message = (
            f"code='original': run {run_id} is itself a reproduction. Use run "
            f"{tags['reproduces']} instead."
        )
        raise ConfigError(message)


def _kept_entry(run: Run) -> RunEntry:
    """Return the function or script of a run from the files that were kept."""
    paths = run.paths
    description = read_json(paths.entry)
    if description is None:
        message = f"Run {run.run_id} is incomplete: {paths.entry} is missing."
        raise RunError(message)
    private = private_part(paths, description)
    pickled = None
    try:
        if description["kind"] == "function":
            pickled = read_file(paths.entry_pickle, None)
        files = [source["file"] for source in description["sources"].values()]
        sources = {file: read_file(paths.source / file) for file in files}
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        message = f"Run {run.run_id} is incomplete ({error}). Import or copy it again."
        raise RunError(message) from error
    made_by, here = str(description.get("python") or ""), sys.version.split()[0]
    if pickled is not None and made_by.split(".")[:2] != here.split(".")[:2]:
        message = (
            f"Function of run {run.run_id} was pickled by Python {made_by}, this is "
            f"{here}. Use the same minor version."
        )
        raise RunError(message)
    task, name = run.config.task, str(description["name"])
    return RunEntry(task, name, description, private, pickled, sources)
