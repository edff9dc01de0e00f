"""Plan of the inference notebook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nbkit import registry
from nbkit.config import ExperimentConfig
from nbkit.config.fields import DATA_FAULT_FIELDS, SIXTEEN_BIT
from nbkit.datasets.enough import check_enough_images
from nbkit.errors import ConfigError
from nbkit.launch.submit import existing_data
from nbkit.plural import plural
from nbkit.questions.study_plan import Plan, PlanValues, below_one
from nbkit.reading import expanded
from nbkit.review.row_checks import has_convolutions
from nbkit.statistics import images_needed
from nbkit.store.paths import is_id, runs_folder
from nbkit.studies.devices import Devices, find_devices, unsupported_note
from nbkit.studies.parameters import Parameters

BASELINE = "fp32"
"""TF32 is off in it."""

TRAIN = "train"
"""``weights`` of a training that the notebook does first."""

_GPU_DEFAULTS: dict[str, Any] = {
    "precisions": ["fp32", "tf32", "fp16", "bf16", "int8"],
    "batch_sizes": [1, 8, 32, 128],
    "batches": 1000,
    "warmup_batches": 50,
    "model": "resnet50",
    "image_size": 224,
    "training_steps": 200,
    "repeats": 5,
}
_CPU_DEFAULTS: dict[str, Any] = {
    "precisions": ["fp32", "bf16", "int8"],
    "batch_sizes": [1, 16],
    # The fewest that have a 99th percentile.
    "batches": 100,
    "warmup_batches": 5,
    "model": "resnet18",
    "image_size": 64,
    "training_steps": 75,
    "repeats": 5,
}
_SKIPPED = {
    "fp16-on-cpu": (
        "FP16 is skipped: few CPUs support it; -p precisions fp32,fp16,bf16,int8 "
        "measures it anyway. TF32 requires a GPU."
    ),
    "int8-convolutions": (
        "INT8 is skipped: torch has no INT8 convolution for GPUs, unlike TensorRT. Use "
        "-p device cpu or a vision transformer to measure it."
    ),
    "int8-uncompiled": (
        "INT8 is skipped: without compile it is slower than FP16 on a GPU."
    ),
    "compiled-for-int8": (
        "All formats are compiled: INT8 without compile is slower than FP16 on a GPU."
    ),
}
"""Why the measured formats differ from the requested ones, by code."""
_TRAINING_BATCH = 16
_EVALUATION_BATCH = 32


@dataclass(frozen=True, kw_only=True)
class InferencePlan(Plan):
    """Planned measurement; a notebook displays its notes."""

    training: ExperimentConfig | None
    """Training that produces the weights; None if they exist."""


def plan(parameters: Parameters) -> InferencePlan:
    """Return the plan for these parameters, without starting anything.

    Raises
    ------
    ConfigError
        If a parameter is invalid, or no format is left to compare.
    """
    p = parameters
    lines = below_one(p, "batches", "repeats", "training_steps", "calibration_images")
    if not 0 < p.accuracy_margin < 1:
        lines.append(
            f"accuracy_margin={p.accuracy_margin} is not between 0 and 1. Use a "
            "fraction of all images, such as 0.01."
        )
    if lines:
        raise ConfigError("\n".join(lines))
    devices = find_devices(p.device, "local", 1)
    defaults = _CPU_DEFAULTS if devices.is_cpu else _GPU_DEFAULTS
    values = p.filled(defaults)
    values["data"] = existing_data(values["data"])
    weights = _weights(values)
    precisions, facts = _precisions(p, values, devices)
    arms = {
        precision: _config(
            precision, values, devices, "random" if weights == TRAIN else weights
        )
        for precision in precisions
    }
    if len(arms) == 1:
        message = (
            f"precisions={','.join(values['precisions'])} leaves only {BASELINE}, so "
            "there is no comparison. Add a format, such as "
            f"{'bf16' if devices.is_cpu else 'fp16'}."
        )
        raise ConfigError(message)
    engine = registry.resolve("engines", "local")()
    for config in arms.values():  # before weights are trained for them
        engine.check(config)
    training = _training(values, devices) if weights == TRAIN else None
    check_enough_images([*arms.values(), *([training] if training else [])])
    return InferencePlan(
        arms=arms,
        training=training,
        control=BASELINE if p.control else None,
        repeats=values["repeats"],
        # 16 bits are compared with the baseline first, if there are any.
        first_arms=[BASELINE, next((a for a in arms if a in SIXTEEN_BIT), [*arms][1])],
        prepared={
            "accuracy_margin": p.accuracy_margin,
            "unavailable": {},
            "training_steps": training and training.steps,
            **facts,
        },
        parameters=p,
        describe=describe,
    )


def describe(plan: PlanValues) -> list[str]:
    """Return what is measured, with which weights, and what is skipped."""
    return [
        *plan.smoke_test(
            "The numbers are valid for this CPU and do not apply to GPUs.", "On a CPU"
        ),
        *unsupported_note(plan.facts),
        *(_SKIPPED[code] for code in plan.facts.get("skipped", ())),
        _what(plan),
        *_weights_notes(plan),
        *_enough_images(plan),
        *_availability(plan.facts),
    ]


def _weights(values: Mapping[str, Any]) -> str:
    """Return ``weights`` so that it means the same in any folder."""
    named = values["weights"]
    if named == TRAIN and values["data"] == "synthetic":
        message = (
            "weights='train' requires real images, but data='synthetic' has none. Use "
            "data='photos' or weights='random'."
        )
        raise ConfigError(message)
    if named in (TRAIN, "random", "pretrained"):
        return named
    if is_id(named) and (runs_folder() / named).is_dir():
        return named
    path = expanded(named, "weights").resolve()
    if not path.exists():
        message = (
            f"weights={named!r} is not a run of the store, a file or a folder "
            f"({path}). Use 'train', 'random', 'pretrained', a run id or the path of a "
            "checkpoint."
        )
        raise ConfigError(message)
    return str(path)


def _precisions(
    p: Parameters, values: dict[str, Any], devices: Devices
) -> tuple[list[str], dict[str, Any]]:
    """Return the formats, the baseline first, and what is left out or compiled."""
    wanted, skipped = list(values["precisions"]), list[str]()
    if "tf32" in wanted and devices.is_cpu:
        message = "precisions includes tf32, which requires a GPU. Remove it."
        raise ConfigError(message)
    if devices.is_cpu and p.precisions is None:
        skipped.append("fp16-on-cpu")
    wanted, facts = devices.formats(wanted, p.precisions)
    convolutions = has_convolutions(values["model"])
    if not devices.is_cpu and p.precisions is None and convolutions:
        wanted.remove("int8")
        skipped.append("int8-convolutions")
    elif not devices.is_cpu and "int8" in wanted:
        if p.sources["compile"] == "default":
            values["compile"] = True
            skipped.append("compiled-for-int8")
        elif p.precisions is None and not p.compile:
            wanted.remove("int8")
            skipped.append("int8-uncompiled")
    facts |= {"skipped": skipped} if skipped else {}
    return list(dict.fromkeys([BASELINE, *wanted])), facts


def _config(
    precision: str, values: Mapping[str, Any], devices: Devices, weights: str
) -> ExperimentConfig:
    # The configuration itself checks what a notebook's parameters say.
    names = ("model", "image_size", "data", "memory_format", "seed")
    return ExperimentConfig(
        task="inference",
        name=f"inference {precision}",
        precision=precision,  # type: ignore[arg-type]
        weights=weights,
        batch_size_per_gpu=_EVALUATION_BATCH,
        device=devices.device_type,
        # INT8 is compiled on GPUs alone.
        compile=values["compile"] and not (devices.is_cpu and precision == "int8"),
        # No one needs the curves of some passes.
        tensorboard=False,
        inference={  # type: ignore[arg-type]
            "batch_sizes": tuple(values["batch_sizes"]),
            "batches": values["batches"],
            "warmup_batches": values["warmup_batches"],
            "calibration_images": values["calibration_images"],
        },
        **{name: values[name] for name in (*names, *DATA_FAULT_FIELDS)},
    )


def _training(values: Mapping[str, Any], devices: Devices) -> ExperimentConfig:
    """Return a training that is long enough for accuracy to mean something."""
    names = ("model", "image_size", "data", "memory_format", "seed")
    return ExperimentConfig(
        name="inference weights",
        steps=values["training_steps"],
        warmup_steps=0,
        batch_size_per_gpu=_TRAINING_BATCH,
        learning_rate=0.02,
        device=devices.device_type,
        tensorboard=False,
        checkpoint_at_end=True,
        # Weights that are not numbers say nothing about formats.
        stop_on_nonfinite=True,
        **{name: values[name] for name in (*names, *DATA_FAULT_FIELDS)},
    )


def _what(plan: PlanValues) -> str:
    """Return how much is measured."""
    config, repeats = plan.arms[BASELINE], plan.repeats
    passes, side = config.inference, config.image_size
    count = len(plan.arms) + bool(plan.control)
    again = f" and an {BASELINE} A/A control" if plan.control else ""
    sizes = ", ".join(map(str, passes.batch_sizes))
    back_to_back = "" if plan.is_cpu else ", then 6 s of back-to-back passes"
    return (
        f"{config.model}, {side}x{side}, in {', '.join(plan.arms)}{again}; batch sizes "
        f"{sizes}; {plural(passes.batches, 'timed pass', 'timed passes')} each (at "
        f"most {passes.limit_seconds:g} s) after "
        f"{plural(passes.warmup_batches, 'warm-up pass', 'warm-up passes')}"
        f"{back_to_back}; n={plural(repeats, 'process start')} per format, "
        f"interleaved, {count * repeats} in all."
    )


def _weights_notes(plan: PlanValues) -> list[str]:
    config = plan.arms[BASELINE]
    weights, data = config.weights, config.data
    if steps := plan.facts.get("training_steps"):
        trained = [] if weights == "random" else [f"Weights: run {weights}."]
        return [
            f"Weights: trained before the measurement, {steps} steps on {data}; set -p "
            "weights to use a run or checkpoint.",
            *trained,
        ]
    if weights == "random":
        return ["Weights: random, so accuracy is not meaningful and not tested."]
    if weights == "pretrained" and data != "synthetic":
        return [
            f"Weights: pretrained. If {data} has another number of classes, the new "
            "output layer is untrained and accuracy is not tested; use -p weights "
            "train."
        ]
    return [f"Weights: {weights}."]


def _availability(facts: Mapping[str, Any]) -> list[str]:
    """Return which formats were tried, and the errors of those that failed."""
    return [
        *(
            f"{arm} is not available: {error}"
            for arm, error in facts["unavailable"].items()
        ),
        *(f"{arm} is available (tried once)." for arm in facts.get("tried", ())),
    ]


def _enough_images(plan: PlanValues) -> list[str]:
    data, margin = plan.arms[BASELINE].data, plan.facts["accuracy_margin"]
    if data == "synthetic" or plan.parameters["weights"] == "random":
        return []
    needed, points = images_needed(margin), 100 * margin
    here = " (photos has 96)" if data == "photos" else ""
    return [
        f"Showing that accuracy is kept ({points:g}-point margin) requires at least "
        f"{plural(needed, 'evaluation image')}{here}."
    ]
