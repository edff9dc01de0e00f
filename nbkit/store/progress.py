"""Progress of a run, from the last lines of its metrics file."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nbkit.reading import parse_object, read_end
from nbkit.statistics import images_per_second, latency_timings

_TAILS_BYTES = (1 << 15, 1 << 20, 1 << 25)
"""Of the end of a file, as much as is needed for a line that tells where the run is: a
line of a function's or plug-in's own numbers may be long."""
RATE_STEPS = 20
"""The rate is that of so many newest measured steps: warm-up is left out."""
WITH_STEPS = ("train", "load")
"""Tasks that take batches of images, one step after the other."""
_LOGGED = {"loss", "images_per_second"}
"""What a function's own values may tell of its progress."""


def total_steps(config: dict[str, Any]) -> int | None:
    """Return a run's steps; None for a function, or where time sets the end."""
    return config.get("steps") if config.get("task", "train") in WITH_STEPS else None


def progress(metrics: Path) -> dict[str, Any]:
    """Return step, loss and rate of a run, as far as it tells them."""
    newest, lines = _last_positions(metrics)
    if newest is None:
        return {}
    if newest["kind"] == "inference":
        [timing] = latency_timings([newest]).values()
        rate = round(timing.images_per_second, 2)
        return {"step": None, "loss": None, "images_per_second": rate}
    find = _last_steps if newest["kind"] == "step" else _last_logs
    values = {"step": newest["step"], **find(itertools.chain([newest], lines))}
    for name, value in values.items():
        if value is not None and not isinstance(value, int | float):
            message = f"{name} is {value!r:.40}, not a number"
            raise ValueError(message)
    return values


def end_words(state: str, cause: Mapping[str, Any]) -> str:
    """Return how a run ended, and why: ``failed on rank 3 (n2): out of memory``."""
    why = str(cause.get("message") or "")
    # "stopped: stopped by user" says it twice.
    if why.startswith(state):
        return why
    node = f" ({cause['node']})" if cause.get("node") else ""
    where = "" if cause.get("rank") is None else f" on rank {cause['rank']}{node}"
    return ": ".join(filter(None, (f"{state}{where}", why)))


def queue_words(queue: Mapping[str, Any]) -> str:
    """Return a run's position in the queue, if known, and why it waits."""
    reason = str(queue.get("reason"))
    if queue.get("position") is None:
        return reason
    return f"position {queue['position']} of {queue.get('length')}: {reason}"


def newest_rate(steps: Sequence[Mapping[str, Any]]) -> float | None:
    """Return images per second now, over the newest steps; None without one."""
    rate = images_per_second(steps)
    return None if rate is None else round(rate, 2)


def _last_steps(lines: Iterator[dict[str, Any]]) -> dict[str, Any]:
    newest = next(lines)
    steps = (
        line
        for line in itertools.chain([newest], lines)
        if line["kind"] == "step" and not line.get("warmup")
    )
    rate = newest_rate(list(itertools.islice(steps, RATE_STEPS)))
    values = {"loss": newest["loss"], "images_per_second": rate}
    if "total_steps" in newest:
        values["total_steps"] = newest["total_steps"]
    return values


def _last_logs(lines: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """Return each value from the newest line that has it, before any damaged one."""
    values: dict[str, Any] = {}
    total: dict[str, Any] = {}
    with contextlib.suppress(json.JSONDecodeError):
        for line in lines:
            if line["kind"] == "log":
                values = {**line["values"], **values}
            if "total_steps" in line and not total:
                total = {"total_steps": line["total_steps"]}
            if values.keys() >= _LOGGED:
                break
    return {name: values.get(name) for name in _LOGGED} | total


def _last_positions(
    metrics: Path,
) -> tuple[dict[str, Any] | None, Iterator[dict[str, Any]]]:
    """Return the newest line that tells where the run is, and those before it."""
    lines: Iterator[dict[str, Any]] = iter(())
    for most_bytes in _TAILS_BYTES:
        try:
            data, start = read_end(metrics, most_bytes)
        except FileNotFoundError:
            break
        lines = filter(_has_position, _from_last(data, is_cut=start > 0))
        newest = next(lines, None)
        if newest is not None or not start:
            return newest, lines
    return None, lines


def _has_position(line: Mapping[str, Any]) -> bool:
    kinds = ("step", "log", "inference")
    return line["kind"] in kinds and not line.get("beside_steps")


def _from_last(data: bytes, *, is_cut: bool) -> Iterator[dict[str, Any]]:
    """Give whole lines, newest first; none is read before it is asked for."""
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    if is_cut:
        del lines[:1]  # it may be half a line
    for line in reversed(lines):
        yield parse_object(line)
