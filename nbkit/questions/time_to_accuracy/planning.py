"""Plan of the time_to_accuracy notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nbkit import registry
from nbkit.config import ExperimentConfig
from nbkit.config.fields import DATA_FAULT_FIELDS
from nbkit.datasets.enough import check_enough_images
from nbkit.errors import ConfigError
from nbkit.estimates.forecast import GPUS, elsewhere, workload
from nbkit.launch.submit import existing_data
from nbkit.plural import plural
from nbkit.questions.study_plan import Plan, PlanValues, below_one
from nbkit.recipes.training import TrainingRecipe, training_recipe
from nbkit.studies.devices import Devices, find_devices
from nbkit.studies.parameters import Parameters

_DEFAULT_RECIPES = ("sgd", "lars")

_GPU_DEFAULTS: dict[str, Any] = {
    # MLPerf asks for five runs of ResNet-50, and so does a verdict.
    "repeats": 5,
    "estimate_steps": 60,
    "estimate_runs": 3,
    "estimate_batch": 256,
    "warmup_steps": 10,
}
_CPU_DEFAULTS: dict[str, Any] = {
    # Two CPUs answer within a minute.
    "repeats": 2,
    "estimate_steps": 5,
    "estimate_runs": 1,
    "estimate_batch": 4,
    "warmup_steps": 2,
}
_EVALUATED_BATCHES = {"cuda": 10, "cpu": 1}
"""In the short run for the estimate, which tells how fast evaluations are."""

SYNTHETIC_EVALUATION_SHARE = 20
"""Images of a synthetic epoch for one evaluation image."""

_OVERRIDES = (
    *("model", "image_size", "target_accuracy", "epochs"),
    *("evaluation_period_epochs", "evaluation_offset_epochs", "precision"),
)
"""Parameters that override values of the recipes."""

_VALID_ON_CPUS = (
    "Accuracies and epochs are valid; times, energy and cost do not apply to GPUs."
)

_ALIKE = ("model", "image_size", "target_accuracy")
"""Fields that must be equal in compared recipes."""


def plan(parameters: Parameters) -> Plan:
    """Return the plan for these parameters, without starting anything.

    Raises
    ------
    ConfigError
        If a parameter is invalid, a recipe or GPU is unknown, or the compared recipes
        differ in model, image size or target.
    DeviceError
        If devices are missing.
    """
    p = parameters
    _check_numbers(p)
    devices = find_devices(p.device, p.engine, p.gpus)
    defaults = _CPU_DEFAULTS if devices.is_cpu else _GPU_DEFAULTS
    given = _DEFAULT_RECIPES if p.recipes is None else p.recipes
    names = list(dict.fromkeys(given))
    recipes = {name: training_recipe(name) for name in names}
    arms = {
        name: _config(recipe, p, devices, defaults) for name, recipe in recipes.items()
    }
    _check_alike(arms)
    for config in arms.values():
        registry.resolve("engines", config.engine)().check(config)
    check_enough_images(arms.values())
    estimated = training_recipe(p.estimate_recipe)
    workload(estimated)  # raises immediately if there is nothing to estimate
    gpu_names = tuple(GPUS if p.estimate_for is None else p.estimate_for)
    elsewhere(estimated, gpu_names)  # raises immediately for an unknown GPU
    return Plan(
        arms=arms,
        unrepeated=_short_runs(estimated, p, devices, defaults),
        repeats=defaults["repeats"] if p.repeats is None else p.repeats,
        prepared={
            "seed_per_repeat": True,
            "estimate_recipe": p.estimate_recipe,
            "estimate_for": list(gpu_names),
            "price_per_hour": p.price_per_hour,
            "currency": p.currency,
        },
        parameters=p,
        describe=describe,
    )


def describe(plan: PlanValues) -> list[str]:
    """Return what is trained, the recipes, and what is projected."""
    estimated = training_recipe(plan.facts["estimate_recipe"])
    return [
        *plan.smoke_test(_VALID_ON_CPUS),
        _what(plan.arms, plan.repeats, plan.parameters["seed"]),
        *_recipe_notes(plan.arms),
        _estimated(estimated, plan.unrepeated),
        *_without_rates(estimated, plan.facts["estimate_for"]),
    ]


def _check_numbers(p: Parameters) -> None:
    lines = below_one(p, "gpus", "repeats", "batch_size_per_gpu")
    if p.estimate_steps is not None and p.estimate_steps < 0:
        lines.append(f"estimate_steps={p.estimate_steps} is below 0. Use 0 or more.")
    if p.recipes is not None and not p.recipes:
        lines.append(
            "recipes=[] is empty. List one or more, or omit recipes for sgd and lars."
        )
    if p.price_per_hour is not None and p.price_per_hour <= 0:
        lines.append(
            f"price_per_hour={p.price_per_hour} is not above 0. Use the price of the "
            "machine, or omit price_per_hour."
        )
    if p.data == "synthetic":
        lines.append(
            "data='synthetic' cannot be learned, so no target can be reached. Use "
            "photos, cifar10, imagenette or an image folder."
        )
    if lines:
        raise ConfigError("\n".join(lines))


def _config(
    recipe: TrainingRecipe,
    p: Parameters,
    devices: Devices,
    defaults: Mapping[str, Any],
) -> ExperimentConfig:
    # The configuration itself checks what a notebook's parameters say.
    chosen = p.batch_size_per_gpu
    batch = recipe.batch_size_per_gpu if chosen is None else chosen
    fields = recipe.for_batch(batch * p.gpus)
    if devices.is_cpu:
        fields["precision"] = "fp32"
    fields |= {name: p[name] for name in _OVERRIDES if p[name] is not None}
    return ExperimentConfig(
        **fields,
        name=f"time_to_accuracy {recipe.name}",
        data=existing_data(p.data),
        **{name: p[name] for name in DATA_FAULT_FIELDS},
        loader=p.loader,
        batch_size_per_gpu=batch,
        warmup_steps=defaults["warmup_steps"],
        seed=p.seed,
        gpus=p.gpus,
        device=devices.device_type,
        oversubscribe=devices.is_cpu and p.gpus > devices.count,
        engine=p.engine,
        # No one needs them; they take CPU time.
        tensorboard=False,
        # What is not finite has no answer to judge.
        stop_on_nonfinite=True,
    )


def _check_alike(arms: Mapping[str, ExperimentConfig]) -> None:
    lines = []
    for name in _ALIKE:
        by_arm = {arm: getattr(config, name) for arm, config in arms.items()}
        if len(set(by_arm.values())) > 1:
            values = ", ".join(f"{arm} {value}" for arm, value in by_arm.items())
            lines.append(
                f"recipes={','.join(arms)} differ in {name} ({values}), so their times "
                f"cannot be compared. Set {name}, or use recipes with the same {name}."
            )
    if lines:
        raise ConfigError("\n".join(lines))


def _short_runs(
    recipe: TrainingRecipe,
    p: Parameters,
    devices: Devices,
    defaults: Mapping[str, Any],
) -> dict[str, ExperimentConfig]:
    """Return short runs of a whole recipe's model; none where no steps are wanted."""
    steps = defaults["estimate_steps"] if p.estimate_steps is None else p.estimate_steps
    if not steps:
        return {}
    batch = min(recipe.batch_size_per_gpu, defaults["estimate_batch"])
    fields = recipe.for_batch(batch * p.gpus)
    # The target of a whole training is not a target of a few steps.
    for name in ("epochs", "target_accuracy", "evaluation_offset_epochs"):
        fields.pop(name, None)
    if devices.is_cpu:
        fields["precision"] = "fp32"
    evaluated = _EVALUATED_BATCHES[devices.device_type] * batch * p.gpus
    config = ExperimentConfig(
        **{**fields, "evaluation_period_epochs": 1_000_000},
        name=f"estimate {recipe.name}",
        steps=steps,
        warmup_steps=min(defaults["warmup_steps"], steps - 1),
        batch_size_per_gpu=batch,
        images_per_epoch=SYNTHETIC_EVALUATION_SHARE * evaluated,
        gpus=p.gpus,
        device=devices.device_type,
        oversubscribe=devices.is_cpu and p.gpus > devices.count,
        engine=p.engine,
        tensorboard=False,
    )
    runs = range(1, defaults["estimate_runs"] + 1)
    return {f"short run {n} of {recipe.name}": config for n in runs}


def _what(arms: Mapping[str, ExperimentConfig], repeats: int, seed: int) -> str:
    config = next(iter(arms.values()))
    target = f"{(config.target_accuracy or 0) * 100:.3g}%"
    seeds = f"seed {seed}" if repeats == 1 else f"seeds {seed} to {seed + repeats - 1}"
    return (
        f"{config.model} at {config.image_size} pixels on {config.data}, to {target} "
        f"top-1 with {', '.join(arms)}; {seeds} per recipe, "
        f"{plural(len(arms) * repeats, 'training run')} in all, interleaved. A run "
        "stops at the target accuracy or after its last epoch."
    )


def _recipe_notes(arms: Mapping[str, ExperimentConfig]) -> Iterator[str]:
    """Yield what each recipe is, and where it is not what is published."""
    for name, config in arms.items():
        recipe = training_recipe(name)
        batch = config.world_size * int(config.batch_size_per_gpu)
        rate = f"learning rate {config.learning_rate:.4g} at global batch {batch}"
        if batch != recipe.global_batch_size:
            rate += (
                f", scaled from {recipe.fields['learning_rate']:g} at "
                f"{recipe.global_batch_size}"
            )
        # Also what the recipe leaves to the defaults.
        original = ExperimentConfig(**recipe.fields)
        changed = [
            f"{field}={getattr(config, field)} instead of {value}"
            for field in _OVERRIDES
            if getattr(config, field) != (value := getattr(original, field))
        ]
        changes = f" Changed: {', '.join(changed)}." if changed else ""
        yield (
            f"{name}: {recipe.title}; {rate}; up to "
            f"{plural(config.epochs or 0, 'epoch')}, {_evaluated(config)}. "
            f"{recipe.note[:1].upper()}{recipe.note[1:]}."
            f"{changes}"
        )


def _evaluated(config: ExperimentConfig) -> str:
    period, offset = config.evaluation_period_epochs, config.evaluation_offset_epochs
    often = "every epoch" if period == 1 else f"every {period} epochs"
    return f"evaluated {often}" + (f" after epoch {offset}" if offset else "")


def _without_rates(recipe: TrainingRecipe, gpus: Sequence[str]) -> Iterator[str]:
    unpublished = [name for name in gpus if not elsewhere(recipe, [name])]
    if unpublished:
        yield (
            f"No projection: no published training rate of {recipe.fields['model']} "
            f"with real images on {', '.join(unpublished)}."
        )


def _estimated(recipe: TrainingRecipe, unrepeated: Sequence[str]) -> str:
    if not unrepeated:
        return (
            f"Projected: {recipe.name}, from published rates only (estimate_steps=0)."
        )
    return (
        f"Projected: {recipe.name}, from {plural(len(unrepeated), 'short run')} with "
        "synthetic data and from published rates."
    )
