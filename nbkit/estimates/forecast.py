"""`estimate`: time and cost of a whole training, projected from a short run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nbkit import statistics
from nbkit.errors import ConfigError, NotEnoughDataError
from nbkit.estimates.arithmetic import (
    Estimate,
    Workload,
    expected_epochs,
    from_published,
    project,
)
from nbkit.launch.run import attach
from nbkit.plural import plural
from nbkit.recipes.training import TrainingRecipe, training_recipe
from nbkit.reports.arm_tables import each_run
from nbkit.reports.columns import interval_text
from nbkit.reports.energy_per_image import joules_per_image
from nbkit.reports.parts import MimeBundle, Source, Table
from nbkit.review.milestones import cost, startup_seconds
from nbkit.statistics import median_of
from nbkit.statistics import quantities as wording
from nbkit.store.stored_runs import StoredRun

GPUS = ("A100-SXM4-80GB", "H100-SXM-80GB", "H200-SXM-141GB")
"""Default GPUs: those with the most published results."""

_COLUMNS = (
    *("projected on", "from", "precision", "images/s", "rates", "per epoch"),
    *("evaluations", "total", "range", "energy", "cost", "startup"),
)


@dataclass(frozen=True)
class WholeTraining:
    """Projected time, energy and cost of a whole training, here and elsewhere."""

    workload: Workload
    recipe: TrainingRecipe
    estimates: tuple[Estimate, ...]
    """This machine first, if measured; then GPUs with published rates."""
    price_per_hour: float | None = None
    currency: str = "USD"
    functional: bool = False
    """Whether the short runs used CPU processes instead of GPUs."""
    conditions: str = ""
    """Differences of short runs from the whole training; empty without runs."""
    rates: tuple[float, ...] = ()
    """Images/s of each short run."""

    @property
    def table(self) -> Table:
        """All estimates, each with its origin."""
        return Table(
            f"Projected: {self.recipe.name}, {self.workload.epochs} epochs of "
            f"{self.workload.train_images:,} images",
            _COLUMNS,
            [self._cells(estimate) for estimate in self.estimates],
            self._notes,
            {
                "origin": [estimate.origin for estimate in self.estimates],
                "seconds": [estimate.seconds for estimate in self.estimates],
                "seconds_low": [estimate.seconds_low for estimate in self.estimates],
                "seconds_high": [estimate.seconds_high for estimate in self.estimates],
                "seconds_per_epoch": [e.seconds_per_epoch for e in self.estimates],
                "images_per_second": [e.images_per_second for e in self.estimates],
            },
        )

    @property
    def sources(self) -> list[Source]:
        """Where rates and epochs were published."""
        sources = [self.recipe.source]
        if self.recipe.epochs_source is not None:
            sources.append(self.recipe.epochs_source)
        rows = [row for estimate in self.estimates for row in estimate.rows]
        return list(dict.fromkeys([*sources, *(Source(r.source, r.url) for r in rows)]))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "workload": asdict(self.workload),
            "price_per_hour": self.price_per_hour,
            "currency": self.currency,
            "estimates": [
                {**asdict(estimate), "rows": [asdict(row) for row in estimate.rows]}
                for estimate in self.estimates
            ],
        }

    def _cells(self, estimate: Estimate) -> list[str | None]:
        is_here = estimate.origin.startswith("measured")
        spent = cost(estimate.seconds, self.price_per_hour) if is_here else None
        return [
            estimate.where,
            plural(estimate.rate_n, "run")
            if is_here
            else f"{estimate.rate_n} published",
            estimate.precision,
            wording.rate(estimate.images_per_second),
            interval_text(estimate.rate_low, estimate.rate_high, wording.rate),
            wording.duration(estimate.seconds_per_epoch),
            wording.duration(estimate.evaluation_seconds),
            wording.duration(estimate.seconds),
            interval_text(
                estimate.seconds_low, estimate.seconds_high, wording.duration
            ),
            wording.energy(estimate.joules),
            wording.price(spent, self.currency),
            wording.duration(estimate.startup_seconds),
        ]

    @property
    def _notes(self) -> list[str]:
        work, counts = self.workload, self.recipe.epochs_to_target
        epochs = (
            f"{work.epochs} epochs ({work.epochs_low} to {work.epochs_high} over "
            f"{len(counts)} published seeds)"
            if counts
            else f"{work.epochs} epochs, the maximum of the recipe (no published count)"
        )
        notes = [
            f"Projections, not measurements: the images of {epochs}, divided by the "
            "rate. Range: from the fewest epochs at the highest rate to the most "
            "epochs at the lowest rate (95% CI of measured rates, extremes of "
            "published rates).",
            "Total: training plus measured evaluations, without startup. The price "
            "applies to this machine.",
        ]
        notes += [self.conditions] if self.conditions else []
        precision = self.recipe.fields.get("precision")
        other = [e.where for e in self.estimates if not _has_format(e, precision)]
        if other:
            notes.append(
                "Rates are not comparable, because the number format is not "
                f"{precision} as in the recipe: {', '.join(other)}."
            )
        alone = [estimate for estimate in self.estimates if estimate.rate_low is None]
        notes += [f"{single.where}: no CI from a single run." for single in alone]
        notes += each_run({self.estimates[0].where: self.rates} if self.rates else {})
        if self.functional:
            notes.append("CPU smoke test: the projection does not apply to GPUs.")
        return notes

    def __repr__(self) -> str:
        return self.table.to_text()

    def _repr_mimebundle_(self, **_: Any) -> MimeBundle:
        return self.table._repr_mimebundle_()


def estimate(
    runs: StoredRun | str | Sequence[StoredRun | str] | None,
    recipe: str = "netapp_lars",
    *,
    gpus: Sequence[str] = GPUS,
    price_per_hour: float | None = None,
    currency: str = "USD",
) -> WholeTraining:
    """Project how long a training takes here and, by published rates, on other GPUs.

    Parameters
    ----------
    runs
        A short training run on this machine with the recipe's model and image size, its
        id, or several equal runs for an interval. None uses only published rates. The
        duration of evaluations is taken from the evaluations of these runs.
    recipe
        Name of a training recipe with a fixed data set.
    gpus
        GPUs whose published training rates are projected.
    price_per_hour
        Price per hour of all devices of the runs together, in ``currency``.
    currency
        Currency of the price, for the table.

    Returns
    -------
    WholeTraining
        Displayed as a table of projections, each from measured or published rates.

    Raises
    ------
    ConfigError
        If the runs differ from each other or from the recipe's model and image size,
        the recipe has no fixed data set, or a GPU is unknown.
    NotEnoughDataError
        If a run has no measured step, diverged (NaN or Inf), or shared its devices.

    Examples
    --------
    >>> run = nbkit.launch(model="resnet50", gpus=8, precision="fp16", steps=200)
    ... # doctest: +SKIP
    >>> nbkit.estimate(run.wait(), price_per_hour=32.0)  # doctest: +SKIP
    """
    chosen = training_recipe(recipe)
    work = workload(chosen)
    measured = [] if runs is None else _runs(runs)
    for run in measured:
        _check(run, chosen)
    _check_alike(measured)
    on_gpus = [run for run in measured if run.summary.device_type == "cuda"]
    size = on_gpus[0].config.world_size if on_gpus else 8
    here = [_here(work, measured)] if measured else []
    projections = elsewhere(chosen, gpus, world_size=size)
    return WholeTraining(
        workload=work,
        recipe=chosen,
        estimates=(*here, *projections),
        price_per_hour=price_per_hour,
        currency=currency,
        functional=bool(measured) and not on_gpus,
        conditions=_conditions(measured, chosen) if measured else "",
        rates=tuple(r for run in measured if (r := run.summary.images_per_second)),
    )


def elsewhere(
    recipe: TrainingRecipe, gpus: Sequence[str], *, world_size: int = 8
) -> list[Estimate]:
    """Project a recipe on GPUs with published rates; others are omitted."""
    precision = recipe.fields.get("precision", "fp16")
    work = workload(recipe)
    return from_published(work, gpus, precision=precision, world_size=world_size)


def workload(recipe: TrainingRecipe) -> Workload:
    """Return what a recipe trains as a whole."""
    if recipe.train_images is None or recipe.evaluation_images is None:
        message = (
            f"recipe={recipe.name!r} has no fixed data set, so its epoch size is "
            "unknown. Use torchvision_sgd or netapp_lars."
        )
        raise ConfigError(message)
    likely, fewest, most = expected_epochs(recipe.epochs_to_target, recipe.epochs)
    return Workload(
        recipe=recipe.name,
        model=recipe.fields["model"],
        image_size=recipe.fields["image_size"],
        train_images=recipe.train_images,
        evaluation_images=recipe.evaluation_images,
        epochs=likely,
        epochs_low=fewest,
        epochs_high=most,
        evaluation_period_epochs=recipe.fields["evaluation_period_epochs"],
        evaluation_offset_epochs=recipe.fields.get("evaluation_offset_epochs", 0),
    )


def _runs(given: object) -> list[StoredRun]:
    """Return the runs that are meant: one, its id, or several of them."""
    several = list(given) if isinstance(given, list | tuple) else [given]
    runs = [attach(value) if isinstance(value, str) else value for value in several]
    attached = [run for run in runs if isinstance(run, StoredRun)]
    unknown = [run for run in runs if not isinstance(run, StoredRun)]
    if unknown or not attached:
        what = f"{type(unknown[0]).__name__} is not a run" if unknown else "empty list"
        message = (
            f"runs: {what}. Pass a run, a run id, a list of them, or None for "
            "published rates only."
        )
        raise ConfigError(message)
    return attached


_ALIKE = (
    *("world_size", "nnodes", "precision", "memory_format", "compile"),
    "gradient_accumulation_steps",
)


def _check_alike(runs: Sequence[StoredRun]) -> None:
    alike = {
        **{name: [getattr(run.config, name) for run in runs] for name in _ALIKE},
        "batch_size_per_gpu": [run.worker.get("batch_size_per_gpu") for run in runs],
        "device": [run.summary.device_name for run in runs],
        "data": [run.config.data for run in runs],
    }
    lines = []
    for name, values in alike.items():
        if len(set(values)) > 1:
            different = ", ".join(dict.fromkeys(map(str, values)))
            lines.append(
                f"runs differ in {name} ({different}); their rates cannot be "
                "combined. Use runs with equal settings."
            )
    if lines:
        raise ConfigError("\n".join(lines))


def _conditions(runs: Sequence[StoredRun], recipe: TrainingRecipe) -> str:
    """Return in what the short runs are not the whole training."""
    config, worker = runs[0].config, runs[0].worker
    batch = worker.get("global_batch_size")
    data = (
        "synthetic data" if config.data == "synthetic" else f"images of {config.data}"
    )
    evaluated = (
        " The evaluation time is projected from the evaluations of the short runs."
        if any(run.metrics("evaluation") for run in runs)
        else ""
    )
    return (
        f"Measured here with {data}, {config.precision}, batch "
        f"{worker.get('batch_size_per_gpu') or 'unknown'} per rank, global batch "
        f"{batch or 'unknown'}; the number of epochs applies to the recipe's global "
        f"batch of {recipe.global_batch_size}.{evaluated}"
    )


def _has_format(estimate: Estimate, precision: str | None) -> bool:
    if precision in ("fp16", "bf16"):
        return estimate.precision in ("fp16", "bf16", "bf16 or fp16")
    return precision is None or estimate.precision == precision


def _check(run: StoredRun, recipe: TrainingRecipe) -> None:
    wanted = recipe.fields["model"], recipe.fields["image_size"]
    actual = run.config.model, run.config.image_size
    if actual != wanted or run.config.task != "train":
        message = (
            f"Run {run.run_id} has task={run.config.task!r}, model={actual[0]!r} and "
            f"image_size={actual[1]}, but recipe {recipe.name} trains {wanted[0]} at "
            f"{wanted[1]} pixels. Launch a short training run with "
            f"model={wanted[0]!r} and image_size={wanted[1]}."
        )
        raise ConfigError(message)
    summary = run.summary
    if summary.images_per_second is None or summary.nonfinite or summary.oversubscribed:
        message = (
            f"Run {run.run_id} ({run.state}) has no measured steps, diverged or shared "
            "its devices. Use a finished, finite run with one rank per device and more "
            "steps than warmup_steps."
        )
        raise NotEnoughDataError(message)


def _here(work: Workload, runs: Sequence[StoredRun]) -> Estimate:
    rates = [run.summary.images_per_second for run in runs]
    summary = runs[0].summary
    return project(
        work,
        statistics.summarise([rate for rate in rates if rate is not None]),
        where=f"{summary.world_size} x {summary.device_name or 'this machine'}",
        evaluation_images_per_second=median_of(runs, _evaluation_rate),
        startup_seconds=median_of(runs, startup_seconds),
        joules_per_image=median_of(runs, joules_per_image),
        precision=runs[0].config.precision,
    )


def _evaluation_rate(run: StoredRun) -> float | None:
    lines = run.metrics("evaluation")
    seconds = sum(line["duration_seconds"] for line in lines)
    return sum(line["images"] for line in lines) / seconds if seconds else None
