"""Measurements of a run, and of all runs of an arm."""

from __future__ import annotations

from dataclasses import dataclass

from nbkit.launch.run import Run
from nbkit.reports.energy_per_image import joules_per_image
from nbkit.statistics import Ratio, RunsNeeded, Summary
from nbkit.studies.durations import run_seconds

COSTS = (
    *("data_wait_share", "communication_share", "peak_memory_bytes"),
    *("joules_per_image", "cpu_ms_per_image", "seconds"),
)
"""Measurements of a run; medians over runs for an arm."""


@dataclass(frozen=True)
class ArmRun:
    """Measurements of one finished run of an arm; None is unknown."""

    run_id: str
    images_per_second: float | None
    """Images / time of the measured steps, over all devices."""
    data_wait_share: float | None = None
    communication_share: float | None = None
    peak_memory_bytes: float | None = None
    """Peak memory of the device with the highest use."""
    joules_per_image: float | None = None
    """Energy of all GPUs over the measured steps; None without a counter."""
    cpu_ms_per_image: float | None = None
    seconds: float | None = None
    """Time from process start to process end."""
    first_step_seconds: float | None = None
    device_type: str | None = None


@dataclass(frozen=True)
class ArmRow:
    """Results of one arm; values are medians over its runs."""

    arm: str
    n: int
    """Finished process starts."""
    images_per_second: Summary | None
    """Rate over runs; None if a run has no rate."""
    ratio: Ratio | None
    """Rate / baseline's rate, with interval and verdict; None for the baseline, or if
    one of them has no rate."""
    needed: RunsNeeded | None
    """Runs needed for a verdict; None before both arms have two runs, and for the
    baseline and its control."""
    data_wait_share: float | None
    communication_share: float | None
    peak_memory_bytes: float | None
    joules_per_image: float | None
    cpu_ms_per_image: float | None
    seconds: float | None
    """Of one process start."""


def arm_run(run: Run) -> ArmRun:
    """Return a finished run in numbers."""
    summary = run.summary
    return ArmRun(
        run_id=run.run_id,
        images_per_second=summary.images_per_second,
        data_wait_share=summary.data_wait_share,
        communication_share=summary.communication_share,
        peak_memory_bytes=summary.peak_memory_bytes,
        joules_per_image=joules_per_image(run),
        cpu_ms_per_image=summary.cpu_ms_per_image,
        seconds=run_seconds(run.record),
        first_step_seconds=summary.first_step_seconds,
        device_type=summary.device_type,
    )
