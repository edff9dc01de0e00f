"""Checks of stored runs and of compared arms.

Whatever a run's files say is judged as they say it, so that an imported run is judged
like one of this machine.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, permutations
from statistics import fmean
from typing import Any

from nbkit.config.fields import SIXTEEN_BIT
from nbkit.plural import plural
from nbkit.review.claim_checks import cache_evidence
from nbkit.review.findings import AuditFinding
from nbkit.review.row_checks import (
    INPUT_BOUND_SHARE,
    bound_finding,
    has_convolutions,
)
from nbkit.statistics import (
    MINIMUM_RUNS,
    PRACTICAL_MARGIN,
    images_per_second,
    measured_steps,
    ratio,
    student_t_quantile,
)
from nbkit.store.record import RunState, report_corruption, unix_seconds
from nbkit.store.stored_runs import StoredRun

_FEW_STEPS = 50
"""One step of twice the length among them moves their mean by the practical margin."""

_SLOWED_SHARE = 0.01
"""Share of the time with clocks held down that is worth a word."""

_CLOCK_SECONDS = 1.0
"""How far a record's times, taken by another process, may differ from the steps."""

_PARTS = 15
"""Of a window, to see whether its rate changes."""

_SETTINGS = (
    *("model", "precision", "memory_format", "compile", "cuda_graphs"),
    "cudnn_benchmark",
    *("batch_size_per_gpu", "gradient_accumulation_steps", "image_size"),
    *("data", "loader", "cpu_binding"),
)

_SOFTWARE = ("torch", "cuda", "cudnn", "nccl")

Line = Mapping[str, Any]


class _Facts:
    """What the checks look at, read once."""

    def __init__(self, run: StoredRun) -> None:
        self.record, self.worker, self.summary = run.record, run.worker, run.summary
        self.state, self.config, self.steps = run.state, run.config, run.metrics()
        name, rate = self.record.get("name"), self.summary.images_per_second
        self.subject = f"run {run.run_id}" + (f" ({name})" if name else "")
        self.claim = "no rate" if rate is None else f"{rate:,.6g} images/s"
        self.on_gpus = self.summary.device_type == "cuda"
        data = self.worker.get("data") or {}
        self.fingerprint: Line = data.get("fingerprint") or {}


def run_findings(run: StoredRun) -> Iterator[AuditFinding]:
    """Yield the findings on a run."""
    with report_corruption(run.paths.root):
        facts = _Facts(run)
        for check in _CHECKS:
            for code, evidence in check(facts):
                yield AuditFinding.of(code, facts.subject, facts.claim, evidence)
        yield from _too_fast(facts)


def arm_findings(
    arms: Mapping[str, Sequence[StoredRun]], minimum_runs: int = MINIMUM_RUNS
) -> Iterator[AuditFinding]:
    """Yield the findings on a comparison of arms."""
    known = {arm: [_Facts(run) for run in runs] for arm, runs in arms.items() if runs}
    if not known:
        return
    subject = ", ".join(known)
    claim = "a comparison" if len(known) > 1 else "a rate"
    few_runs = partial(_few_runs, minimum_runs=minimum_runs)
    checks = (few_runs, _mixed_environment, _confounded, _superlinear)
    for check in checks:
        for code, evidence in check(known):
            yield AuditFinding.of(code, subject, claim, evidence)


Outcome = tuple[str, str]
"""Code and evidence."""


def _unfinished(facts: _Facts) -> Iterator[Outcome]:
    if facts.state is not RunState.FINISHED:
        steps = plural(facts.summary.n_steps, "measured step")
        yield "unfinished", f"{facts.state}, {steps}"


def _device(facts: _Facts) -> Iterator[Outcome]:
    if (facts.record.get("launch") or {}).get("replayed"):
        yield "replayed", "its GPU samples are a recording"
    elif facts.summary.device_type == "cpu":
        yield "cpu", f"on {facts.summary.device_name or 'CPUs'}"
    if facts.summary.oversubscribed:
        yield "oversubscribed", f"{facts.summary.world_size} ranks share devices"
    kinds = Counter(device["name"] for device in facts.worker.get("devices") or [])
    if facts.on_gpus and len(kinds) > 1:
        yield "mixed-gpus", ", ".join(f"{n} x {name}" for name, n in kinds.items())


def _layout(facts: _Facts) -> Iterator[Outcome]:
    config = facts.config
    if (
        config.task == "train"
        and config.precision in SIXTEEN_BIT
        and config.memory_format == "channels_first"
        and has_convolutions(config.model)
        and facts.on_gpus
        and all(
            (device.get("compute_capability") or [0])[0] >= 7
            for device in facts.worker.get("devices") or []
        )
    ):
        yield (
            "layout",
            f"{config.precision} in channels_first on {facts.summary.device_name}",
        )


def _input(facts: _Facts) -> Iterator[Outcome]:
    share = facts.summary.data_wait_share
    # A loader alone has nothing else to wait for.
    config = facts.config
    only_reads = config.task == "load" and not config.emulated_step_seconds
    if share is not None and share > INPUT_BOUND_SHARE and not only_reads:
        yield "input-bound", f"{share * 100:.0f}% of the step is data wait"
    data = facts.fingerprint.get("bytes")
    machine = facts.record.get("machine") or {}
    memory = machine.get("usable_memory_bytes", machine.get("memory_total_bytes"))
    # The images that an inference is timed with are on its device beforehand.
    if data is not None and memory and config.task != "inference":
        evidence = cache_evidence(data, memory, facts.config.nnodes)
        epochs = 1 + max((line.get("epoch") or 0 for line in facts.steps), default=0)
        if evidence is not None:
            yield "cached-data", f"{evidence}; {plural(epochs, 'epoch')}"


def _steps(facts: _Facts) -> Iterator[Outcome]:
    if not facts.config.has_steps:
        return
    count = facts.summary.n_steps
    if count < _FEW_STEPS:
        yield "few-steps", plural(count, "measured step")
    if facts.summary.bursts is not None:
        yield "bursts", facts.summary.bursts.removeprefix("steps come in bursts: ")
    if facts.config.task == "load":
        return
    if facts.summary.nonfinite is not None:
        yield "divergence", str(facts.summary.nonfinite)
    expected = facts.worker.get("global_batch_size")
    counted = {line["images"] for line in facts.steps}
    if expected and counted and counted != {expected}:
        images = ", ".join(map(str, sorted(counted)))
        yield "batch", f"steps have {images} images, but the global batch is {expected}"


def _drift(facts: _Facts) -> Iterator[Outcome]:
    """Compare the first and the last third of the window, by five parts of each.

    Single steps come in bursts. The scatter is that between neighbouring parts: within
    a third that changes, it would hide the change.

    References
    ----------
    von Neumann (1941), https://doi.org/10.1214/aoms/1177731677
    """
    steps = measured_steps(facts.steps)
    cuts = [len(steps) * n // _PARTS for n in range(_PARTS + 1)]
    parts = [steps[start:end] for start, end in pairwise(cuts)]
    rates = [images_per_second(part) for part in parts]
    if not all(rates):
        return
    logs = [math.log(rate) for rate in rates if rate]
    third = _PARTS // 3
    change = fmean(logs[-third:]) - fmean(logs[:third])
    scatter = math.sqrt(fmean((b - a) ** 2 for a, b in pairwise(logs)) / 2)
    chance = student_t_quantile(0.995, _PARTS - 1) * scatter * math.sqrt(2 / third)
    if abs(change) - chance > math.log1p(PRACTICAL_MARGIN):
        ends = steps[: cuts[third]], steps[cuts[-third - 1] :]
        first, last = (f"{images_per_second(end) or 0:,.4g}" for end in ends)
        yield (
            "drift",
            f"{first} images/s in the first third of the measured steps, but {last} in "
            "the last third",
        )


def _time(facts: _Facts) -> Iterator[Outcome]:
    times = facts.record.get("time") or {}
    if not facts.steps or not times.get("started") or not times.get("ended"):
        return
    lasted = unix_seconds(times["ended"]) - unix_seconds(times["started"])
    newest = max(line.get("attempt", 0) for line in facts.steps)
    summed = math.fsum(
        line["step_time_seconds"]
        for line in facts.steps
        if line.get("attempt", 0) == newest
    )
    if newest == facts.record.get("attempt") and summed > lasted + _CLOCK_SECONDS:
        yield "step-sum", f"steps add up to {summed:,.1f} s in a run of {lasted:,.1f} s"


def _gpus(facts: _Facts) -> Iterator[Outcome]:
    system = facts.record.get("system") or {}
    strangers = system.get("other_gpu_processes")
    if strangers:
        processes = plural(strangers, "other process", "other processes")
        yield "shared-gpu", f"{processes} on the run's GPUs"
    if unverified_devices := (facts.record.get("launch") or {}).get(
        "unverified_devices"
    ):
        yield "shared-gpu", "; ".join(unverified_devices.values())
    seconds = system.get("seconds") or 0.0
    slowed = [
        gpu["slowed_seconds"]
        for gpu in (system.get("gpus") or {}).values()
        if gpu.get("slowed_seconds") is not None
    ]
    if slowed and seconds and max(slowed) / seconds > _SLOWED_SHARE:
        share = max(slowed) / seconds
        yield (
            "reduced-clocks",
            f"{max(slowed):,.0f} of {seconds:,.0f} s ({share * 100:.0f}%)",
        )


def _binding(facts: _Facts) -> Iterator[Outcome]:
    bindings = facts.worker.get("bindings") or []
    unbound = [b for b in bindings if b["requested"] != "none" and b.get("reason")]
    if unbound:
        first = unbound[0]
        yield (
            "unbound",
            f"cpu_binding={first['requested']}, {len(unbound)} of "
            f"{plural(len(bindings), 'rank')}; rank {first['rank']}: "
            f"{first['reason']}",
        )


_CHECKS: tuple[Callable[[_Facts], Iterator[Outcome]], ...] = (
    _unfinished,
    _device,
    _layout,
    _input,
    _steps,
    _drift,
    _time,
    _gpus,
    _binding,
)


def _too_fast(facts: _Facts) -> Iterator[AuditFinding]:
    config, summary = facts.config, facts.summary
    rate, name = summary.images_per_second, summary.device_name
    is_modelled = config.task == "train" and config.model == "resnet50"
    if not (
        is_modelled and config.image_size == 224 and facts.on_gpus and rate and name
    ):
        return
    rate_per_gpu = rate / (summary.world_size or 1)
    finding = bound_finding(facts.subject, name, config.precision, rate_per_gpu)
    if finding is not None:
        yield finding


FactsByArm = Mapping[str, Sequence[_Facts]]


def _few_runs(arms: FactsByArm, minimum_runs: int) -> Iterator[Outcome]:
    measured = {
        # A script's or function's number may be any metric.
        arm: sum(
            facts.summary.images_per_second is not None or facts.config.has_entry
            for facts in runs
        )
        for arm, runs in arms.items()
    }
    few = {arm: count for arm, count in measured.items() if count < minimum_runs}
    if few:
        counts = "; ".join(f"{arm}: {count}" for arm, count in few.items())
        yield "few-runs", f"{counts}; a verdict needs {minimum_runs} runs per arm"


def _mixed_environment(arms: FactsByArm) -> Iterator[Outcome]:
    runs = [facts for members in arms.values() for facts in members]
    # A run that failed at its start knows no device.
    names = {name for facts in runs if (name := facts.summary.device_name)}
    seen: dict[str, dict[str, None]] = {}
    for facts in runs:
        for name, value in _environment(facts, one_machine=len(names) <= 1).items():
            if value is not None:
                seen.setdefault(name, {})[str(value)] = None
    differing = {name: values for name, values in seen.items() if len(values) > 1}
    if differing:
        parts = [f"{name}: {', '.join(values)}" for name, values in differing.items()]
        yield "mixed-environment", "; ".join(parts)


def _environment(facts: _Facts, *, one_machine: bool) -> dict[str, Any]:
    """Return what has to be the same; two kinds of GPU are in two machines."""
    system = facts.record.get("system") or {}
    packages = (facts.record.get("environment") or {}).get("packages") or {}
    host = (facts.record.get("machine") or {}).get("hostname")
    return {
        **{name: facts.worker.get(name) for name in _SOFTWARE},
        "driver": system.get("driver_version"),
        "nbkit": packages.get("nbkit"),
        "host": host if one_machine else None,
    }


def _confounded(arms: FactsByArm) -> Iterator[Outcome]:
    """Find a setting that follows another one through all arms."""
    configs = [runs[0].config for runs in arms.values()]
    values = {name: [getattr(config, name) for config in configs] for name in _SETTINGS}
    varied = [name for name, options in values.items() if len(set(options)) > 1]
    for cause, effect in permutations(varied, 2):
        pairs = set(zip(values[cause], values[effect], strict=True))
        follows = len(pairs) == len(set(values[cause]))
        mutual = len(pairs) == len(set(values[effect]))
        # Of two that follow each other the one that is listed first is named first.
        is_first = not mutual or _SETTINGS.index(cause) < _SETTINGS.index(effect)
        if follows and is_first:
            texts = [
                f"{setting} with {other}" for setting, other in sorted(pairs, key=str)
            ]
            yield "confounded", f"{cause} and {effect}: {', '.join(texts)}"


def _superlinear(arms: FactsByArm) -> Iterator[Outcome]:
    """Compare sizes of otherwise equal arms on GPUs; CPU processes share caches."""
    sizes: dict[str, dict[int, list[float]]] = {}
    for members in arms.values():
        for facts in members:
            rate, size = facts.summary.images_per_second, facts.summary.world_size
            # What a function or script of the user does, its settings do not tell.
            if facts.on_gpus and rate and size and not facts.config.has_entry:
                names = ("task", *_SETTINGS)
                settings = [getattr(facts.config, name) for name in names]
                same = str([facts.summary.device_name, *settings])
                sizes.setdefault(same, {}).setdefault(size, []).append(rate)
    for of_size in sizes.values():
        base = min(of_size)
        for size in sorted(of_size):
            if size == base:
                continue
            against = ratio(of_size[size], of_size[base])
            linear = size / base
            low = against.ci_low if against.ci_low is not None else against.estimate
            if low / linear > 1 + PRACTICAL_MARGIN:
                yield (
                    "superlinear",
                    f"{against.estimate:.2f}x speedup on {linear:g}x the GPUs: "
                    f"efficiency {against.estimate / linear * 100:.1f}%",
                )
