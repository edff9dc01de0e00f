"""What the input pipeline notebook will measure, decided before anything starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nbkit import registry
from nbkit.config import ExperimentConfig, LoaderConfig
from nbkit.config.pipeline import PIPELINES
from nbkit.errors import ConfigError
from nbkit.questions.input_pipeline.grid import (
    MOST_WORKERS,
    first_setting,
    loader_faults,
    notes_on,
    rule_note,
    tuner_grid,
)
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
from nbkit.questions.study_plan import Plan
from nbkit.references.emulated_gpus import EmulatedStep, emulated_step
from nbkit.registry import suggest
from nbkit.studies.devices import Devices, find_devices, sweep_sizes, why_cpus
from nbkit.studies.parameters import Parameters
from nbkit.telemetry.cpus import usable_cpus

BASELINE = "chexnet_old"
"""What all other arms are compared with."""

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
_EMULATED_GPU = "V100-SXM2-32GB"
"""The GPU of the report on CheXNet."""


@dataclass(frozen=True, kw_only=True)
class PipelinePlan(Plan):
    """What will be measured; a notebook shows its notes."""

    baseline: str
    """The arm that the others are compared with."""
    tuned: ExperimentConfig | None
    """What the tuner changes loader, workers and prefetch of; None without tuning."""
    rule: LoaderSetting | None
    """What the guide's rule gives; None if that is not an arm."""
    grid: Grid
    start: LoaderSetting
    most_trials: int
    devices: Devices
    gpus: int
    cores: float | None
    """That the ranks may use; None where only their runs will know it."""
    emulated: EmulatedStep | None
    """What is used instead of the GPUs; None where they compute themselves."""

    @property
    def facts(self) -> dict[str, Any]:
        """What the report has to know beside the arms, as JSON values."""
        return {
            "baseline": self.baseline,
            "gpus": self.gpus,
            "cores": self.cores,
            "emulated": self.emulated.to_dict() if self.emulated else None,
            "tuning": None,
            **super().facts,
        }


def plan(parameters: Parameters) -> PipelinePlan:
    """Return what to measure for these parameters; nothing is started.

    The built-in set is packed into TFRecord files the first time, as often copied as an
    epoch of such batches needs.

    Raises
    ------
    ConfigError
        If a parameter cannot be used, or there are too few images.
    NotEnoughDataError
        If no rate of the GPU to emulate is published.
    """
    p = parameters
    _check_numbers(p)
    devices = find_devices(p.device, p.engine, p.gpus or 1)
    defaults = _CPU_DEFAULTS if devices.is_cpu else _GPU_DEFAULTS
    values: dict[str, Any] = {
        name: defaults.get(name) if value is None else value
        for name, value in p.items()
    }
    values["gpus"] = values["gpus"] or devices.count
    if p.warmup_steps is None:
        # A short run still has something to measure.
        values["warmup_steps"] = min(values["warmup_steps"], values["steps"] // 4)
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
    arms = _Arms(values, devices, emulated)
    made = {
        arm_name(name, size): arms.pipeline(PIPELINES[name], size)
        for name in _BOTH
        for size in sweep_sizes(gpus)
    }
    if "naive" in names:
        made[arm_name("naive", gpus)] = arms.loader("naive", gpus)
    for name, steps in LADDER.items():
        if name in names:
            made[arm_name(name, gpus)] = arms.pipeline(steps, gpus)
    rule = None
    if "rule" in names:
        workers = max(1, guide_rule_workers(cores, gpus))
        rule = LoaderSetting(workers, LoaderConfig().prefetch_factor, "torch")
        config = with_setting(arms.loader("torch", gpus), rule)
        made[arm_name("rule", gpus)] = config
    baseline = arm_name(BASELINE, gpus)
    registry.resolve("engines", p.engine)().check(made[baseline])
    share = cores / gpus
    grid = tuner_grid(values["loaders"], share, values["steps"])
    most_trials = min(values["trials"] or grid.most_trials, grid.most_trials)
    is_tuned = "tuned" in names
    if is_tuned:
        for setting in grid.settings:
            with_setting(arms.loader(setting.loader, gpus), setting)
    # Last, because it may take a while.
    put_files(p.data, copies)
    check_images(p.data, folder, made, batch_size)
    return PipelinePlan(
        arms=made,
        baseline=baseline,
        control=baseline if values["control"] else None,
        tuned=arms.loader(grid.loaders[0], gpus) if is_tuned else None,
        rule=rule,
        grid=grid,
        start=first_setting(grid, share),
        most_trials=most_trials,
        devices=devices,
        gpus=gpus,
        cores=counted,
        repeats=values["repeats"],
        first_arms=[arm_name(name, gpus) for name in _BOTH],
        emulated=emulated,
        # An emulated device is one CPU: a lone process must not use all.
        environment={"OMP_NUM_THREADS": "1"} if devices.is_cpu else {},
        notes=(
            *_stand_in(p, devices, emulated),
            *_what(names, made, values, most_trials if is_tuned else None),
            *(notes_on(grid) if is_tuned else ()),
            *([rule_note(cores, gpus)] if "rule" in names else ()),
            _conditions(made[baseline], p, copies),
        ),
        parameters=p,
    )


def with_tuning(
    plan: PipelinePlan, tuning: Tuning, tuned: ExperimentConfig
) -> PipelinePlan:
    """Return a plan with the tuned arm.

    If the rule gives the same setting, that is measured once: as the tuned one.
    """
    arms, notes = dict(plan.arms), plan.notes
    if tuning.chosen == plan.rule:
        del arms[arm_name("rule", plan.gpus)]
        same = "The rule gives the tuned setting, which is not measured twice."
        notes = (*notes, same)
    arms[arm_name("tuned", plan.gpus)] = with_setting(tuned, tuning.chosen)
    return replace(plan, arms=arms, notes=notes, prepared={"tuning": tuning.to_dict()})


def with_setting(config: ExperimentConfig, setting: LoaderSetting) -> ExperimentConfig:
    """Return a configuration that loads in one way."""
    loader: dict[str, Any] = {"num_workers": setting.workers}
    if setting.loader == "dali":
        loader["dali"] = {"prefetch_queue_depth": setting.prefetch}
    else:
        loader["prefetch_factor"] = setting.prefetch
    return config.replace(loader=setting.loader, loader_config=LoaderConfig(**loader))


def arm_name(name: str, size: int) -> str:
    """Return what an arm is called at a number of ranks."""
    return f"{name}, {size} {'rank' if size == 1 else 'ranks'}"


class _Arms:
    """Makes configurations that differ in how they load, and in size."""

    def __init__(
        self,
        values: Mapping[str, Any],
        devices: Devices,
        emulated: EmulatedStep | None,
    ) -> None:
        self._values = values
        self._devices = devices
        self._emulated = emulated

    def pipeline(self, pipeline: str, gpus: int) -> ExperimentConfig:
        """Return an arm of steps."""
        settings = LoaderConfig(pipeline=pipeline, num_workers=self._values["workers"])
        return self.loader("tfrecord", gpus).replace(loader_config=settings)

    def loader(self, loader: str, gpus: int) -> ExperimentConfig:
        """Return an arm of a loader with its own defaults."""
        v, devices, emulated = self._values, self._devices, self._emulated
        if emulated is not None:
            task = {"task": "load", "emulated_step_seconds": emulated.seconds}
        else:
            task = {"precision": v["precision"]}
        return ExperimentConfig(
            **task,
            **{name: v[name] for name in _CONFIG_FIELDS},
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
    lines = [
        f"{name}={p[name]} is below 1; use 1 or more."
        for name in ("gpus", "repeats", "trials", "batch_size_per_gpu", "steps")
        if p[name] is not None and p[name] < 1
    ]
    if p.workers is not None and not 0 <= p.workers <= MOST_WORKERS:
        lines.append(
            f"workers={p.workers} is not 0 to {MOST_WORKERS}; use one of these."
        )
    lines += loader_faults(p.loaders or [])
    if lines:
        raise ConfigError("\n".join(lines))


def _names(asked: Sequence[str] | None) -> list[str]:
    """Return the arms beside the two whole pipelines."""
    known = [*_BOTH, *_OTHERS, *LADDER]
    if asked is None:
        return list(_OTHERS)
    unknown = [name for name in asked if name not in (*known, "all")]
    if unknown:
        near = suggest(unknown[0], known)
        message = (
            f"arms={','.join(asked)}: {unknown[0]!r} is not one of {', '.join(known)} "
            f"or all.{near}"
        )
        raise ConfigError(message)
    return known if "all" in asked else list(asked)


def _counted_cores(engine: str, names: Sequence[str]) -> float | None:
    """Return the cores that ranks may use; None if only their own machine knows."""
    if engine == "local":
        return usable_cpus()
    if asked := [name for name in ("tuned", "rule") if name in names]:
        message = (
            f"engine={engine!r}: arms={','.join(asked)} need the number of cores, "
            "which is known only where the ranks run; use -p arms naive, or "
            "engine='local' in a job of the cluster (srun papermill ...)."
        )
        raise ConfigError(message)
    return None


def _stand_in(
    p: Parameters, devices: Devices, emulated: EmulatedStep | None
) -> Iterator[str]:
    if emulated is None:
        return
    why = "emulated_gpu is set"
    if devices.is_cpu:
        why = why_cpus(p.device, p.engine)
    yield (
        f"Emulated GPU: {why}. Each rank sleeps {emulated.seconds * 1e3:.1f} ms per "
        f"batch: {emulated.source}. Reading and decoding are measured."
    )


def _what(
    names: Sequence[str],
    arms: Mapping[str, ExperimentConfig],
    values: Mapping[str, Any],
    most_trials: int | None,
) -> Iterator[str]:
    """Return how much is measured, and what is not."""
    tuned = 0 if most_trials is None else 1
    count = len(arms) + tuned + bool(values["control"])
    trials = "" if most_trials is None else f", after up to {most_trials} tuner trials"
    yield f"{count} arms, n={values['repeats']}, interleaved{trials}."
    left_out = [name for name in LADDER if name not in names]
    if left_out:
        yield (
            f"Not measured: single changes between the two pipelines "
            f"({', '.join(left_out)}). -p arms all adds them."
        )


def _conditions(config: ExperimentConfig, p: Parameters, copies: int) -> str:
    """Return what all arms have in common."""
    often = "" if copies == 1 else f" ({copies} copies of each)"
    threads = "cores / ranks" if p.workers is None else p.workers
    return (
        f"Conditions: batch {config.batch_size_per_gpu} per rank, "
        f"{config.image_size}x{config.image_size}, {p.data}{often}, {config.steps} "
        f"steps (first {config.warmup_steps} warm-up), seed {config.seed}, threads per "
        f"rank: {threads}."
    )
