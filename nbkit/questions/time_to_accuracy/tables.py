"""Tables of the time_to_accuracy report: recipes, seeds, published times, logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median_low
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.estimates.arithmetic import Estimate
from nbkit.plural import plural
from nbkit.references.rows import PublishedRow, printed_seconds, published
from nbkit.reports.arm_tables import held_together
from nbkit.reports.parts import Table
from nbkit.review.milestones import RecipeTimes, TimeToTarget, cost
from nbkit.statistics import Ratio, interval_in_words
from nbkit.statistics import quantities as wording

_SETTINGS = (
    *("optimizer", "learning_rate", "momentum", "lars_eta", "weight_decay"),
    *("decay_norm_and_bias", "schedule", "step_epochs", "step_factor"),
    *("polynomial_power", "polynomial_end", "learning_rate_warmup_epochs"),
    *("label_smoothing", "crop_area_min", "precision", "epochs"),
    *("evaluation_period_epochs", "evaluation_offset_epochs", "batch_size_per_gpu"),
)


def recipes_table(
    recipes: Sequence[RecipeTimes],
    verdicts: Mapping[str, Ratio | str],
    *,
    target: float,
    where: str,
    price_per_hour: float | None,
    currency: str,
) -> Table:
    """Return the headline: every recipe's times, epochs, energy and cost."""
    times = [one.times for one in recipes]
    return Table(
        f"Measured {where}: time to {target * 100:.3g} % top-1 accuracy",
        [
            *("recipe", "reached", "median time", "quartiles", "95 % interval"),
            *("olympic mean", "epochs", "in evaluations", "energy", "cost"),
            *("time ratio", "95 % interval", "verdict"),
        ],
        [
            [
                one.recipe,
                f"{one.times.reached} of {one.times.n}",
                wording.duration(one.times.median),
                _ends(one.times.q25, one.times.q75),
                _ends(one.times.ci_low, one.times.ci_high),
                wording.duration(one.times.olympic_mean),
                None if one.epochs.median is None else f"{one.epochs.median:g}",
                wording.percent(one.evaluation_share),
                wording.energy(one.joules),
                wording.price(cost(one.times.median, price_per_hour), currency),
                *_against(verdicts.get(one.recipe), is_first=place == 0),
            ]
            for place, one in enumerate(recipes)
        ],
        [
            "Time runs from the moment the first step asks for its first image to the "
            "end of the evaluation that reached the target, evaluations included. Each "
            "seed is one process start and one number; the spread is over seeds.",
            "A seed that did not reach the target counts as later than all that did: a "
            "quartile that would fall on it is unknown. Energy is that of the GPUs, "
            "the median of the seeds that reached; cost is the median time's.",
            "Olympic mean: MLPerf's statistic, without the fastest and slowest seed; "
            "MLPerf asks for five runs of ResNet-50.",
            *held_together([v for v in verdicts.values() if isinstance(v, Ratio)]),
        ],
        {
            "seeds": [one.n for one in times],
            "reached": [one.reached for one in times],
            "seconds_median": [one.median for one in times],
            "seconds_q25": [one.q25 for one in times],
            "seconds_q75": [one.q75 for one in times],
            "seconds_ci_low": [one.ci_low for one in times],
            "seconds_ci_high": [one.ci_high for one in times],
            "seconds_olympic_mean": [one.olympic_mean for one in times],
            "joules": [one.joules for one in recipes],
        },
    )


def _against(found: Ratio | str | None, *, is_first: bool) -> list[str | None]:
    if is_first:
        return [None, None, "baseline"]
    if not isinstance(found, Ratio):
        return [None, None, "withheld" if found else None]
    interval = None
    if found.ci_low is not None and found.ci_high is not None:
        interval = interval_in_words(found.ci_low, found.ci_high)
    return [f"{found.estimate:.3f}", interval, found.verdict]


def seeds_table(
    recipes: Sequence[RecipeTimes], price_per_hour: float | None, currency: str
) -> Table:
    """Return every seed with what it took, so that each number can be traced."""
    rows = [(one.recipe, run) for one in recipes for run in one.runs]
    return Table(
        "Every seed",
        [
            *("recipe", "seed", "time to target", "in evaluations", "start"),
            *("epochs", "images", "best top-1", "energy", "cost", "run"),
        ],
        [
            [
                recipe,
                f"{run.seed}",
                _time(run),
                wording.duration(run.evaluation_seconds),
                wording.duration(run.startup_seconds),
                None if run.epochs is None else f"{run.epochs}",
                None if run.images is None else f"{run.images:,}",
                f"{run.best_accuracy * 100:.1f} %",
                wording.energy(run.joules),
                _cost(run, price_per_hour, currency),
                run.run_id,
            ]
            for recipe, run in rows
        ],
        [
            "Start: from the start of the processes to the first image; it is in no "
            "time and no cost, as in MLPerf. The cost of a seed that did not reach "
            "the target is that of the time it was watched.",
        ],
        {
            "reached": [run.reached for _, run in rows],
            "seconds": [run.seconds for _, run in rows],
            "watched_seconds": [run.watched_seconds for _, run in rows],
            "evaluation_seconds": [run.evaluation_seconds for _, run in rows],
            "startup_seconds": [run.startup_seconds for _, run in rows],
            "joules": [run.joules for _, run in rows],
        },
    )


def _time(run: TimeToTarget) -> str:
    if run.seconds is None:
        return f"not within {wording.duration(run.watched_seconds)}"
    return wording.duration(run.seconds)


def _cost(run: TimeToTarget, price_per_hour: float | None, currency: str) -> str:
    if run.seconds is not None or price_per_hour is None:
        return wording.price(cost(run.seconds, price_per_hour), currency)
    spent = cost(run.watched_seconds, price_per_hour)
    return f"at least {wording.price(spent, currency)}"


def global_batch(config: ExperimentConfig) -> int:
    """Return the images of all devices in one step."""
    per_gpu = int(config.batch_size_per_gpu)
    return config.world_size * per_gpu * config.gradient_accumulation_steps


def unlike(configs: Mapping[str, ExperimentConfig]) -> str:
    """Return in what recipes differ that is not the recipe alone; empty if nowhere."""
    found = {
        "number format": {name: one.precision for name, one in configs.items()},
        "global batch": {name: global_batch(one) for name, one in configs.items()},
    }
    parts = [
        f"{what} ({', '.join(f'{name} {value}' for name, value in values.items())})"
        for what, values in found.items()
        if len(set(values.values())) > 1
    ]
    if not parts:
        return ""
    return f"the recipes also differ in {' and '.join(parts)}, which affects the times"


def settings_table(configs: Mapping[str, ExperimentConfig]) -> Table:
    """Return in what the recipes differ, and what they share."""
    values = {
        name: [_shown(getattr(config, name)) for config in configs.values()]
        for name in _SETTINGS
    }
    values["global batch"] = [f"{global_batch(one)}" for one in configs.values()]
    shared = [f"{n}={v[0]}" for n, v in values.items() if len(set(v)) == 1]
    rows = [[n, *v] for n, v in values.items() if len(set(v)) > 1]
    if len(configs) == 1:
        rows, shared = [[name, *value] for name, value in values.items()], []
    return Table(
        "What the recipes are",
        ["setting", *configs],
        rows,
        [f"The same in all: {', '.join(shared)}."] if shared else [],
    )


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(f"{part:g}" for part in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def printed_times() -> list[tuple[PublishedRow, float]]:
    """Return single runs whose whole time a report prints, in seconds."""
    return [
        (row, printed_seconds(row))
        for row in published(publisher="NetApp")
        if (row.conditions or "").startswith("single job")
    ]


def published_table(estimates: Sequence[Estimate]) -> Table:
    """Return published results of the whole, each by its own statistic."""
    lines: list[tuple[list[str | None], float]] = []
    for row, seconds in printed_times():
        cells = [
            f"{row.publisher}, {row.world_size} x {row.gpu_name}",
            wording.duration(seconds),
            None,
            "1 run, start to end as printed",
            f"{row.images_per_second:,.0f}",
            (row.conditions or "").split(",")[1].strip(),
        ]
        lines.append((cells, seconds))
    for one in estimates:
        minutes = one.published_minutes
        if minutes:
            cells = [
                f"MLPerf, {one.where}",
                wording.duration(60 * median_low(minutes)),
                _ends(60 * minutes[0], 60 * minutes[-1]) if len(minutes) > 1 else None,
                f"{plural(len(minutes), 'submission')}, olympic mean of 5 runs each",
                wording.rate(one.images_per_second),
                "ImageNet",
            ]
            lines.append((cells, 60 * median_low(minutes)))
    return Table(
        "Published by others: ResNet-50 to 75.9 % top-1",
        ["who, on what", "time", "fastest to slowest", "statistic", "images/s", "data"],
        [cells for cells, _ in lines],
        [
            "These are other people's numbers, under their conditions. NetApp's "
            "command has the target and at most 37 epochs; of MLPerf's submissions the "
            "median one is shown.",
        ],
        {"seconds": [seconds for _, seconds in lines]},
    )


def _ends(low: float | None, high: float | None) -> str | None:
    if low is None or high is None:
        return None
    return interval_in_words(low, high, wording.duration)
