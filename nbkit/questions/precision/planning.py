"""Plan of the precision notebook."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from nbkit import registry
from nbkit.config import ExperimentConfig
from nbkit.config.fields import DATA_FAULT_FIELDS, SIXTEEN_BIT
from nbkit.datasets.enough import check_enough_images
from nbkit.errors import ConfigError
from nbkit.estimates.memory import estimate_memory
from nbkit.launch.submit import existing_data
from nbkit.plural import plural
from nbkit.questions.precision.answers import ROUNDING
from nbkit.questions.precision.layouts import Format
from nbkit.questions.study_plan import Plan, PlanValues, below_one, images_in_words
from nbkit.studies.devices import Devices, find_devices, unsupported_note
from nbkit.studies.parameters import Parameters

BASELINE = Format("fp32", "channels_last")
"""Neither 16 bits nor TF32 nor compilation, in the layout that tensor cores want."""

_GPU_DEFAULTS: dict[str, Any] = {
    "precision": ["fp32", "tf32", "fp16", "bf16"],
    "memory_format": ["channels_last", "channels_first"],
    "compile": [False, True],
    "model": "resnet50",
    "image_size": 224,
    # Six seconds of every arm: 200 steps are 10 s in fp16, and a minute in fp32.
    "steps": None,
    "warmup_steps": 10,
    "repeats": 5,
}
_CPU_DEFAULTS: dict[str, Any] = {
    "precision": ["fp32", "bf16"],
    "memory_format": ["channels_last", "channels_first"],
    "compile": [False],
    "model": "resnet18",
    "batch_size_per_gpu": 8,
    "image_size": 64,
    "steps": 12,
    "warmup_steps": 3,
    "repeats": 5,
}
_GPU_BATCHES = (256, 128, 64, 32)
"""The first is that of the published PyTorch and Paddle tables, so that they compare;
the next ones are for GPUs with less memory."""

_BESIDE_THE_ESTIMATE_BYTES = 2 * 2**30
"""CUDA's own share, workspaces of cuDNN and fragmentation."""

_LEARNING_RATE_OF_256 = 0.1
"""For a batch of 256, in proportion for others (P. Goyal et al., Accurate, Large
Minibatch SGD, https://arxiv.org/abs/1706.02677). A rate too large for its batch makes
training chaotic, and the least rounding then changes where it arrives."""

_CONFIG_FIELDS = (
    *("model", "batch_size_per_gpu", "image_size", "data", "loader", "steps"),
    *("warmup_steps", "seed", "gpus", "engine", "cudnn_benchmark"),
    *DATA_FAULT_FIELDS,
)


def plan(parameters: Parameters) -> Plan:
    """Return the plan for these parameters, without starting anything.

    Raises
    ------
    ConfigError
        If a parameter is invalid, or no arm is left to compare.
    DeviceError
        If devices are missing.
    """
    p = parameters
    # The learning rate follows from the batch and would be refused too.
    lines = below_one(p, "gpus", "repeats", "batch_size_per_gpu")
    if not 0 < p.loss_tolerance < 1:
        lines.append(
            f"loss_tolerance={p.loss_tolerance} is not between 0 and 1. Use a fraction "
            "of the first loss, such as 0.05."
        )
    if lines:
        raise ConfigError("\n".join(lines))
    devices = find_devices(p.device, p.engine, p.gpus)
    values, facts = _with_defaults(p, devices)
    formats = _formats(p, values, devices)
    arms = {format_.name: _config(format_, values, devices) for format_ in formats}
    if len(arms) == 1:
        message = (
            f"precision={values['precision']}, memory_format="
            f"{values['memory_format']} and compile={values['compile']} leave "
            f"only {BASELINE.name}. Add a precision to compare with it."
        )
        raise ConfigError(message)
    perturbed = _perturbed(formats, arms[BASELINE.name]) if p.control else {}
    # All arms are alike to the engine: it says before the first one if they do not fit.
    config = arms[BASELINE.name]
    registry.resolve("engines", config.engine)().check(config)
    check_enough_images([config])
    return Plan(
        arms=arms,
        control=BASELINE.name if p.control else None,
        unrepeated=perturbed,
        repeats=values["repeats"],
        first_arms=[BASELINE.name, _in_16_bits(formats).name],
        prepared={"loss_tolerance": p.loss_tolerance, **facts},
        parameters=p,
        describe=describe,
    )


def describe(plan: PlanValues) -> list[str]:
    """Return what is measured, what is skipped, and what all arms have in common."""
    return [
        *plan.smoke_test("This is not a GPU benchmark."),
        *unsupported_note(plan.facts),
        *_smaller_batch(plan.facts),
        _what(plan),
        _conditions(plan.arms[BASELINE.name]),
    ]


def _with_defaults(
    p: Parameters, devices: Devices
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters, those left open chosen for the device, and why."""
    defaults = _CPU_DEFAULTS if devices.is_cpu else _GPU_DEFAULTS
    values = p.filled(defaults)
    values["data"] = existing_data(values["data"])
    values["precision"], facts = devices.formats(values["precision"], p.precision)
    if values["batch_size_per_gpu"] is None:
        values["batch_size_per_gpu"], smaller = _batch_that_fits(values, devices)
        facts |= smaller
    return values, facts


def _batch_that_fits(
    values: Mapping[str, Any], devices: Devices
) -> tuple[int, dict[str, Any]]:
    """Return the batch for which the baseline fits the smallest GPU, and why."""
    usual = _GPU_BATCHES[0]
    memory_bytes = devices.memory_bytes
    if memory_bytes is None:
        return usual, {}
    config = ExperimentConfig(model=values["model"], image_size=values["image_size"])
    batch = None
    for size in _GPU_BATCHES:
        needed = estimate_memory(config.replace(batch_size_per_gpu=size))
        if needed is None:
            return usual, {}
        if needed.total_bytes + _BESIDE_THE_ESTIMATE_BYTES <= memory_bytes:
            batch = size
            break
    fits = batch is not None
    batch = batch or _GPU_BATCHES[-1]
    facts = {"batch_size": batch, "gpu_memory_bytes": memory_bytes, "fits": fits}
    return batch, {"smaller_batch": facts} if batch < usual else {}


def _smaller_batch(facts: Mapping[str, Any]) -> list[str]:
    smaller = facts.get("smaller_batch")
    if smaller is None:
        return []
    memory = f"{smaller['gpu_memory_bytes'] / 2**30:.0f} GiB"
    return [
        f"The batch size is {smaller['batch_size']} instead of {_GPU_BATCHES[0]}, "
        f"because fp32 must fit in {memory} of GPU memory (estimate)."
        f"{'' if smaller['fits'] else ' It may still be too large.'}"
    ]


def _formats(
    p: Parameters, values: Mapping[str, Any], devices: Devices
) -> list[Format]:
    """Return every combination, the baseline first whether it was asked for or not."""
    all_formats = (
        Format(precision, memory_format, compiled)
        for compiled in values["compile"]
        for memory_format in values["memory_format"]
        for precision in values["precision"]
    )
    if devices.is_cpu and p.memory_format is None and len(values["precision"]) > 1:
        # The layout is about 16 bits; a CPU measures no more than that.
        all_formats = (
            format_
            for format_ in all_formats
            if format_.memory_format == "channels_last"
            or format_.precision in SIXTEEN_BIT
        )
    return list(dict.fromkeys([BASELINE, *all_formats]))


def _in_16_bits(formats: Sequence[Format]) -> Format:
    """Return what is compared with the baseline first: 16 bits, if there are any."""
    others = formats[1:]
    return next(
        (candidate for candidate in others if candidate.precision in SIXTEEN_BIT),
        others[0],
    )


def _config(
    format_: Format, values: Mapping[str, Any], devices: Devices
) -> ExperimentConfig:
    # The configuration itself checks what a notebook's parameters say.
    given: dict[str, Any] = {name: values[name] for name in _CONFIG_FIELDS}
    global_batch = values["gpus"] * values["batch_size_per_gpu"]
    return ExperimentConfig(
        learning_rate=_LEARNING_RATE_OF_256 * global_batch / 256,
        **{**given, **asdict(format_)},
        name=f"precision {format_.name}",
        device=devices.device_type,
        # No one needs the curves of some hundred steps; they take CPU time.
        tensorboard=False,
        # What is not finite has no answer to judge.
        stop_on_nonfinite=True,
    )


def _perturbed(
    formats: Iterable[Format], baseline: ExperimentConfig
) -> dict[str, ExperimentConfig]:
    """Return the baseline with weights changed by as little as each precision rounds.

    How far that takes the loss is not a fault of a format.
    """
    arms = {}
    for size in sorted({ROUNDING[format_.precision] for format_ in formats}):
        name = f"weights changed by 2^{math.log2(size):.0f}"
        arms[f"{BASELINE.name}, {name}"] = baseline.replace(
            weight_perturbation=size, name=f"precision, {name}"
        )
    return arms


def _what(plan: PlanValues) -> str:
    """Return how much is measured."""
    arms, repeats = len(plan.arms) + bool(plan.control), plan.repeats
    perturbed = len(plan.unrepeated)
    control = ", measured twice (A/A control)" if plan.control else ""
    first = f", and {plural(perturbed, 'run')} with perturbed weights" * bool(perturbed)
    return (
        f"{plural(arms, 'arm')}, n={repeats}{', interleaved' * (arms > 1)}: "
        f"{plural(arms * repeats, 'run')}{first}. The baseline is "
        f"{BASELINE.name}, not compiled{control}."
    )


def _conditions(config: ExperimentConfig) -> str:
    """Return what all arms have in common."""
    size = config.image_size
    return (
        f"Conditions: {config.model}, batch {config.batch_size_per_gpu} per rank, "
        f"{size}x{size}, {plural(config.gpus, 'rank')}, {images_in_words(config)}, "
        f"seed {config.seed}, learning rate {config.learning_rate:.3g}; "
        f"{config.length}; cudnn_benchmark={config.cudnn_benchmark}."
    )
