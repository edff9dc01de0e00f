"""Summary of a run's raw counts: computed when read, never stored."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from nbkit import statistics
from nbkit.store.nonfinite import FiniteReading, NonFinite

Line = dict[str, Any]


@dataclass(frozen=True)
class RunSummary:
    """Measurements of one run; None means unknown.

    The window is every step after the warm-up; there are no partial steps. The
    rate of a step is global images / step time, data wait included.
    """

    n_steps: int
    """Steps in the window."""
    images_per_second: float | None
    """Images / time of the window, over all ranks; for a function the last logged
    value, for inference that of the best batch size."""
    images_per_second_median: float | None
    """Rate of the window's median step."""
    images_per_second_q25: float | None
    images_per_second_q75: float | None
    step_time_seconds: float | None
    """Time of the window / its steps."""
    first_step_seconds: float | None
    """Time of the first step, which compiles (``compile``), selects convolution
    algorithms (``cudnn_benchmark``) and allocates memory."""
    ended_by: str | None
    """What ended the run: ``steps``, ``epochs``, ``time`` or ``target_accuracy``; None
    if it was stopped, failed or did not record it."""
    longest_step_seconds: float | None
    """Longest time between the ends of two successive steps of the window."""
    data_wait_share: float | None
    """Share of the window's time in which ranks waited for input, mean over ranks."""
    compute_share: float | None
    """Share of the window's time in which ranks computed, mean over ranks."""
    communication_share: float | None
    """Share of the window's time in which ranks waited for the gradient all-reduce
    with nothing left to compute, mean over ranks."""
    rank_compute_spread: float | None
    """(slowest - fastest) / median of the ranks' compute time."""
    cpu_ms_per_image: float | None
    """CPU time of all ranks and their loading processes, in ms per image."""
    peak_memory_bytes: int | None
    """Largest peak of a rank: allocated GPU memory, or resident memory on CPUs."""
    energy_joules: float | None
    """Energy of the run's GPUs from the first to the last sample of its attempts; None
    if a counter is missing (as on MIG instances, which share one), or if another
    process used a GPU. 3,600 J are 1 Wh."""
    loss: float | None
    """Loss of the last step, or the last loss that a function logged."""
    first_loss: float | None
    """Loss of the first step, before any update."""
    final_loss: float | None
    """Mean loss over the last tenth of the steps (at least one), including warm-up;
    None if one of them is not finite."""
    mean_loss: float | None
    """Mean loss over all steps, including warm-up; None if one is not finite."""
    updates_skipped: int | None
    """Steps whose update GradScaler skipped, because a gradient was not finite; None
    if the loss is not scaled."""
    loss_scale: float | None
    """Loss scale of the last step; None if the loss is not scaled."""
    weights_finite: bool | None
    """Whether every weight was finite at the end (then every applied gradient
    was finite); None if unknown."""
    top1_accuracy: float | None
    """Top-1 accuracy of the last evaluation, 0 to 1; None for multi-label data."""
    mean_auroc: float | None
    """AUROC of the last evaluation of multi-label data, 0 to 1: mean over the labels
    that have positives and negatives."""
    device_type: str | None
    device_name: str | None
    world_size: int | None
    batch_size_per_gpu: int | None
    oversubscribed: bool
    """Whether several ranks shared a device; do not compare such a run with others."""
    logged: Mapping[str, float | None] = field(default_factory=dict)
    """The last value of every name that a function or script has logged or printed."""
    nonfinite: NonFinite | None = None
    """Step at which loss, gradients or weights were first not finite; None if never.
    The speed of such a run is not comparable."""

    @property
    def bursts(self) -> str | None:
        """Description of bursts of steps; None if the steps are not in bursts."""
        return statistics.bursts_in_words(
            self.images_per_second,
            self.images_per_second_median,
            self.longest_step_seconds,
        )


def summarise_run(lines: Sequence[Line], worker: Line, record: Line) -> RunSummary:
    """Return the summary of a run."""
    steps = [line for line in lines if line["kind"] == "step"]
    window = statistics.measured_steps(lines)
    rates = statistics.step_images_per_second(window)
    seconds = [line["step_time_seconds"] for line in window]
    q25, q75 = statistics.quartiles(rates) if rates else (None, None)
    fallback = _fallback_values(lines)
    evaluations = [line for line in lines if line["kind"] == "evaluation"]
    last = evaluations[-1] if evaluations else {}
    ranks = ranks_of_window(worker, len(window))
    images = sum(rank["images"] for rank in ranks)
    cpu_seconds = [rank["cpu_seconds"] for rank in ranks]
    computes = [rank["compute_seconds"] for rank in ranks]
    scaled = [line["update_skipped"] for line in steps if "update_skipped" in line]
    devices: list[Line] = worker.get("devices") or []
    return RunSummary(
        n_steps=len(window),
        images_per_second=(
            statistics.images_per_second(window)
            if window
            else fallback.get("images_per_second")
        ),
        images_per_second_median=median(rates) if rates else None,
        images_per_second_q25=q25,
        images_per_second_q75=q75,
        step_time_seconds=fmean(seconds) if seconds else None,
        first_step_seconds=(
            steps[0]["step_time_seconds"] if steps and steps[0]["step"] == 1 else None
        ),
        ended_by=worker.get("ended_by"),
        longest_step_seconds=max(seconds, default=None),
        data_wait_share=_share(ranks, "data_wait_seconds", window),
        compute_share=_share(ranks, "compute_seconds", window),
        communication_share=_share(ranks, "communication_exposed_seconds", window),
        rank_compute_spread=(
            (max(computes) - min(computes)) / median(computes)
            if len(computes) > 1 and median(computes) > 0
            else None
        ),
        cpu_ms_per_image=1e3 * sum(cpu_seconds) / images if images else None,
        peak_memory_bytes=_peak(
            # Each batch size of an inference has a peak of its own.
            [*(worker.get("ranks") or []), *_inference_lines(lines)],
            worker.get("device_type"),
        ),
        energy_joules=_energy(record),
        loss=steps[-1]["loss"] if steps else fallback.get("loss"),
        first_loss=steps[0]["loss"] if steps else None,
        final_loss=_mean_loss(steps[-max(1, len(steps) // 10) :]),
        mean_loss=_mean_loss(steps),
        updates_skipped=sum(scaled) if scaled else None,
        loss_scale=steps[-1].get("loss_scale") if steps else None,
        weights_finite=worker.get("weights_finite"),
        top1_accuracy=last.get("top1_accuracy"),
        mean_auroc=last.get("mean_auroc"),
        device_type=worker.get("device_type"),
        device_name=devices[0].get("name") if devices else None,
        world_size=worker.get("world_size"),
        batch_size_per_gpu=worker.get("batch_size_per_gpu"),
        oversubscribed=_is_oversubscribed(record, devices),
        logged=_logged_values(lines),
        nonfinite=FiniteReading.of(lines).first_nonfinite(worker),
    )


def _is_oversubscribed(record: Line, devices: Sequence[Line]) -> bool:
    # Only ranks know which GPUs they share on nodes of Slurm and of other hosts.
    uuids = [uuid for device in devices if (uuid := device.get("uuid"))]
    is_shared = len({*uuids}) < len(uuids)
    return is_shared or bool((record.get("launch") or {}).get("oversubscribed"))


def ranks_of_window(worker: Mapping[str, Any], num_steps: int) -> list[Line]:
    """Return the times of every rank over a window; empty if they do not cover it.

    A resumed attempt writes those of its own steps.
    """
    ranks: list[Line] = worker.get("ranks") or []
    covers = all(rank.get("steps", num_steps) >= num_steps for rank in ranks)
    return ranks if covers else []


def _mean_loss(steps: Sequence[Line]) -> float | None:
    """Return the mean loss of steps; None if there is none or one is not finite."""
    losses = [line["loss"] for line in steps]
    return fmean(losses) if losses and None not in losses else None


def _inference_lines(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if line["kind"] == "inference"]


def _fallback_values(lines: Sequence[Line]) -> Line:
    """Return the last logged values of a function, or an inference's best rate."""
    if served := _inference_lines(lines):
        timings = statistics.latency_timings(served).values()
        rates = (timing.images_per_second for timing in timings)
        return {"images_per_second": max(rates)}
    return _logged_values(lines)


def _logged_values(lines: Sequence[Line]) -> Line:
    values: Line = {}
    for line in lines:
        if line["kind"] == "log":
            values.update(line["values"])
    return values


def _share(
    ranks: Sequence[Line], part: str, window: Sequence[Mapping[str, Any]]
) -> float | None:
    """Return a part's share of the window: over all ranks, else rank 0's lines."""
    rows: Sequence[Mapping[str, Any]] = ranks or window
    return statistics.share(
        [row[part] for row in rows], [row["step_time_seconds"] for row in rows]
    )


def _peak(ranks: Sequence[Line], device_type: str | None) -> int | None:
    field = "peak_memory_allocated_bytes" if device_type == "cuda" else "peak_rss_bytes"
    peaks = [rank[field] for rank in ranks if rank.get(field) is not None]
    return max(peaks) if peaks else None


def _energy(record: Line) -> float | None:
    system = record.get("system") or {}
    gpus = list((system.get("gpus") or {}).values())
    known = [gpu.get("energy_joules") for gpu in gpus]
    is_replayed = (record.get("launch") or {}).get("replayed")
    if not gpus or None in known or system.get("other_gpu_processes") or is_replayed:
        return None
    return math.fsum(known)
