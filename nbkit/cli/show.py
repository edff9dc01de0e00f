"""`nbkit show`, `logs`, `diagnose` and `stacks`: one run."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from nbkit.cli.command import Commands, add_command
from nbkit.cli.text import aligned, write_json, write_lines
from nbkit.errors import ConfigError
from nbkit.live.log_tail import LINES, MOST_LINES

if TYPE_CHECKING:
    from nbkit.launch.run import Run
    from nbkit.live.run import LiveRun


_LOG_LINES = 20
_MOST_DEVICES = 16
_MOST_IMAGES = 16


def add_to(commands: Commands) -> None:
    """Add the commands."""
    parser = add_command(
        commands,
        "show",
        _show,
        summary="show one run: state, cause, configuration, devices, rates, log",
        description="Show the state, its cause, progress, throughput (images/s over "
        "the n measured steps; median and quartiles per step), non-default settings, "
        "data (with skipped files and reasons) and devices of a run. After a failure, "
        "also show the last log lines of the first failed rank.",
        example="nbkit show k3f9",
    )
    _add_run(parser)
    parser.add_argument(
        "--lines",
        type=int,
        metavar="N",
        help="show the last N log lines, at most 500: after a failure, of the first "
        f"failed rank, or else of the supervisor (default: {_LOG_LINES}, or 0 if a "
        "traceback is shown); otherwise, of rank 0 (default: 0)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the run's record as JSON"
    )

    parser = add_command(
        commands,
        "logs",
        _logs,
        summary="print the last lines of a rank's output",
        description="Print the last lines of a rank's output in the newest attempt.",
        example="nbkit logs k3f9 --rank 1 --stream stderr",
    )
    _add_run(parser)
    parser.add_argument(
        "--rank", type=int, default=0, metavar="N", help="global rank (default: 0)"
    )
    parser.add_argument(
        "--stream",
        choices=("stdout", "stderr"),
        default="stdout",
        help="output stream (default: stdout)",
    )
    parser.add_argument(
        "--lines",
        type=int,
        default=LINES,
        metavar="N",
        help=f"the last N lines, at most {MOST_LINES:,} (default: {LINES})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")

    parser = add_command(
        commands,
        "diagnose",
        _diagnose,
        summary="state a run's bottleneck, the evidence for it and what to try",
        description="State the bottleneck of an active or ended run (such as input, "
        "gradient all-reduce or a slow rank), the evidence for it and what to try.",
        example="nbkit diagnose k3f9",
    )
    _add_run(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")

    parser = add_command(
        commands,
        "stacks",
        _stacks,
        summary="print the Python stack of each rank of an active run",
        description="Print where each rank of a run on this host is now: the Python "
        "stack of its main thread and of its loading processes. The run continues.",
        example="nbkit stacks k3f9",
    )
    _add_run(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run id, or its last characters")


def _show(arguments: argparse.Namespace) -> int:
    from nbkit.launch.run import attach
    from nbkit.store.record import report_corruption

    run = attach(arguments.run)
    if arguments.json:
        # Last: the record of a run whose supervisor has died says what was.
        now = {"run_id": run.run_id, "state": str(run.state), "cause": run.cause}
        write_json({**run.record, **now})
        return 0
    with report_corruption(run.paths.root):
        write_lines(_lines(run, arguments.lines))
    return 0


def _logs(arguments: argparse.Namespace) -> int:
    from nbkit.launch.run import attach
    from nbkit.live.run import LiveRun

    run = attach(arguments.run)
    rank, stream = arguments.rank, arguments.stream
    if rank not in range(run.config.world_size):
        last = run.config.world_size - 1
        use = f"0 to {last}" if last else "0"
        message = f"rank={rank} is not a rank of {run.run_id}. Use {use}."
        raise ConfigError(message)
    last = LiveRun(run).log(rank, stream, num_lines=arguments.lines).last()
    lines = [*last["lines"], *filter(None, [last["open_line"]])]
    if arguments.json:
        text = "\n".join(lines)
        write_json({"run_id": run.run_id, "rank": rank, "stream": stream, "text": text})
    else:
        write_lines(lines)
    return 0


def _diagnose(arguments: argparse.Namespace) -> int:
    from nbkit.launch.run import attach

    diagnosis = attach(arguments.run).diagnose()
    if arguments.json:
        write_json(diagnosis.to_dict())
    else:
        write_lines([str(diagnosis)])
    return 0


def _stacks(arguments: argparse.Namespace) -> int:
    from nbkit.launch.run import attach

    by_rank = attach(arguments.run).stacks()
    if arguments.json:
        write_json({str(rank): text for rank, text in by_rank.items()})
        return 0
    for rank, text in by_rank.items():
        write_lines([f"rank {rank}", text or "no answer within 5 s", ""])
    return 0


def _lines(run: Run, log_lines: int | None) -> list[str]:
    # Imported here, since it takes half a second.
    from nbkit.config.fields import changed_fields
    from nbkit.live.run import LiveRun
    from nbkit.store.private import program_fields
    from nbkit.store.record import read_json
    from nbkit.widgets.picture import picture

    live = LiveRun(run)
    live.read()
    lines = picture(live)["text/plain"].splitlines()
    changed = program_fields(run.paths)
    changed |= changed_fields(read_json(run.paths.config) or {})
    lines += _section("Non-default settings", changed.items())
    data = run.worker.get("data") or {}
    lines += _section("Data", _data(data))
    lines += _section("Unreadable images", _unreadable(data))
    lines += _section("Devices", _devices(run.worker).items())
    lines += _section("Slurm", _job(run).items())
    lines += ["", f"Folder: {run.paths.root} (output of ranks: logs/)"]
    if live.snapshot()["head"]["can_resume"]:
        lines.append(f"Next: nbkit.attach({run.run_id!r}).resume() continues the run ")
        lines[-1] += "from its newest checkpoint"
    return [*lines, *_log(live, log_lines)]


def _section(title: str, values: Collection[tuple[str, Any]]) -> list[str]:
    if not values:
        return []
    rows = [(f"  {name}", str(value)) for name, value in values]
    return ["", f"{title}:", *aligned(rows)]


def _data(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a run reads, and how much it does not."""
    from nbkit.datasets.skipped_files import in_words

    rows: list[tuple[str, str]] = []
    if source := data.get("fingerprint"):
        kind = f" ({source['kind']})" if source.get("kind") else ""
        rows.append(("source", f"{source['source']}{kind}"))
    # A plug-in's loader may describe less.
    if train := data.get("train_images"):
        dropped = data.get("dropped_images")
        few = f", {dropped:,} dropped (fewer than a global batch)" if dropped else ""
        rows.append(("training images", f"{train:,} per epoch{few}"))
    if evaluation := data.get("evaluation_images"):
        rows.append(("evaluation images", f"{evaluation:,}"))
    if empty := data.get("classes_without_training_images"):
        of = f" of {data['num_classes']:,}" if data.get("num_classes") else ""
        rows.append(("empty classes", f"{empty:,}{of} without training images"))
    rows += [("note", note) for note in data.get("notes") or ()]
    if count := _count(data, "unreadable"):
        rows.append(("unreadable images", f"{count:,}"))
    if count := _count(data, "high_bit_depth"):
        rows.append(
            (
                "grayscale images",
                f"{count:,} with {_high_bit_depth(data['high_bit_depth'])}",
            )
        )
    if count := _count(data, "skipped_files"):
        kinds = in_words(data["skipped_files"].get("kinds") or {}) or "unknown"
        rows.append(("skipped files", f"{count:,} ({kinds})"))
    return rows


def _high_bit_depth(high_bit_depth: Mapping[str, Any]) -> str:
    """Return how images of more than 8 bits are read, and how many lose most by it."""
    depth = "more than 8 bits, converted to 8"
    if not (coarse := high_bit_depth.get("coarse")):
        return depth
    first = (high_bit_depth.get("first") or ["unknown"])[0]
    more = f" and {coarse - 1:,} more" if coarse > 1 else ""
    return f"{depth}; {coarse:,} of them keep 16 or fewer gray levels ({first}{more})"


def _unreadable(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return names of images and why they are not read; the record has others."""
    if not (count := _count(data, "unreadable")):
        return []
    images = data["unreadable"].get("images") or []
    rows = [
        (image.get("name", "unknown"), image.get("reason", "unknown"))
        for image in images[:_MOST_IMAGES]
    ]
    if more := count - len(rows):
        rows.append(("more", f"{more:,} (worker.json lists {len(images):,})"))
    return rows


def _count(data: Mapping[str, Any], what: str) -> int:
    """Return how many there are; synthetic images have no such record."""
    return (data.get(what) or {}).get("count", 0)


def _devices(worker: Mapping[str, Any]) -> dict[str, str]:
    """Return on what each rank computes, once the ranks have met."""
    devices = worker.get("devices") or []
    rows = {
        f"rank {device['rank']}": " ".join(
            filter(None, [device["name"], device["uuid"]])
        )
        for device in devices[:_MOST_DEVICES]
    }
    if len(devices) > _MOST_DEVICES:
        rows["more ranks"] = str(len(devices) - _MOST_DEVICES)
    return rows


def _job(run: Run) -> dict[str, str]:
    """Return which job of Slurm it is, or was, and where; nothing of other engines."""
    submitted = run.submission.get("job") or {}
    job = submitted | ((run.record.get("launch") or {}).get("job") or {})
    nodes = job.get("nodes") or []
    more = f" and {len(nodes) - _MOST_DEVICES} more" * (len(nodes) > _MOST_DEVICES)
    named = {"job": job.get("id"), "cluster": job.get("cluster")}
    named["nodes"] = ", ".join(nodes[:_MOST_DEVICES]) + more
    return {name: str(value) for name, value in named.items() if value}


def _log(live: LiveRun, num_lines: int | None) -> list[str]:
    """Return the end of a log: of the rank that failed first, or what rank 0 says."""
    from nbkit.store.record import RunState

    has_failed = live.state in (RunState.FAILED, RunState.LOST)
    cause = (live.run.cause or {}) if has_failed else {"rank": 0}
    # A log ends with the traceback, which is shown above.
    is_needed = has_failed and not cause.get("traceback")
    count = _LOG_LINES * is_needed if num_lines is None else max(0, num_lines)
    if not count:
        return []
    rank = cause.get("rank")
    last = live.log(-1 if rank is None else rank, "stderr").last()
    if not has_failed:
        printed = live.log(0, "stdout").last()
        last = printed if printed["lines"] or printed["open_line"] else last
    lines = [*last["lines"], *filter(None, [last["open_line"]])][-count:]
    who = "the supervisor" if rank is None else f"rank {rank}"
    return ["", f"Last lines of {who}:", *(f"  {line}" for line in lines)]
