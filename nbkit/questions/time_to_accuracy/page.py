"""Report of a time-to-accuracy study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, NotEnoughDataError
from nbkit.estimates.forecast import WholeTraining, estimate
from nbkit.launch.run import Run
from nbkit.plural import plural
from nbkit.questions.time_to_accuracy.chart import accuracy_chart
from nbkit.questions.time_to_accuracy.tables import (
    printed_times,
    published_table,
    recipes_table,
    seeds_table,
    settings_table,
    unlike,
)
from nbkit.recipes.training import training_recipe
from nbkit.reports.arms import require_runs
from nbkit.reports.conditions import WELCH
from nbkit.reports.mlperf_log import closed_obstacles, mllog
from nbkit.reports.page import Evidence, page
from nbkit.reports.renderer import Figure, Note, Report, Source, Table
from nbkit.review.milestones import RecipeTimes, compare_recipes, time_to_target
from nbkit.review.usable_arms import NOTHING_COMPARED, usable_arms
from nbkit.statistics import MINIMUM_RUNS, Ratio, comparisons_at_once
from nbkit.statistics import quantities as wording
from nbkit.studies.study import Study

_QUESTION = "Time to a target accuracy by training recipe"
_MLPERF = Source(
    "MLCommons, MLPerf training rules: what is timed, and how runs are scored",
    "https://github.com/mlcommons/training_policies/blob/master/training_rules.adoc",
)


@dataclass(frozen=True)
class TimeToAccuracyResult:
    """Results of a study of training recipes."""

    recipes: tuple[RecipeTimes, ...]
    """Recipes with a finished run, in the plan's order; the first is the baseline."""
    configs: Mapping[str, ExperimentConfig]
    """By recipe."""
    whole: WholeTraining
    """The estimate."""
    evidence: Evidence

    @property
    def target(self) -> float:
        """Top-1 accuracy, 0 to 1."""
        return self.recipes[0].runs[0].target

    @cached_property
    def verdicts(self) -> dict[str, Ratio | str]:
        """Ratio of times for every recipe but the first, or why there is none."""
        first, *compared = self.recipes

        def among(comparisons: int) -> dict[str, Ratio | str]:
            return {
                recipe.recipe: compare_recipes(recipe, first, comparisons)
                for recipe in compared
            }

        shared = comparisons_at_once(
            lambda shared: [v for v in among(shared).values() if isinstance(v, Ratio)]
        )
        return among(shared)

    @property
    def table(self) -> Table:
        """The headline: every recipe's times, epochs, energy and cost."""
        return recipes_table(
            self.recipes,
            self.verdicts,
            target=self.target,
            is_cpu=self.evidence.is_cpu,
            price_per_hour=self.evidence.plan.get("price_per_hour"),
            currency=self._currency,
        )

    @property
    def _measured(self) -> dict[str, ExperimentConfig]:
        """Configurations of the recipes with a finished run."""
        return {recipe.recipe: self.configs[recipe.recipe] for recipe in self.recipes}

    @property
    def answer(self) -> str:
        """Time of each recipe to the target, and the ratios of the times."""
        lost = {
            recipe.recipe: recipe.nonfinite
            for recipe in self.recipes
            if recipe.nonfinite
        }
        counted = [recipe for recipe in self.recipes if recipe.recipe not in lost]
        if not counted:
            return NOTHING_COMPARED
        times = "; ".join(self._time_sentence(recipe_times) for recipe_times in counted)
        ends = [
            verdict.sentence if isinstance(verdict, Ratio) else f"{verdict}."
            for recipe, verdict in self.verdicts.items()
            # The lead of the report says what is not finite.
            if usable_arms([recipe], lost, (self.recipes[0].recipe,))
        ]
        text = f"To {self.target * 100:.3g}% top-1: {times}."
        if ends:
            ends += [differs] if (differs := unlike(self._measured)) else []
            text += f" Times: {'; '.join(end.removesuffix('.') for end in ends)}."
        return text

    @property
    def untimed(self) -> str:
        """Epochs to the target: the part of the answer independent of times."""
        counts = []
        for recipe in self.recipes:
            if not recipe.nonfinite:
                times, median = recipe.times, recipe.epochs.median
                epochs = wording.UNKNOWN if median is None else f"{median:g}"
                reached = f"{times.reached} of {plural(times.n, 'seed')}"
                counts.append(f"{recipe.recipe} {epochs} ({reached})")
        text = f"epochs to {self.target * 100:.3g}% top-1: {'; '.join(counts)}."
        return text * bool(counts)

    def report(self) -> Report:
        """Return everything in one report."""
        printed, price = printed_times(), self.evidence.plan.get("price_per_hour")
        chart = accuracy_chart(self.recipes, is_cpu=self.evidence.is_cpu)
        sources = [
            *(WELCH, _MLPERF),
            *(training_recipe(recipe.recipe).source for recipe in self.recipes),
            *self.whole.sources,
            *(Source(row.source, row.url) for row, _ in printed),
        ]
        return page(
            _QUESTION,
            self.evidence,
            self.answer,
            [
                self.table,
                seeds_table(self.recipes, price, self._currency),
                *(settings_table(self._measured), self.whole.table),
                published_table(self.whole.estimates),
                Figure("Accuracy against time, every seed", chart),
            ],
            untimed=self.untimed,
            method=[
                "Time: from the first image request to the end of the evaluation that "
                "reached the target, including evaluations, excluding process startup "
                "and pauses between attempts (MLPerf: run_start to run_stop, which "
                "includes pauses).",
                "95% CI: computed with Student's t (ratios: Welch's t) from the "
                f"logarithms of the times; a verdict requires {MINIMUM_RUNS} seeds per "
                "recipe, all of which reached the target.",
            ],
            sources=sources,
            quantity="seconds to target",
            numbers={
                "target_accuracy": self.target,
                "recipes": {recipe.recipe: _facts(recipe) for recipe in self.recipes},
                "verdicts": {
                    name: asdict(verdict) if isinstance(verdict, Ratio) else verdict
                    for name, verdict in self.verdicts.items()
                },
                "projected": self.whole.to_dict(),
                "published": [
                    {**asdict(row), "seconds": seconds} for row, seconds in printed
                ],
            },
        )

    @property
    def _currency(self) -> str:
        return self.evidence.plan.get("currency", "USD")

    def _time_sentence(self, recipe: RecipeTimes) -> str:
        times, most = recipe.times, self.configs[recipe.recipe].epochs
        if not times.reached:
            seeds = plural(times.n, "seed")
            epochs = plural(most or 0, "epoch")
            return f"{recipe.recipe} missed the target with {seeds} in {epochs}"
        reached = f"{times.reached} of {plural(times.n, 'seed')} reached the target"
        if times.median is None:
            fastest = wording.duration(times.fastest)
            return f"{recipe.recipe} {fastest} (fastest seed, {reached})"
        spread = reached
        if times.q25 is not None and times.q75 is not None and times.n > 1:
            ends = wording.duration(times.q25), wording.duration(times.q75)
            spread += f", quartiles {ends[0]} to {ends[1]}"
        if (count := recipe.epochs.median) is not None:
            spread += f", {count:g} epoch{'s' * (count != 1)}"
        median = wording.duration(times.median)
        return f"{recipe.recipe} {median} (median, {spread})"


def result(study: Study) -> TimeToAccuracyResult:
    """Return the result of a study, read from the store.

    Raises
    ------
    NotEnoughDataError
        If no training of the first recipe has finished, or one has no evaluation.
    """
    evidence = Evidence.of(study)
    require_runs(study, study.base, evidence.runs)
    lost, by_arm = evidence.lost, study.runs_by_arm()
    short = [
        run for name in usable_arms(study.unrepeated, lost) for run in by_arm[name]
    ]
    return TimeToAccuracyResult(
        recipes=tuple(
            RecipeTimes(arm, tuple(map(time_to_target, runs)), lost.get(arm))
            for arm, runs in evidence.runs.items()
        ),
        configs=study.arms,
        whole=whole_training(short, evidence.plan),
        evidence=evidence,
    )


def whole_training(short: Sequence[Run], facts: Mapping[str, Any]) -> WholeTraining:
    """Project a whole recipe; from published rates alone if short runs are of no use.

    They are of different GPUs, for example, on a machine with two kinds of them.
    """

    def project(runs: Sequence[Run]) -> WholeTraining:
        return estimate(
            runs or None,
            facts["estimate_recipe"],
            gpus=facts["estimate_for"],
            price_per_hour=facts.get("price_per_hour"),
            currency=facts.get("currency", "USD"),
        )

    try:
        return project(short)
    except (ConfigError, NotEnoughDataError) as error:
        reason = " ".join(str(error).splitlines())
        note = f"Short runs cannot be projected: {reason}"
        return replace(project(()), conditions=note)


def logs(study: Study) -> Table | Note:
    """Write every training's MLPerf log into the study's folder, and list them.

    Returns a note if no training has finished.

    Raises
    ------
    StoreError
        If the folder cannot be written.
    """
    folder = study.paths.root / "mllog"
    rows = []
    for arm, runs in study.runs_by_arm().items():
        for run in runs if arm not in study.unrepeated else []:
            file = folder / f"{arm}-seed-{run.config.seed}.txt"
            division = "open" if closed_obstacles(run) else "closed"
            lines = mllog(run, file, division=division).splitlines()
            rows.append([arm, f"{run.config.seed}", f"{len(lines)}", str(file)])
    if not rows:
        return Note(["No MLPerf logs: no training run has finished."])
    return Table(
        "MLPerf Training logs",
        ["recipe", "seed", "lines", "file"],
        rows,
        [
            "nbkit.mllog(run, file, org=...) adds the submitter. MLPerf's compliance "
            "checker accepts only ResNet-50 on ImageNet."
        ],
    )


def _facts(recipe: RecipeTimes) -> dict[str, Any]:
    """Return a recipe as JSON values."""
    return {
        "times": asdict(recipe.times),
        "epochs": asdict(recipe.epochs),
        "joules": recipe.joules,
        "evaluation_share": recipe.evaluation_share,
        "runs": [asdict(run) for run in recipe.runs],
    }
