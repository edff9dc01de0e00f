"""Plan of the input pipeline notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from nbkit import registry
from nbkit.config import ExperimentConfig, LoaderConfig
from nbkit.config.pipeline import PIPELINES
from nbkit.errors import ConfigError
from nbkit.plural import plural
from nbkit.questions.input_pipeline.packs import (
    check_images,
    copies_for,
    files_folder,
    put_files,
)
from nbkit.questions.input_pipeline.trials import (
    Grid,
    LoaderSetting,
    Tuning,
    guide_rule_workers,
)
from nbkit.questions.study_plan import Plan, PlanValues, below_one
from nbkit.references.emulated_gpus import EmulatedStep, emulated_step
from nbkit.registry import suggest
from nbkit.studies.devices import Devices, find_devices, sweep_sizes, why_cpus
from nbkit.studies.idle_machine import Wait
from nbkit.studies.parameters import Parameters
from nbkit.telemetry.cpus import usable_cpus

BASELINE = "chexnet_old"
"""The baseline of all other arms."""

LADDER = {
    "shard early": "list,shard,read,map,shuffle,batch,prefetch",
    "shuffle before decoding": "list,shard,read,shuffle,map,batch,prefetch",
    "parallel interleave": "list,shard,interleave,shuffle,map,batch,prefetch",
    "shuffle files too": "list,shard,shuffle,interleave,shuffle,map,batch,prefetch",
    "prefetch records": (
        "list,shard,shuffle,interleave,prefetch,shuffle,map,batch,prefetch"
    ),
}
"""From the old pipeline to the new one, one change an arm, each on top of those before;
the last change, map and batch in one, makes it the new one."""

_BOTH = tuple(PIPELINES)
"""Measured at every number of devices."""
_OTHERS = ("naive", "tuned", "rule")

_GPU_DEFAULTS: dict[str, Any] = {
    "precision": "fp16",
    "batch_size_per_gpu": 256,
    "steps": 110,
    "warmup_steps": 10,
    "repeats": 5,
    "control": True,
}
_CPU_DEFAULTS: dict[str, Any] = {
    "gpus": 2,
    "precision": "fp32",
    "batch_size_per_gpu": 16,
    "steps": 24,
    "warmup_steps": 4,
    "repeats": 1,
    "control": False,
    "trials": 3,
}
_MOST_WORKERS = 256
"""Of a rank, as in `nbkit.LoaderConfig`."""

_LOADERS = ("torch", "tfrecord")
_PREFETCH = (2, 4, 8)

_MEASURED_AHEAD = 4
"""Of the steps at most one of so many may be loaded ahead: else a run shows how fast
its buffer empties, and shared memory holds no end of batches."""
_EMULATED_GPU = "V100-SXM2-32GB"
"""The GPU of the report on CheXNet."""


@dataclass(frozen=True, kw_only=True)
class PipelinePlan(Plan):
    """Planned measurement; a notebook displays its notes."""

    tuned: ExperimentConfig | None
    """Configuration to tune; None without tuning."""
    rule: LoaderSetting | None
    """Setting from the guide's rule; None if that is not an arm."""
    grid: Grid
    start: LoaderSetting
    most_trials: int
    gpus: int


def plan(parameters: Parameters) -> PipelinePlan:
    """Return the plan for these parameters, without starting anything.

    On first use, the built-in set is packed into TFRecord files, with as many copies as
    an epoch of these batches requires.

    Raises
    ------
    ConfigError
        If a parameter is invalid, or there are too few images.
    NotEnoughDataError
        If there is no published rate for the GPU to emulate.
    """
    p = parameters
    _check_numbers(p)
    devices = find_devices(p.device, p.engine, p.gpus or 1)
    defaults = _CPU_DEFAULTS if devices.is_cpu else _GPU_DEFAULTS
    values = p.filled(defaults)
    values["gpus"] = values["gpus"] or devices.count
    names = _names(p.arms)
    counted = _counted_cores(p.engine, names)
    emulated = None
    if devices.is_cpu or p.emulated_gpu is not None:
        emulated = emulated_step(
            p.emulated_gpu or _EMULATED_GPU,
            p.model,
            values["precision"],
            values["batch_size_per_gpu"],
        )
    gpus, batch_size = values["gpus"], values["batch_size_per_gpu"]
    cores = counted or gpus  # no arm depends on cores that were not counted
    copies = copies_for(p.data, batch_size, gpus)
    folder = files_folder(p.data, copies)
    values["data"] = str(folder)
    loading = partial(_config, values, devices, emulated)

    def pipeline(steps: str, size: int) -> ExperimentConfig:
        settings = LoaderConfig(pipeline=steps, num_workers=values["workers"])
        return loading("tfrecord", size).replace(loader_config=settings)

    made = {
        arm_name(name, size): pipeline(PIPELINES[name], size)
        for name in _BOTH
        for size in sweep_sizes(gpus)
    }
    if "naive" in names:
        made[arm_name("naive", gpus)] = loading("naive", gpus)
    for name, steps in LADDER.items():
        if name in names:
            made[arm_name(name, gpus)] = pipeline(steps, gpus)
    rule = None
    if "rule" in names:
        workers = max(1, guide_rule_workers(cores, gpus))
        rule = LoaderSetting(workers, LoaderConfig().prefetch_factor, "torch")
        config = with_setting(loading("torch", gpus), rule)
        made[arm_name("rule", gpus)] = config
    baseline = arm_name(BASELINE, gpus)
    registry.resolve("engines", p.engine)().check(made[baseline])
    share = cores / gpus
    grid = _tuner_grid(values["loaders"], share, values["steps"])
    most_trials = min(values["trials"] or grid.most_trials, grid.most_trials)
    is_tuned = "tuned" in names
    if is_tuned:
        for setting in grid.settings:
            with_setting(loading(setting.loader, gpus), setting)
    # Last, because it may take a while.
    put_files(p.data, copies)
    check_images(p.data, folder, made, batch_size)
    return PipelinePlan(
        arms=made,
        control=baseline if values["control"] else None,
        tuned=loading(grid.loaders[0], gpus) if is_tuned else None,
        rule=rule,
        grid=grid,
        start=_first_setting(grid, share),
        most_trials=most_trials,
        gpus=gpus,
        prepared={
            "baseline": baseline,
            "gpus": gpus,
            "cores": counted,
            "emulated": emulated.to_dict() if emulated else None,
            "copies": copies,
            "rule_cores": cores if rule else None,
            "tuner": _tuner_facts(grid, most_trials) if is_tuned else None,
            "tuning": None,
        },
        repeats=values["repeats"],
        first_arms=[arm_name(name, gpus) for name in _BOTH],
        # An emulated device is one CPU: a lone process must not use all.
        environment={"OMP_NUM_THREADS": "1"} if devices.is_cpu else {},
        parameters=p,
        describe=describe,
    )


def describe(plan: PlanValues) -> list[str]:
    """Return what is measured and tuned, and what all arms have in common."""
    return [
        *_stand_in(plan),
        *_what(plan),
        *_skipped_settings(plan.facts),
        *_rule_notes(plan),
        _conditions(plan),
        *_waited(plan.facts),
    ]


def with_tuning(
    plan: PipelinePlan, tuning: Tuning, tuned: ExperimentConfig
) -> PipelinePlan:
    """Return a plan with the tuned arm.

    If the rule gives the same setting, it is measured once, as the tuned arm.
    """
    arms = dict(plan.arms)
    if tuning.chosen == plan.rule:
        del arms[arm_name("rule", plan.gpus)]
    arms[arm_name("tuned", plan.gpus)] = with_setting(tuned, tuning.chosen)
    prepared = {**plan.prepared, "tuning": tuning.to_dict()}
    return replace(plan, arms=arms, prepared=prepared)


def with_setting(config: ExperimentConfig, setting: LoaderSetting) -> ExperimentConfig:
    """Return a configuration with these loader settings."""
    loader: dict[str, Any] = {"num_workers": setting.workers}
    if setting.loader == "dali":
        loader["dali"] = {"prefetch_queue_depth": setting.prefetch}
    else:
        loader["prefetch_factor"] = setting.prefetch
    return config.replace(loader=setting.loader, loader_config=LoaderConfig(**loader))


def arm_name(name: str, size: int) -> str:
    """Return the name of an arm at a number of ranks."""
    return f"{name}, {size} {'rank' if size == 1 else 'ranks'}"


def _config(
    values: Mapping[str, Any],
    devices: Devices,
    emulated: EmulatedStep | None,
    loader: str,
    gpus: int,
) -> ExperimentConfig:
    """Return an arm of a loader with its own defaults."""
    task: dict[str, Any] = {"precision": values["precision"]}
    if emulated is not None:
        task = {"task": "load", "emulated_step_seconds": emulated.seconds}
    return ExperimentConfig(
        **task,
        **{name: values[name] for name in _CONFIG_FIELDS},
        loader=loader,
        gpus=gpus,
        device=devices.device_type,
        oversubscribe=devices.is_cpu and gpus > devices.count,
        # No one needs the curves of a hundred steps; they take CPU time.
        tensorboard=False,
    )


_CONFIG_FIELDS = (
    *("model", "batch_size_per_gpu", "image_size", "data", "steps", "warmup_steps"),
    *("seed", "engine"),
)


def _check_numbers(p: Parameters) -> None:
    lines = below_one(p, "gpus", "repeats", "trials", "batch_size_per_gpu", "steps")
    if p.workers is not None and not 0 <= p.workers <= _MOST_WORKERS:
        lines.append(
            f"workers={p.workers} is not between 0 and {_MOST_WORKERS}. Use a "
            "number in this range."
        )
    if "naive" in (p.loaders or []):
        lines.append(
            f"loaders={','.join(p.loaders)}: 'naive' has no worker count to tune. Use "
            "torch, tfrecord or dali."
        )
    if lines:
        raise ConfigError("\n".join(lines))


def _names(requested: Sequence[str] | None) -> list[str]:
    """Return the arms beside the two whole pipelines."""
    known = [*_BOTH, *_OTHERS, *LADDER]
    if requested is None:
        return list(_OTHERS)
    unknown = [name for name in requested if name not in (*known, "all")]
    if unknown:
        near = suggest(unknown[0], known)
        message = (
            f"arms={','.join(requested)}: {unknown[0]!r} is unknown. Use "
            f"{', '.join(known)} or all.{near}"
        )
        raise ConfigError(message)
    return known if "all" in requested else list(requested)


def _counted_cores(engine: str, names: Sequence[str]) -> float | None:
    """Return the cores that ranks may use; None if only their own machine knows."""
    if engine == "local":
        return usable_cpus()
    if counting := [name for name in ("tuned", "rule") if name in names]:
        message = (
            f"engine={engine!r}: the number of cores per node is unknown here, but "
            f"required for arms={','.join(counting)}. Use arms=naive, or "
            "engine='local' in a cluster job (srun papermill ...)."
        )
        raise ConfigError(message)
    return None


def _stand_in(plan: PlanValues) -> Iterator[str]:
    emulated = plan.facts["emulated"]
    if emulated is None:
        return
    why = "emulated_gpu is set"
    if plan.is_cpu:
        why = why_cpus(plan.parameters["device"], plan.parameters["engine"])
    yield (
        f"Emulated GPU: {why}. Each rank sleeps {emulated['seconds'] * 1e3:.1f} ms per "
        f"batch: {emulated['source']}. Reading and decoding are measured."
    )


def _what(plan: PlanValues) -> Iterator[str]:
    """Return how much is measured, and what is not."""
    gpus, tuner = plan.facts["gpus"], plan.facts["tuner"]
    is_to_tune = tuner is not None and arm_name("tuned", gpus) not in plan.arms
    count = len(plan.arms) + is_to_tune + bool(plan.control)
    trials = ""
    if tuner is not None:
        trials = f", after up to {plural(tuner['most_trials'], 'tuner trial')}"
    yield f"{plural(count, 'arm')}, n={plan.repeats}, interleaved{trials}."
    left_out = [name for name in LADDER if arm_name(name, gpus) not in plan.arms]
    if left_out:
        yield (
            "Not measured: single changes between the two pipelines "
            f"({', '.join(left_out)}). Add them with -p arms all."
        )


def _conditions(plan: PlanValues) -> str:
    """Return what all arms have in common."""
    p, copies = plan.parameters, plan.facts["copies"]
    config = plan.arms[plan.facts["baseline"]]
    often = "" if copies == 1 else f" ({copies} copies of each image)"
    threads = p["workers"] or "cores / ranks - 1, from 1 to 32"
    return (
        f"Conditions: batch {config.batch_size_per_gpu} per rank, "
        f"{config.image_size}x{config.image_size}, {p['data']}{often}, "
        f"{plural(config.steps or 0, 'step')} "
        f"(first {config.num_warmup_steps} warm-up), seed {config.seed}, "
        f"threads per rank: {threads}."
    )


def _tuner_grid(loaders: Sequence[str] | None, share: float, steps: int) -> Grid:
    """Return what may be tried: doubling, up to twice a rank's share of the cores."""
    workers = [1]
    while workers[-1] * 2 <= min(2 * max(1.0, share), _MOST_WORKERS):
        workers.append(workers[-1] * 2)
    most_ahead = max(_PREFETCH[0], steps // _MEASURED_AHEAD)
    return Grid(
        list(dict.fromkeys(loaders or _LOADERS)), workers, _PREFETCH, most_ahead
    )


def _first_setting(grid: Grid, share: float) -> LoaderSetting:
    """Return what a loader would take by itself, or the next below that."""
    here = grid.loaders[0], grid.prefetch[0]
    settings = [
        setting
        for setting in grid.settings
        if (setting.loader, setting.prefetch) == here
    ]
    smaller = (setting for setting in settings if setting.workers < share)
    return max(smaller, default=settings[0])


def _tuner_facts(grid: Grid, most_trials: int) -> dict[str, Any]:
    """Return the size of the search, for the notes."""
    return {
        "most_trials": most_trials,
        "most_ahead": grid.most_ahead,
        "skipped_settings": len(replace(grid, most_ahead=None)) - len(grid),
    }


def _skipped_settings(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence about settings that are left out, if there are any."""
    tuner = facts["tuner"]
    if tuner and tuner["skipped_settings"]:
        count = plural(tuner["skipped_settings"], "setting")
        yield (
            f"The tuner skips {count} with workers x prefetch above "
            f"{tuner['most_ahead']} (a quarter of the steps, at least {_PREFETCH[0]}). "
            "Use more steps to raise this limit."
        )


def _rule_notes(plan: PlanValues) -> Iterator[str]:
    """Yield what the guide's rule comes to here, if it is an arm."""
    cores, gpus = plan.facts["rule_cores"], plan.facts["gpus"]
    if cores is None:
        return
    workers = guide_rule_workers(cores, gpus)
    text = (
        f"Dell guide's rule (cores / ranks - 4): {cores:g} core{'s' * (cores != 1)}"
        f" and {plural(gpus, 'rank')} give"
    )
    if workers < 1:
        yield f"{text} no worker, so 1 worker per rank is measured."
    else:
        yield f"{text} {plural(workers, 'worker')} per rank."
    if arm_name("rule", gpus) not in plan.arms:
        yield "The rule and the tuner give the same setting, which is measured once."


def _waited(facts: Mapping[str, Any]) -> Iterator[str]:
    if wait := facts.get("wait_before_tuning"):
        yield str(Wait(**wait))
