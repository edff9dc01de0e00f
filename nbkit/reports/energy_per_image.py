"""Energy per image, from the energy counters of a run's GPUs."""

from __future__ import annotations

from nbkit import statistics
from nbkit.review.energy import joules_between
from nbkit.store.stored_runs import StoredRun


def joules_per_image(run: StoredRun) -> float | None:
    """Return the energy of all GPUs of the run per image, in joules.

    Measured from the end of the first measured step to the end of the last one.
    Startup, compilation and warm-up are excluded, as are evaluations and checkpoints
    between steps, as in the rate.
    """
    lines = run.metrics(None)
    steps = statistics.measured_steps(lines)
    if len(steps) < 2 or steps[0]["attempt"] != steps[-1]["attempt"]:
        return None
    begin, end = steps[0]["t"], steps[-1]["t"]
    apart = [
        (max(begin, line["t"] - line["duration_seconds"]), line["t"])
        for line in lines
        if line["kind"] in ("evaluation", "checkpoint") and begin < line["t"] <= end
    ]
    joules = joules_between(run, begin, end, apart)
    images = sum(step["images"] for step in steps[1:])
    return None if joules is None else joules / images
