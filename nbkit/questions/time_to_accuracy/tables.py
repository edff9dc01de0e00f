"""Tables of the time_to_accuracy report: recipes, seeds, published times, logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median_low
from typing import Any, NamedTuple

from nbkit.config import ExperimentConfig
from nbkit.estimates.arithmetic import Estimate
from nbkit.plural import plural
from nbkit.references.rows import PublishedRow, printed_seconds, published
from nbkit.reports.arm_tables import held_together
from nbkit.reports.columns import Column, interval, interval_text, number, table
from nbkit.reports.parts import Table
from nbkit.review.milestones import RecipeTimes, TimeToTarget, cost
from nbkit.statistics import Ratio, Times, interval_in_words
from nbkit.statistics import quantities as wording

_SETTINGS = (
    *("optimizer", "learning_rate", "momentum", "lars_eta", "weight_decay"),
    *("decay_norm_and_bias", "schedule", "step_epochs", "step_factor"),
    *("polynomial_power", "polynomial_end", "learning_rate_warmup_epochs"),
    *("label_smoothing", "crop_area_min", "precision", "epochs"),
    *("evaluation_period_epochs", "evaluation_offset_epochs", "batch_size_per_gpu"),
)

_RECIPE_NOTES = (
    "Median and quartiles: over all seeds; seeds that missed the target rank last. "
    "Energy: of GPUs, median over seeds that reached the target. Cost: of the median "
    "time.",
    "Olympic mean (MLPerf): mean without the fastest and slowest seed.",
)


def recipes_table(
    recipes: Sequence[RecipeTimes],
    verdicts: Mapping[str, Ratio | str],
    *,
    target: float,
    is_cpu: bool,
    price_per_hour: float | None,
    currency: str,
) -> Table:
    """Return the headline: every recipe's times, epochs, energy and cost."""
    ratios = {name: v for name, v in verdicts.items() if isinstance(v, Ratio)}
    verdict_text: dict[str, str] = dict.fromkeys(verdicts, "withheld")
    verdict_text |= {name: ratio.verdict for name, ratio in ratios.items()}
    verdict_text[recipes[0].recipe] = "baseline"

    def ratio(row: RecipeTimes) -> Ratio | None:
        return ratios.get(row.recipe)

    def price_cell(row: RecipeTimes) -> str:
        return wording.price(cost(row.times.median, price_per_hour), currency)

    where = "CPU smoke test" if is_cpu else "GPUs"
    return table(
        f"Time to {target * 100:.3g}% top-1 accuracy ({where})",
        [
            Column("recipe", "recipe"),
            Column(None, "times.n", csv="seeds"),
            number(None, "times.reached"),
            Column("reached", lambda row: f"{row.times.reached} of {row.times.n}"),
            Column("median time", lambda row: wording.duration(row.times.median)),
            Column("quartiles", "times", _quartiles),
            Column("95% CI", "times", interval(wording.duration)),
            *(
                Column(None, f"times.{name}", csv=f"seconds_{name}")
                for name in ("median", "q25", "q75", "ci_low", "ci_high")
            ),
            Column(
                *("olympic mean", "times.olympic_mean", wording.duration),
                "seconds_olympic_mean",
            ),
            Column("epochs", "epochs.median", "{:g}".format),
            Column("evaluation share", "evaluation_share", wording.percent),
            number("energy", "joules", wording.energy),
            Column("cost", price_cell),
            Column("time ratio", ratio, lambda ratio: f"{ratio.estimate:.3f}"),
            Column("95% CI", ratio, interval()),
            Column("verdict", lambda row: verdict_text.get(row.recipe)),
        ],
        recipes,
        [*_RECIPE_NOTES, *held_together([*ratios.values()])],
    )


def _quartiles(times: Times) -> str | None:
    return interval_text(times.q25, times.q75, wording.duration)


class _Seed(NamedTuple):
    recipe: str
    run: TimeToTarget


def seeds_table(
    recipes: Sequence[RecipeTimes], price_per_hour: float | None, currency: str
) -> Table:
    """Return time, epochs and costs of every seed."""

    def time_cell(run: TimeToTarget) -> str:
        if run.seconds is None:
            return f"> {wording.duration(run.watched_seconds)}"
        return wording.duration(run.seconds)

    def price_cell(run: TimeToTarget) -> str:
        is_least = run.seconds is None and price_per_hour is not None
        seconds = run.watched_seconds if is_least else run.seconds
        amount = wording.price(cost(seconds, price_per_hour), currency)
        return f"at least {amount}" if is_least else amount

    return table(
        "Every seed",
        [
            Column("recipe", "recipe"),
            Column("seed", "run.seed"),
            Column("time to target", "run", time_cell),
            *(
                number(None, f"run.{name}")
                for name in ("reached", "seconds", "watched_seconds")
            ),
            number("evaluation", "run.evaluation_seconds", wording.duration),
            number("startup", "run.startup_seconds", wording.duration),
            Column("epochs", "run.epochs"),
            Column("images", "run.images", "{:,}".format),
            Column("best top-1", "run.best_accuracy", wording.percent),
            number("energy", "run.joules", wording.energy),
            Column("cost", "run", price_cell),
            Column("run", "run.run_id"),
        ],
        [_Seed(row.recipe, run) for row in recipes for run in row.runs],
        [
            "Startup: from process start to the first image; not part of time or "
            "cost, as in MLPerf. Time and cost of seeds that missed the target end at "
            "their last evaluation.",
        ],
    )


def global_batch(config: ExperimentConfig) -> int:
    """Return the global batch: images of all devices in one step."""
    per_gpu = int(config.batch_size_per_gpu)
    return config.world_size * per_gpu * config.gradient_accumulation_steps


def unlike(configs: Mapping[str, ExperimentConfig]) -> str:
    """Return other differences between recipes that affect times; may be empty."""
    settings = {
        "number format": {name: config.precision for name, config in configs.items()},
        "global batch": {
            name: global_batch(config) for name, config in configs.items()
        },
    }
    parts = [
        f"{what} ({', '.join(f'{name} {value}' for name, value in values.items())})"
        for what, values in settings.items()
        if len(set(values.values())) > 1
    ]
    if not parts:
        return ""
    return f"the recipes also differ in {' and '.join(parts)}, which affects the times"


def settings_table(configs: Mapping[str, ExperimentConfig]) -> Table:
    """Return the settings that differ between recipes, and the shared ones."""
    values = {
        name: [_shown(getattr(config, name)) for config in configs.values()]
        for name in _SETTINGS
    }
    values["global batch"] = [f"{global_batch(config)}" for config in configs.values()]
    shared = [f"{n}={v[0]}" for n, v in values.items() if len(set(v)) == 1]
    rows = [[n, *v] for n, v in values.items() if len(set(v)) > 1]
    if len(configs) == 1:
        rows, shared = [[name, *value] for name, value in values.items()], []
    return Table(
        "Recipe settings",
        ["setting", *configs],
        rows,
        [f"Equal in all: {', '.join(shared)}."] if shared else [],
    )


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(f"{part:g}" for part in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def printed_times() -> list[tuple[PublishedRow, float]]:
    """Return published run times of whole trainings, in seconds."""
    return [
        (row, printed_seconds(row))
        for row in published(publisher="NetApp")
        if (row.conditions or "").startswith("single job")
    ]


def published_table(estimates: Sequence[Estimate]) -> Table:
    """Return published results of whole trainings, each with its own statistic."""
    lines: list[tuple[list[str | None], float]] = []
    for row, seconds in printed_times():
        cells = [
            f"{row.publisher}, {row.world_size}x {row.gpu_name}",
            wording.duration(seconds),
            None,
            "1 run, start to end",
            f"{row.images_per_second:,.0f}",
            (row.conditions or "").split(",")[1].strip(),
        ]
        lines.append((cells, seconds))
    for estimate in estimates:
        minutes = estimate.published_minutes
        if minutes:
            cells = [
                f"MLPerf, {estimate.where}",
                wording.duration(60 * median_low(minutes)),
                interval_in_words(60 * minutes[0], 60 * minutes[-1], wording.duration)
                if len(minutes) > 1
                else None,
                f"{plural(len(minutes), 'submission')}, olympic mean of 5 runs each",
                wording.rate(estimate.images_per_second),
                "ImageNet",
            ]
            lines.append((cells, 60 * median_low(minutes)))
    return Table(
        "Published by others: ResNet-50 to 75.9% top-1",
        ["source", "time", "fastest to slowest", "statistic", "images/s", "data"],
        [cells for cells, _ in lines],
        [
            "Conditions differ by publisher. NetApp: to the target, at most 37 "
            "epochs; MLPerf: median of submissions.",
        ],
        {"seconds": [seconds for _, seconds in lines]},
    )
