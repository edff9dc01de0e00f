"""`nbkit runs`, `nbkit stop` and `nbkit sweep`: the runs of the store."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from nbkit.cli.command import REFUSED, Commands, add_command
from nbkit.cli.text import aligned, say, write_json, write_lines
from nbkit.errors import ConfigError, NbkitError, StoreError

if TYPE_CHECKING:
    from nbkit.launch.run import Run


_LIMIT = 20
_COLUMNS = ("Run", "Name", "State", "Model", "Ranks", "Images/s", "Duration", "Age")
_MARKS = "<<<<>>>>"
_OF_A_MODEL = ("train", "inference")


def add_to(commands: Commands) -> None:
    """Add the commands."""
    parser = add_command(
        commands,
        "runs",
        _runs,
        summary="list the runs of the store, newest first",
        description="List the runs of the store, newest first. Images/s is the "
        "throughput of all ranks over the measured steps, or over the last 20 steps "
        "of an active run; without measured steps, the last logged value. Duration is "
        "the time for which ranks ran; age is the time since the first start. A dash "
        "means unknown.",
        example="nbkit runs --state running",
    )
    parser.add_argument(
        "--state",
        help="list only runs in this state: queued, starting, running, stopping, "
        "finished, failed, stopped, lost or unknown",
    )
    parser.add_argument(
        "--limit",
        type=_limit,
        default=_LIMIT,
        metavar="N",
        help="list at most N runs; N is a number or all (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")

    parser = add_command(
        commands,
        "stop",
        _stop,
        summary="stop runs; training runs after their next step, with a checkpoint",
        description="Stop runs. Training runs end after their next step, with a "
        "checkpoint. A function or script that calls nbkit.context().should_stop() or "
        "handles SIGTERM ends by itself; otherwise, it is terminated immediately. "
        "Processes that are still running after the grace period are killed. The "
        "command waits for all runs to end and prints the outcome of each.",
        example="nbkit stop k3f9",
    )
    parser.add_argument("run", nargs="*", metavar="RUN", help="the runs to stop")
    parser.add_argument(
        "--all", action="store_true", help="stop every active run of this store"
    )
    parser.add_argument(
        "--grace",
        type=float,
        metavar="SECONDS",
        help="grace period before a run is killed, in seconds, 0 to 86,400 (default: "
        "stop_grace_seconds of each run)",
    )

    parser = add_command(
        commands,
        "sweep",
        _sweep,
        summary="kill orphaned processes of runs without a supervisor",
        description="Find and kill processes on this host whose supervisor was "
        "killed. Usually there are none.",
        example="nbkit sweep",
    )
    parser.add_argument("run", nargs="?", metavar="RUN", help="check only this run")


def _limit(text: str) -> int | None:
    if text == "all":
        return None
    if not text.isdecimal():
        message = f"{text!r} is neither an integer of 0 or more nor 'all'"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def _runs(arguments: argparse.Namespace) -> int:
    from nbkit.launch.run import runs

    selected = runs(arguments.state)
    shown = selected[: arguments.limit]
    rows = _rows(list(shown))
    if arguments.json:
        write_json(rows)
        return 0
    if not selected:
        say("No runs." if arguments.state is None else f"No {arguments.state} runs.")
        return 0
    if rows:
        write_lines(aligned([_COLUMNS, *map(_cells, rows)], _MARKS))
    if len(selected) > len(shown):
        say(f"{len(selected) - len(shown):,} more: add --limit all")
    return 0


def _rows(runs: list[Run]) -> list[dict[str, Any]]:
    """Return rows as a notebook's table has them, with the model."""
    from nbkit.live.rows import run_numbers, run_rows

    handles = {run.run_id: run for run in runs}
    rows: list[dict[str, Any]] = []
    for row in run_rows(runs):
        run = handles[row["run_id"]]
        numbers = run_numbers(run)
        if numbers is None:
            continue  # removed a moment ago
        rows.append({**row, "model": _model(run), **numbers})
    return rows


def _model(run: Run) -> str | None:
    """Return the model, or the task of a run without one; None if unknown."""
    from nbkit.store.record import read_json

    try:
        config = read_json(run.paths.config) or {}
    except StoreError:
        return None  # one damaged run must not hide the others
    task = config.get("task", "train")
    return config.get("model") if task in _OF_A_MODEL else task


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    from nbkit.live.rows import state_words
    from nbkit.statistics.quantities import UNKNOWN, elapsed, figures

    started = row["started_at"]
    age_seconds = None if started is None else time.time() - started
    return (
        row["run_id"],
        row["name"] or UNKNOWN,
        state_words(row),
        row["model"] or UNKNOWN,
        UNKNOWN if row["gpus"] is None else str(row["gpus"]),
        figures(row["images_per_second"]),
        elapsed(row["duration_seconds"]),
        elapsed(age_seconds),
    )


def _stop(arguments: argparse.Namespace) -> int:
    from nbkit.launch.run import attach, runs
    from nbkit.launch.supervision.requests import checked_grace

    if arguments.grace is not None:
        checked_grace(arguments.grace)
    if bool(arguments.run) == arguments.all:
        message = (
            "nbkit stop: runs and --all cannot be combined. Use one of them."
            if arguments.run
            else "nbkit stop: no run is specified. Name runs, or use --all."
        )
        raise ConfigError(message)
    chosen: list[Run] = (
        [run for run in runs() if _is_active(run)]
        if arguments.all
        else [attach(name) for name in arguments.run]
    )
    if not chosen:
        say("No active runs.")
    refused = _stop_each(chosen, arguments.grace)
    for run_id, error in refused.items():
        say(f"nbkit: {run_id} was not stopped: {error}")
    return REFUSED if refused else 0


def _is_active(run: Run) -> bool:
    try:
        return not run.state.is_final
    except StoreError:
        return False  # as every list has it, a damaged run is lost


def _stop_each(chosen: list[Run], grace_seconds: float | None) -> dict[str, NbkitError]:
    """Stop runs and wait for them; return why some were not, by their ids."""
    from nbkit.store.progress import end_words

    refused: dict[str, NbkitError] = {}

    @contextmanager
    def each(run: Run) -> Iterator[None]:
        """Stop the others even if one cannot be stopped."""
        try:
            yield
        except NbkitError as error:
            refused[run.run_id] = error

    # All are asked before one is waited for.
    asked: set[str] = set()
    for run in chosen:
        with each(run):
            if not run.state.is_final:
                asked.add(run.run_id)
                run.stop(grace_seconds, wait=False)
    for run in chosen:
        if run.run_id in refused:
            continue
        if run.run_id in asked:
            say(f"{run.run_id}: stopping")
        with each(run):
            run.stop(grace_seconds, wait=True)
            write_lines([f"{run.run_id} {end_words(run.state, run.cause or {})}"])
    return refused


def _sweep(arguments: argparse.Namespace) -> int:
    from nbkit.launch.run import attach
    from nbkit.launch.supervision.leftovers import sweep

    run_id = attach(arguments.run).run_id if arguments.run else None
    leftovers = sweep(run_id)
    if not leftovers:
        write_lines(["No leftover processes."])
        return 0
    rows = [("Run", "Process", "")]
    for leftover in leftovers:
        state = "zombie: its parent must end" if leftover.is_zombie else "still running"
        word = "ended" if leftover.ended else state
        rows.append((leftover.run_id, str(leftover.process.pid), word))
    write_lines(aligned(rows, "<><"))
    return (
        0 if all(leftover.ended or leftover.is_zombie for leftover in leftovers) else 1
    )
