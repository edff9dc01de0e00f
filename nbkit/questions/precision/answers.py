"""Loss parity after equally many steps.

A faster step is worth something only if it trains as well. All arms begin with the same
weights and see the same images in the same order, and are compared repeat by repeat
with the baseline. An arm whose loss or weights are not finite, whose loss scale fell
away, whose loss is elsewhere than the baseline's in any repeat, or compares with
nothing, is suspect; so is a baseline that does not agree with itself. Elsewhere is what
is further than the tolerance, and further than rounding alone may take the training.
Without a control no run shows how far that is, and such a loss is not judged.

Losses are compared at the end and on the way. The end alone would hide much: the few
fixed images of synthetic data are learned by heart, and whatever learns at all arrives
at a loss near 0, sooner or later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from nbkit.review.usable_arms import earliest
from nbkit.statistics import all_known
from nbkit.store.summary import RunSummary

LOSS_TOLERANCE = 0.05
"""Largest difference of losses that is not suspicious, in parts of the first
loss: a dozen times the spacing of bf16, the coarsest format (2^-8 = 0.4 %). The
rounding of one step is far below; training amplifies it, so that a baseline whose own
runs differ by more is suspect itself."""

ROUNDING = {
    "fp32": 2.0**-23,
    "tf32": 2.0**-11,
    "fp16": 2.0**-11,
    "bf16": 2.0**-8,
}
"""By how much of itself a number may change where a format rounds it; of fp32, the
least by which a weight can change."""

_OF_ONE_RUN = 2.0
"""A single run with perturbed weights shows how far a training is taken, not how far it
can be: twice as far is not suspicious."""

_MOST_EXCUSED = 0.25
"""A loss that rounding takes further, in first losses, says too little of an answer: a
training that learns nothing is not much further from one that does."""

_LOWEST_LOSS_SCALE = 1.0
"""Below it GradScaler shrinks the loss instead of scaling it up; torch's own source
says that something is likely wrong then (``GradScaler.update``):
https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py"""

_KINDS = {"final_loss": "final loss", "mean_loss": "mean loss"}
"""Compared quantities, by field of a run's summary."""


@dataclass(frozen=True)
class LossParity:
    """Losses of an arm compared with the baseline; medians over its runs."""

    arm: str
    first_loss: float | None = None
    """Before any update."""
    final_loss: float | None = None
    """Mean over the last tenth of the steps; None where one is not finite."""
    difference: float | None = None
    """Final loss minus the baseline's, relative to the baseline's initial loss, of the
    repeat with the largest difference (a median would hide a failed run). None for the
    baseline, if one loss is not finite, and if the baseline has no run of the same
    repeat."""
    mean_loss_difference: float | None = None
    """The same for the mean loss over all steps."""
    updates_skipped: int | None = None
    """Skipped steps, maximum over runs; None if the loss is not scaled."""
    weights_finite: bool | None = None
    """Whether they were finite in all runs; None if unknown for a run."""
    suspicions: tuple[str, ...] = ()
    """Reasons why the losses are suspect; may be empty."""
    limit: float = LOSS_TOLERANCE
    """Largest difference that is not suspicious."""
    unjudged: tuple[str, ...] = ()
    """Larger differences that may be due to rounding; no control run shows it."""

    @property
    def is_sound(self) -> bool:
        """Whether the losses were checked, and nothing suspicious was found."""
        return not (self.suspicions or self.unjudged)

    @property
    def caveat(self) -> str:
        """Caveat in two words; empty if the loss check passed."""
        if self.suspicions:
            return "loss suspect"
        return "not judged" if self.unjudged else ""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values; without ``unjudged`` if it is empty."""
        values = asdict(self)
        if not self.unjudged:
            del values["unjudged"]
        return values


def check_loss_parity(
    arms: Mapping[str, Mapping[int, RunSummary]],
    baseline: str,
    *,
    control: str | None = None,
    tolerance: float = LOSS_TOLERANCE,
    perturbed: Mapping[str, RunSummary | None] | None = None,
) -> dict[str, LossParity]:
    """Return the losses of each arm, and what is suspicious about them.

    Notes
    -----
    Differences are relative to the initial loss (about the logarithm of the number of
    classes), not to the final one: fixed synthetic images are memorized, and near a
    loss of 0 every ratio is large. A lower loss is a difference, too.
    """
    base = arms[baseline]
    same = [*base.values(), *arms.get(control or "", {}).values()]
    own = max(_scatter(same, kind) for kind in _KINDS)
    # All repeats of a baseline are the same but for chance.
    first = base[min(base)] if base else None
    limits = {
        arm: max(tolerance, min(_OF_ONE_RUN * _moved(run, first), _MOST_EXCUSED))
        for arm, run in (perturbed or {}).items()
        if arm != baseline
    }
    answers = {
        arm: _answer(
            arm,
            runs,
            None if arm == baseline else base,
            tolerance,
            limits.get(arm, tolerance),
            # A study with a control has perturbed runs, unless it is an older one.
            is_judged=control is not None or (perturbed or {}).get(arm) is not None,
        )
        for arm, runs in arms.items()
    }
    if own > tolerance:
        why = f"runs differ by {own:.0%} of the first loss"
        answer = answers[baseline]
        suspicions = (*answer.suspicions, why)
        answers[baseline] = replace(answer, suspicions=suspicions)
    return answers


def _moved(perturbed: RunSummary | None, base: RunSummary | None) -> float:
    """Return how far a perturbation has taken the loss, in first losses."""
    if perturbed is None or base is None:
        return 0.0
    moved = (_difference(perturbed, base, kind, kind) for kind in _KINDS)
    return max(map(abs, _known(moved)), default=0.0)


def _scatter(same: Sequence[RunSummary], kind: str) -> float:
    """Return by how much losses of one configuration differ, in first losses."""
    losses = _known(getattr(run, kind) for run in same)
    first = _known(run.first_loss for run in same)
    return (max(losses) - min(losses)) / median(first) if losses and first else 0.0


def _answer(
    arm: str,
    runs: Mapping[int, RunSummary],
    base: Mapping[int, RunSummary] | None,
    tolerance: float,
    limit: float,
    *,
    is_judged: bool,
) -> LossParity:
    differences = [
        max(
            all_known(
                _difference(run, base[repeat], kind, kind)
                for repeat, run in runs.items()
                if base and repeat in base
            ),
            key=abs,
            default=None,
        )
        for kind in _KINDS
    ]
    suspicions = [*_not_finite(list(runs.values())), *_rose(runs.values(), tolerance)]
    if base is not None and not suspicions and None in differences:
        suspicions.append("loss not comparable with the baseline")
    unjudged: list[str] = []
    for name, difference in zip(_KINDS.values(), differences, strict=True):
        if difference is not None and abs(difference) > limit:
            where = "above" if difference > 0 else "below"
            is_clear = is_judged or abs(difference) > _MOST_EXCUSED
            (suspicions if is_clear else unjudged).append(
                f"{name} {abs(difference):.0%} {where} the baseline"
            )
    skipped = _known(run.updates_skipped for run in runs.values())
    finite = {run.weights_finite for run in runs.values()}
    return LossParity(
        arm=arm,
        first_loss=_median(run.first_loss for run in runs.values()),
        final_loss=_median(run.final_loss for run in runs.values()),
        difference=differences[0],
        mean_loss_difference=differences[1],
        updates_skipped=int(max(skipped)) if skipped else None,
        weights_finite=False if False in finite else None if None in finite else True,
        suspicions=tuple(suspicions),
        limit=limit,
        unjudged=tuple(unjudged),
    )


def _difference(
    run: RunSummary, base: RunSummary, kind: str, base_kind: str
) -> float | None:
    """Return a loss less one of the baseline's, in parts of its first loss."""
    here, there = getattr(run, kind), getattr(base, base_kind)
    if here is None or there is None or not base.first_loss:
        return None
    return (here - there) / base.first_loss


def _not_finite(runs: Sequence[RunSummary]) -> list[str]:
    """Return what was not finite first in a run."""
    faults: list[str] = []
    first = earliest(run.nonfinite for run in runs)
    if first is not None:
        faults.append(str(first))
    scales = _known(run.loss_scale for run in runs)
    if scales and min(scales) < _LOWEST_LOSS_SCALE:
        faults.append(f"loss scale fell to {min(scales):.2g}")
    return faults


def _rose(runs: Iterable[RunSummary], tolerance: float) -> list[str]:
    """Return that the loss of a run rose, if one did; it compares with nothing."""
    rises = _known(_difference(run, run, "final_loss", "first_loss") for run in runs)
    rise = max(rises, default=0.0)
    if rise <= tolerance:
        return []
    return [f"loss rose by {rise:.0%} of the first loss"]


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _median(values: Iterable[float | None]) -> float | None:
    """Return the median of all values; None if one of them is unknown."""
    known = all_known(values)
    return median(known) if known else None
