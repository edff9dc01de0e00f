"""Throughput, latency and accuracy of formats by batch size.

A speed-up is a headline only if the format's accuracy is not shown to be lower. All
formats answer on the same images with the same weights, so that accuracies are compared
image by image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nbkit.reports.arm_tables import ratio_text
from nbkit.reports.arms import with_enough_runs
from nbkit.statistics import (
    ACCURACY_MARGIN,
    NoiseFloor,
    PairedAccuracy,
    Ratio,
    Summary,
    paired_accuracy,
    share_interval,
)
from nbkit.statistics import quantities as wording
from nbkit.store.predictions import (
    ClassPredictions,
    LabelPredictions,
    Predictions,
)

_LOSING = ("lost", "lower")


@dataclass(frozen=True)
class Served:
    """Results of one format at one batch size, over all process starts."""

    arm: str
    precision: str
    batch_size: int
    passes: int
    """Timed one by one in each process start."""
    p50_seconds: Summary
    """Latency over process starts; also for the next two fields."""
    p95_seconds: Summary | None
    p99_seconds: Summary | None
    images_per_second: Summary
    against: Ratio | None
    """Rate / baseline's rate at this batch size; None for the baseline."""
    peak_memory_bytes: float | None
    joules_per_image: float | None
    is_control: bool = False
    """Whether it is the A/A control."""


@dataclass(frozen=True)
class FormatAccuracy:
    """Accuracy of a format compared with the baseline."""

    arm: str
    score_name: str | None
    """``top1_accuracy`` or ``mean_auroc``; None without an evaluation."""
    score: float | None
    """From 0 to 1."""
    agreement: float | None
    """Share of images with the same predicted class as the baseline; with several
    labels, share of image-label pairs with the same sign of the logit."""
    paired: PairedAccuracy | None
    """Paired comparison with the baseline; None for the baseline, for several labels
    per image, and if it is withheld."""
    starts_differ: bool = False
    """Whether process starts of this format predict different classes."""
    agreement_interval: tuple[float, float] | None = None
    """95 % interval over images; None for several, dependent labels."""
    baseline_score: float | None = None
    """None for the baseline itself."""
    withheld: str | None = None
    """Why there is no verdict on accuracy; None if there is one."""

    @property
    def verdict(self) -> str | None:
        """The verdict on accuracy in a few words; None if unknown."""
        return None if self.paired is None else self.paired.verdict

    @property
    def is_losing(self) -> bool:
        """Whether the accuracy is shown to be lower than the baseline's."""
        return self.verdict in _LOSING


def judge_accuracy(
    predictions: Mapping[str, Sequence[Predictions | None]],
    scores: Mapping[str, tuple[str, float] | None],
    baseline: str,
    *,
    margin: float = ACCURACY_MARGIN,
    withheld: str | None = None,
) -> dict[str, FormatAccuracy]:
    """Compare the predictions of all formats on the evaluation images."""
    reference = next(iter(predictions.get(baseline, [])), None)
    withheld = withheld or _why_by_chance(reference, baseline)
    own_score = scores.get(baseline)
    accuracy_by_arm: dict[str, FormatAccuracy] = {}
    for arm, starts in predictions.items():
        own = next(iter(starts), None)
        score = scores.get(arm)
        paired = None
        comparable = arm != baseline and _are_of_the_same(own, reference)
        if comparable and withheld is None:
            paired = _paired(own, reference, margin)
        accuracy_by_arm[arm] = FormatAccuracy(
            arm=arm,
            score_name=score[0] if score else None,
            score=score[1] if score else None,
            agreement=None if arm == baseline else _agreement(own, reference),
            paired=paired,
            starts_differ=any(
                _agreement(own, start) not in (None, 1) for start in starts
            ),
            agreement_interval=_agreement_interval(own, reference)
            if comparable
            else None,
            baseline_score=own_score[1] if own_score and arm != baseline else None,
            withheld=withheld,
        )
    return accuracy_by_arm


def _are_of_the_same(first: Predictions | None, other: Predictions | None) -> bool:
    """Return whether both are there and of the same images, of one class each."""
    return (
        isinstance(first, ClassPredictions)
        and isinstance(other, ClassPredictions)
        and (list(first.files), list(first.labels))
        == (list(other.files), list(other.labels))
        and len(first.files) > 0
    )


def _paired(
    own: Predictions | None, reference: Predictions | None, margin: float
) -> PairedAccuracy:
    assert isinstance(own, ClassPredictions)
    assert isinstance(reference, ClassPredictions)
    correct = [
        [
            answer == label
            for answer, label in zip(
                predictions.predicted, predictions.labels, strict=True
            )
        ]
        for predictions in (own, reference)
    ]
    return paired_accuracy(*correct, margin=margin)


def _agreement(first: Predictions | None, other: Predictions | None) -> float | None:
    if isinstance(first, ClassPredictions) and isinstance(other, ClassPredictions):
        answers, also = list(first.predicted), list(other.predicted)
    elif isinstance(first, LabelPredictions) and isinstance(other, LabelPredictions):
        answers, also = _signs(first), _signs(other)
    else:
        return None
    if not answers or len(answers) != len(also):
        return None
    return sum(a == b for a, b in zip(answers, also, strict=True)) / len(answers)


def _agreement_interval(
    first: Predictions | None, other: Predictions | None
) -> tuple[float, float] | None:
    agreement = _agreement(first, other)
    if agreement is None or first is None:
        return None
    images = len(first.files)
    return share_interval(round(agreement * images), images)


def _why_by_chance(reference: Predictions | None, baseline: str) -> str | None:
    """Return why a model is not shown to have learnt anything; None if it is.

    Always naming the commonest class is right as often as that class occurs.
    """
    if not isinstance(reference, ClassPredictions) or not reference.files:
        return None
    images = len(reference.files)
    pairs = zip(reference.predicted, reference.labels, strict=True)
    right = sum(answer == label for answer, label in pairs)
    low, high = share_interval(right, images)
    [(_, commonest)] = Counter(reference.labels).most_common(1)
    if low > commonest / images:
        return None
    return (
        f"{baseline} classifies {right} of {images:,} images correctly (95% CI "
        f"[{100 * low:.1f}%, {100 * high:.1f}%]), not significantly more than a "
        "constant prediction of the most common class "
        f"({100 * commonest / images:.1f}%)"
    )


def _signs(predictions: LabelPredictions) -> list[bool | None]:
    return [
        None if score is None else score > 0
        for label in sorted(predictions.scores)
        for score in predictions.scores[label]
    ]


def computed_sentence(
    served: Sequence[Served],
    accuracies: Mapping[str, FormatAccuracy],
    baseline: str,
    *,
    floors: Mapping[int, NoiseFloor] | None = None,
) -> str:
    """Return the result in one sentence."""
    compared = [arm for arm in served if arm.against and not arm.is_control]
    sound = [arm for arm in compared if not _loses(arm, accuracies)]
    if not compared:
        if any(arm.arm != baseline and not arm.is_control for arm in served):
            return (
                f"No comparison: {baseline}, its A/A control or every other format "
                "diverged (NaN/Inf)."
            )
        return f"Only {baseline} was measured; there is no comparison."
    known = floors or {}
    hidden = [
        arm
        for arm in sound
        if arm.against
        and (floor := known.get(arm.batch_size))
        and floor.covers(arm.against)
    ]
    shown = [arm for arm in sound if arm not in hidden]
    decided = with_enough_runs(shown, lambda arm: arm.against)
    best = max(decided, key=_estimate, default=None)
    if hidden and (best is None or _estimate(best) <= 1):
        best = max(hidden, key=_estimate)
        floor = known[best.batch_size].difference
        sizes = {arm.batch_size for arm in sound}
        where = f" at batch size {best.batch_size}" if len(sizes) > 1 else ""
        tested = " with enough runs" * (len(decided) < len(shown))
        text = (
            f"No format{tested} is faster than {baseline} by more than the A/A "
            f"difference ({floor}{where})"
        )
    elif best is None:
        text = f"No format keeps the accuracy of {baseline}"
    else:
        of = _best_of(len(decided), len(hidden))
        text = _clause(best, accuracies.get(best.arm), baseline) + of
    least = max(1.0, _estimate(best) if best else 1.0)
    losing = [
        arm for arm in compared if _loses(arm, accuracies) and _estimate(arm) > least
    ]
    if losing:
        fastest = max(losing, key=_estimate)
        against = fastest.against
        assert against is not None  # losing ones are among the compared
        text += (
            f"; excluded: {fastest.arm} at batch size {fastest.batch_size}, "
            f"{ratio_text(against, baseline)}; "
            f"{accuracy_in_words(accuracies[fastest.arm], baseline)}"
        )
    return f"{text}."


def _best_of(shown: int, hidden: int) -> str:
    """Return what a reader has to know of the largest of several ratios."""
    if shown + hidden < 2:
        return ""
    which = f"best of {shown}" if shown > 1 else "the only ratio"
    if hidden:
        which += f" above the A/A difference ({shown + hidden} in all)"
    return f"; {which}, CI not corrected for selection"


def _loses(arm: Served, accuracies: Mapping[str, FormatAccuracy]) -> bool:
    return arm.arm in accuracies and accuracies[arm.arm].is_losing


def _estimate(arm: Served) -> float:
    return arm.against.estimate if arm.against else 1.0


def _clause(best: Served, accuracy: FormatAccuracy | None, baseline: str) -> str:
    against = best.against
    assert against is not None
    text = (
        f"{best.arm} reaches {wording.rate(best.images_per_second.median)} images/s at "
        f"batch size {best.batch_size}, {ratio_text(against, baseline)}"
    )
    words = None if accuracy is None else accuracy_in_words(accuracy, baseline)
    return f"{text}; {words or 'accuracy not compared'}"


def accuracy_in_words(accuracy: FormatAccuracy, baseline: str) -> str | None:
    """Return whether a format keeps the accuracy of the baseline; None if unknown."""
    paired = accuracy.paired
    if accuracy.withheld is not None and accuracy.score is not None:
        return f"accuracy not judged: {accuracy.withheld}"
    if paired is None:
        return _scores_in_words(accuracy, baseline)
    low, high = (f"{100 * end:+.1f}" for end in (paired.ci_low, paired.ci_high))
    verdicts = {
        "kept": "accuracy kept",
        "lost": "accuracy lost",
        "lower": "accuracy lower",
        "too few images to tell": "too few images for a verdict on accuracy",
    }[paired.verdict]
    return (
        f"{verdicts} ({100 * paired.difference:+.1f} points, 95% CI [{low}, {high}], "
        f"{paired.images:,} images)"
    )


def _scores_in_words(accuracy: FormatAccuracy, baseline: str) -> str | None:
    """Return both scores where there is no test of their difference."""
    if accuracy.score_name != "mean_auroc" or accuracy.score is None:
        return None
    other = accuracy.baseline_score
    base = "unknown" if other is None else f"{other:.3f}"
    return f"mean AUROC {accuracy.score:.3f} ({baseline} {base}), difference not tested"
