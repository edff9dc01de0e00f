"""Where a run is, from the end of its file of metrics."""

from __future__ import annotations

import json
import os
from pathlib import Path
from statistics import median
from typing import Any

from nbkit.statistics import step_images_per_second

__all__ = ["progress", "total_steps"]

_TAIL_BYTES = 1 << 15
_STEPS = 20
"""The rate is the median of so many newest steps."""


def total_steps(config: dict[str, Any]) -> int | None:
    """Return how many steps a run has; how many a function takes nobody knows."""
    return config.get("steps") if config.get("task", "train") == "train" else None


def progress(metrics: Path) -> dict[str, Any]:
    """Return step, loss and rate of a run, as far as it tells them.

    Parameters
    ----------
    metrics
        Its file of metrics.
    """
    lines = _last_lines(metrics)
    newest = next((line for line in lines if line["kind"] in ("step", "log")), None)
    if newest is None:
        return {}
    if newest["kind"] == "log":
        values = newest["values"]
        known = {name: values.get(name) for name in ("loss", "images_per_second")}
        return {"step": newest["step"], **known}
    steps = [line for line in lines if line["kind"] == "step"][:_STEPS]
    rate = median(step_images_per_second(steps))
    return {
        "step": newest["step"],
        "loss": newest["loss"],
        "images_per_second": round(rate, 2),
    }


def _last_lines(metrics: Path) -> list[dict[str, Any]]:
    """Return the last whole lines of a file, newest first."""
    try:
        with metrics.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = max(0, size - _TAIL_BYTES)
            file.seek(start)
            data = file.read(_TAIL_BYTES)
    except FileNotFoundError:
        return []
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    if start:
        del lines[:1]  # it may be half a line
    return [json.loads(line) for line in reversed(lines)]
