"""Plan of the storage notebook."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

from nbkit import registry
from nbkit.config import ExperimentConfig
from nbkit.config.fields import DATA_FAULT_FIELDS
from nbkit.errors import NotEnoughDataError, ParameterError
from nbkit.plural import plural
from nbkit.questions.storage.places import (
    Place,
    Wanted,
    copies_of,
    find_wanted,
    name_and_path,
)
from nbkit.questions.study_plan import Plan, PlanValues, below_one
from nbkit.readspeed.measuring import CacheState, ReadEngine
from nbkit.references.emulated_gpus import EmulatedStep, emulated_step
from nbkit.review.claim_checks import CACHE_FACTOR, cache_evidence
from nbkit.statistics import quantities as wording
from nbkit.studies.devices import Devices, find_devices
from nbkit.studies.parameters import Parameters
from nbkit.studies.photo_copies import FORMS
from nbkit.telemetry.machine import describe_machine

STAGES = ("load", "emulate", "train")
"""Images as fast as the loader gives them; for GPUs whose computing is emulated; for a
training."""

_GPU_DEFAULTS: dict[str, Any] = {
    "forms": ["files", "webdataset"],
    "stages": list(STAGES),
    "precision": "fp16",
    "model": "resnet50",
    "batch_size_per_gpu": 256,
    "image_size": 224,
    "warmup_steps": 5,
    "repeats": 5,
    "read_bytes": 2**30,
    "read_repeats": 5,
}
_CPU_DEFAULTS: dict[str, Any] = {
    "forms": ["files", "webdataset"],
    "stages": ["load", "emulate"],
    "precision": "fp32",
    "model": "resnet18",
    "batch_size_per_gpu": 16,
    "image_size": 224,
    "warmup_steps": 2,
    "repeats": 1,
    "read_bytes": 2**27,
    "read_repeats": 3,
}
_DEFAULT_GPU = "A100"
_EMULATED_MODEL, _EMULATED_PRECISION = "resnet50", "fp16"
"""Model and format of the demand: as in all reports, in the fastest format."""


@dataclass(frozen=True, kw_only=True)
class StoragePlan(Plan):
    """Planned measurement; a notebook displays its notes."""

    places: tuple[Place, ...]


def plan(parameters: Parameters) -> StoragePlan:
    """Return the plan for these parameters, without starting a run.

    Writes the built-in photographs, as files and packed, to folders without them.

    Raises
    ------
    ConfigError
        If a parameter is invalid, or there is no room for the photographs.
    NotEnoughDataError
        If there is no published rate for the GPU to emulate.
    DeviceError
        If devices are missing.
    """
    p = parameters
    _check(p)
    devices = find_devices(p.device, p.engine, p.gpus)
    defaults = _CPU_DEFAULTS if devices.is_cpu else _GPU_DEFAULTS
    values = p.filled(defaults)
    _check_words(values)
    # The control is the first arm, and what a loader gives is compared.
    values["stages"] = [stage for stage in STAGES if stage in values["stages"]]
    emulated, without_rate = _emulated(p, devices, values["batch_size_per_gpu"])
    wanted = find_wanted(p, values)
    _check_sizes(wanted, values)
    sources = {name: data for place in wanted for name, data in place.data.items()}
    arms, stage_of = _arms(sources, values, devices, emulated)
    control = next(iter(arms)) if p.control else None
    config = next(iter(arms.values()))
    registry.resolve("engines", config.engine)().check(config)
    # Nothing is written before everything has been checked.
    places = tuple(place.filled() for place in wanted)
    memory_bytes = describe_machine(gpus=False)["usable_memory_bytes"]
    return StoragePlan(
        places=places,
        arms=arms,
        control=control,
        repeats=values["repeats"],
        prepared={
            "places": [asdict(place) for place in places],
            "stage_of": {arm: list(stage) for arm, stage in stage_of.items()},
            "cache": p.cache,
            "emulated": emulated.to_dict(),
            "gpus": p.gpus,
            "memory_bytes": memory_bytes,
            "replicate": copies_of(p, values),
            "read_bytes": values["read_bytes"],
            "read_repeats": values["read_repeats"],
            "gpu_without_rate": without_rate,
        },
        parameters=p,
        describe=describe,
    )


def describe(plan: PlanValues) -> list[str]:
    """Return what is read and measured, and what remains on the disks."""
    places = [Place.from_dict(place) for place in plan.facts["places"]]
    return [
        *plan.smoke_test(
            "Reads and decoding are measured on this machine; no GPU is used."
        ),
        *_where(places),
        *_guard(places, plan.facts),
        _what(plan, places),
        *_replaced(plan.facts),
        *_few_reads(plan.facts),
    ]


def _emulated(
    p: Parameters, devices: Devices, batch_size: int
) -> tuple[EmulatedStep, str | None]:
    """Return the step of a GPU, and the name of the one that has no published rate.

    The GPU is the requested one, this machine's, or one with a rate.
    """
    of = (_EMULATED_MODEL, _EMULATED_PRECISION, batch_size)
    gpu_name = p.gpu or devices.name or _DEFAULT_GPU
    try:
        return emulated_step(gpu_name, *of), None
    except NotEnoughDataError:
        if p.gpu:
            raise
        return emulated_step(_DEFAULT_GPU, *of), gpu_name


def _check(p: Parameters) -> None:
    names = ("gpus", "epochs", "repeats", "replicate", "read_bytes", "read_repeats")
    lines = below_one(p, *names)
    lines += [
        f"{name}={p[name]!r} is unknown. Use one of {', '.join(known)}."
        for name, known in (
            ("cache", get_args(CacheState)),
            ("read_engine", get_args(ReadEngine)),
        )
        if p[name] not in known
    ]
    if p.engine != "local":
        lines.append(
            f"engine={p.engine!r} may start runs on other machines, but reads, memory "
            "and page cache are measured on this machine. Use engine='local', in a "
            "cluster job if needed (srun papermill ...)."
        )
    places = Counter(
        name_and_path(text)[0] for text in (*(p.paths or []), *(p.data or []))
    )
    lines += [
        f"{count} places have the name {name!r}. Use different names, such as "
        "nas=/mnt/nas,local=/scratch."
        for name, count in places.items()
        if count > 1
    ]
    if lines:
        raise ParameterError("\n".join(lines))


def _check_words(values: Mapping[str, Any]) -> None:
    lines = [
        f"{name}={','.join(values[name])}: {word!r} is unknown. Use one or more "
        f"of {', '.join(known)}."
        for name, known in (("forms", FORMS), ("stages", STAGES))
        for word in values[name]
        if word not in known
    ]
    if lines:
        raise ParameterError("\n".join(lines))


def _check_sizes(wanted: Sequence[Wanted], values: Mapping[str, Any]) -> None:
    """Refuse data of which an epoch has nothing to measure after the warm-up."""
    batch = values["batch_size_per_gpu"] * values["gpus"]
    for source in wanted:
        steps = source.images // batch
        if steps <= values["warmup_steps"]:
            replicate = ", or a larger replicate" * source.is_ours
            message = (
                f"{source.name} has {plural(source.images, 'image')}, "
                f"{plural(steps, 'step')} of {batch} images per epoch, but "
                f"warmup_steps={values['warmup_steps']}. Use a smaller "
                f"batch_size_per_gpu or warmup_steps{replicate}."
            )
            raise ParameterError(message)


def _arms(
    sources: Mapping[str, str],
    values: Mapping[str, Any],
    devices: Devices,
    emulated: EmulatedStep,
) -> tuple[dict[str, ExperimentConfig], dict[str, tuple[str, str]]]:
    arms: dict[str, ExperimentConfig] = {}
    stage_of: dict[str, tuple[str, str]] = {}
    as_gpu = f"as {emulated.row.gpu_name}"
    stage_names = {"load": "loader", "emulate": as_gpu, "train": "training"}
    for stage in values["stages"]:
        for name, data in sources.items():
            arm = f"{name}, {stage_names[stage]}"
            arms[arm] = _config(name, data, stage, values, devices, emulated)
            stage_of[arm] = stage, name
    return arms, stage_of


def _config(
    source: str,
    data: str,
    stage: str,
    values: Mapping[str, Any],
    devices: Devices,
    emulated: EmulatedStep,
) -> ExperimentConfig:
    names = ("batch_size_per_gpu", "image_size", "loader", "epochs", "warmup_steps")
    names += ("seed", "gpus", "engine", *DATA_FAULT_FIELDS)
    given = {name: values[name] for name in names}
    if stage == "train":
        given |= {name: values[name] for name in ("model", "precision")}
    elif stage == "emulate":
        given["emulated_step_seconds"] = emulated.seconds
    return ExperimentConfig(
        task="train" if stage == "train" else "load",
        **given,
        data=data,
        name=f"storage {source} {stage}",
        device=devices.device_type,
        oversubscribe=devices.is_cpu and values["gpus"] > devices.count,
        tensorboard=False,
    )


def _where(places: Sequence[Place]) -> Iterable[str]:
    for place in places:
        if place.is_ours:
            size = sum(source.bytes for source in place.sources)
            yield (
                f"{place.name}: {wording.size(size)} of photographs remain in "
                f"{place.folder}/nbkit-photos-*. Remove them when no longer needed."
            )


def _guard(places: Sequence[Place], facts: Mapping[str, Any]) -> Iterable[str]:
    """Yield that even the largest data are too small for a test of storage."""
    memory_bytes, copies = facts["memory_bytes"], facts["replicate"]
    largest, is_ours = max(
        ((source, place.is_ours) for place in places for source in place.sources),
        key=lambda source_and_place: source_and_place[0].bytes,
    )
    if not memory_bytes or cache_evidence(largest.bytes, memory_bytes, 1) is None:
        return
    needed = math.ceil(copies * CACHE_FACTOR * memory_bytes / largest.bytes)
    remedy = f"-p replicate {needed}" if is_ours else "more data"
    yield (
        f"Cache test: {largest.name} ({wording.size(largest.bytes)}) is smaller than "
        f"{CACHE_FACTOR}x memory ({wording.size(memory_bytes)}), so epochs may be read "
        f"from the page cache. Use {remedy} to test the storage."
    )


def _what(plan: PlanValues, places: Sequence[Place]) -> str:
    facts, repeats = plan.facts, plan.repeats
    in_memory = all(place.storage["kind"] == "memory" for place in places)
    count = len(plan.arms) + bool(plan.control)
    epochs = next(iter(plan.arms.values())).epochs or 0
    return (
        f"Reads: {wording.size(facts['read_bytes'])}, sequential and random, "
        f"{'cold and ' * (not in_memory)}warm, n={facts['read_repeats']}. Then "
        f"{plural(count, 'arm')} of {plural(epochs, 'epoch')}, n={repeats}: "
        f"{plural(count * repeats, 'run')}, each with a {facts['cache']} cache at its "
        "start."
    )


def _replaced(facts: Mapping[str, Any]) -> Iterable[str]:
    if gpu_name := facts.get("gpu_without_rate"):
        yield f"{gpu_name} has no published rate, so {_DEFAULT_GPU} is emulated."


def _few_reads(facts: Mapping[str, Any]) -> Iterable[str]:
    """Yield that a time limit left fewer repeats of reads than planned."""
    repeats = [len(read["speed"]["readings"]) for read in facts.get("reads", ())]
    if repeats and min(repeats) < facts["read_repeats"]:
        yield (
            f"Reads: as few as {min(repeats)} of {facts['read_repeats']} repeats, "
            f"limited to {facts['read_limit_seconds']:.0f} s (a fifth of the time "
            "limit)."
        )
