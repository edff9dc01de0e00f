"""AUROC of several labels, compared with a baseline and between device counts.

All is computed from predictions of the same evaluation images. An interval says where
the value would be for other patients, and, of a network, for another training of it:
the spread between trainings (seeds) is added to that between patients.
"""

from __future__ import annotations

import statistics as python_statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from nbkit.plural import plural
from nbkit.statistics import MINIMUM_RUNS
from nbkit.statistics.auroc import Area, area_under_roc, combined

MEAN = "mean"
"""Name of the row with the mean over the evaluated labels."""

FEWEST_PATIENTS = 10
"""With a label, and without it, for a label that the mean is of: the interval of two
patients is 13 standard errors wide to each side, that of ten is 2.3."""

Scores = Mapping[str, Sequence[float | None] | None]
"""Scores by label, one per image; None if a label could not be learned."""

Same = Literal["same", "differs", "not resolved", "not enough runs"]

AreaGain = Literal[
    "above the statistics",
    "below the statistics",
    "not resolved",
    "not enough runs",
    "no interval",
    "no baseline",
]


@dataclass(frozen=True)
class ScoredImages:
    """The evaluation images with the scores of all models, in one order."""

    labels: Mapping[str, Sequence[int]]
    """By label: 1 for images with the label, else 0."""
    patients: Sequence[str] | None
    """The patient of each image; None if unknown."""
    single: Sequence[Scores]
    """Scores of the network trained on one device, one per seed."""
    parallel: Sequence[Scores]
    """Scores after training on several devices with the same seeds; may be empty."""
    baseline: Scores | None
    """Global statistics; None without."""


@dataclass(frozen=True)
class AreaEstimate:
    """An AUROC or a difference of two, with its interval if known."""

    value: float
    low: float | None
    high: float | None
    trainings: int
    """Number of trainings in the mean; 0 for the deterministic baseline."""


@dataclass(frozen=True)
class LabelFinding:
    """Results for one label, or for the mean over labels."""

    label: str
    positives: int | None
    """Evaluation images with the label; None for the mean."""
    patients: int | None
    """Patients with the label; None for the mean or if patients are unknown."""
    caveat: str | None
    """Why the AUROC is missing or unreliable; the mean excludes such labels."""
    single: AreaEstimate | None = None
    paired: AreaEstimate | None = None
    """Trainings of ``single`` with a partner on several devices."""
    parallel: AreaEstimate | None = None
    baseline: AreaEstimate | None = None
    gain: AreaEstimate | None = None
    """Network on one device minus baseline."""
    difference: AreaEstimate | None = None
    """Several devices minus one device, with equal seeds."""

    @property
    def above_baseline(self) -> AreaGain:
        """Verdict on the network (one device) against the baseline."""
        gain = self.gain
        if gain is None:
            return "no baseline"
        if gain.low is None or gain.high is None:
            return "no interval"
        if gain.trainings < MINIMUM_RUNS:
            return "not enough runs"
        if gain.low > 0:
            return "above the statistics"
        return "below the statistics" if gain.high < 0 else "not resolved"

    def same_within(self, margin: float) -> Same | None:
        """Return whether training on one and several devices gives the same AUROC.

        ``same`` requires the whole interval within the margin; ``differs`` requires an
        interval that excludes zero and extends beyond the margin. Both require
        `MINIMUM_RUNS` pairs of trainings. None without several devices.
        """
        difference = self.difference
        if difference is None:
            return None
        if difference.low is None or difference.high is None:
            return "not resolved"
        if difference.trainings < MINIMUM_RUNS:
            return "not enough runs"
        if -margin < difference.low and difference.high < margin:
            return "same"
        if difference.low > 0 or difference.high < 0:
            return "differs"
        return "not resolved"


@dataclass(frozen=True)
class _Areas:
    """Areas of one label, or of the mean: one for each training, in order."""

    single: Sequence[Area]
    parallel: Sequence[Area]
    baseline: Area | None

    @property
    def is_perfect(self) -> bool:
        """Whether all trainings of a side order the images without a mistake.

        Or with nothing but mistakes. Nothing varies then, which does not mean that
        other patients would not.
        """
        return any(
            side and not any(area.variance for area in side)
            for side in (self.single, self.parallel)
        )


def judge_labels(images: ScoredImages) -> list[LabelFinding]:
    """Return the results of every label, and last of their mean.

    The mean is over labels without a caveat: at least `FEWEST_PATIENTS` patients with
    and without the label, and learnable by every model.
    """
    findings: list[LabelFinding] = []
    judged: list[_Areas] = []
    for label, given in images.labels.items():
        areas = _areas(images, label, given)
        caveat = _caveat(given, images.patients) or _of_models(images, label, areas)
        if areas is not None and caveat is None:
            judged.append(areas)
        findings.append(
            _finding(label, areas, caveat, sum(given), _with_label(given, images))
        )
    caveat = None if judged else "every label is excluded"
    findings.append(_finding(MEAN, _mean(judged), caveat, None, None))
    return findings


def _caveat(given: Sequence[int], patients: Sequence[str] | None) -> str | None:
    """Return what the evaluation images lack to judge a label."""
    who = [*map(str, range(len(given)))] if patients is None else patients
    what = "image" if patients is None else "patient"
    for wanted, which in ((1, "with"), (0, "without")):
        count = len(
            {patient for patient, has in zip(who, given, strict=True) if has == wanted}
        )
        if not count:
            return f"no evaluation image {which} the label"
        if count < FEWEST_PATIENTS:
            return (
                f"{plural(count, what)} {which} the label (minimum {FEWEST_PATIENTS})"
            )
    return None


def _of_models(images: ScoredImages, label: str, areas: _Areas | None) -> str | None:
    """Return what models lack that could be judged by these images."""
    models = [*images.single, *images.parallel]
    models += [] if images.baseline is None else [images.baseline]
    if any(scores.get(label) is None for scores in models):
        return "the label has no positive or no negative training image"
    if areas is None:
        return "a network score is NaN"
    if areas.is_perfect:
        return "the ranking is perfect or constant, so the AUROC's variance is unknown"
    return None


def _with_label(given: Sequence[int], images: ScoredImages) -> int | None:
    if images.patients is None:
        return None
    return len({who for who, has in zip(images.patients, given, strict=True) if has})


def _areas(images: ScoredImages, label: str, given: Sequence[int]) -> _Areas | None:
    """Return the areas of a label; None if a network has none."""
    networks: list[list[Area]] = []
    for trainings in (images.single, images.parallel):
        areas = [_area(scores, label, given, images) for scores in trainings]
        known = [area for area in areas if area is not None]
        if len(known) < len(areas):
            return None
        networks.append(known)
    base = images.baseline
    baseline = None if base is None else _area(base, label, given, images)
    return _Areas(networks[0], networks[1], baseline)


def _area(
    scores: Scores, label: str, given: Sequence[int], images: ScoredImages
) -> Area | None:
    logits = scores.get(label)
    return None if logits is None else area_under_roc(logits, given, images.patients)


def _mean(judged: Sequence[_Areas]) -> _Areas | None:
    """Return the means over labels, training by training."""
    if not judged:
        return None
    # All of them or none, since labels that the baseline lacks are left out.
    baselines = [areas.baseline for areas in judged if areas.baseline is not None]
    return _Areas(
        [combined(of) for of in zip(*(areas.single for areas in judged), strict=True)],
        [
            combined(of)
            for of in zip(*(areas.parallel for areas in judged), strict=True)
        ],
        combined(baselines) if len(baselines) == len(judged) else None,
    )


def _finding(
    label: str,
    areas: _Areas | None,
    caveat: str | None,
    positives: int | None,
    patients: int | None,
) -> LabelFinding:
    if areas is None or not areas.single:
        return LabelFinding(label, positives, patients, caveat)
    single, parallel, base = areas.single, areas.parallel, areas.baseline
    paired = single[: len(parallel)]
    pairs = zip(parallel, paired, strict=True)
    return LabelFinding(
        label,
        positives,
        patients,
        caveat,
        single=_estimate(single, is_area=True),
        paired=_estimate(paired, is_area=True) if paired else None,
        parallel=_estimate(parallel, is_area=True) if parallel else None,
        baseline=None if base is None else _estimate([base], is_area=True, fixed=True),
        gain=None if base is None else _estimate([area.minus(base) for area in single]),
        difference=(
            _estimate([several.minus(area) for several, area in pairs])
            if parallel
            else None
        ),
    )


def _estimate(
    areas: Sequence[Area], *, is_area: bool = False, fixed: bool = False
) -> AreaEstimate:
    """Return the mean over trainings, with the spread of patients and of trainings."""
    estimate, count = combined(areas), len(areas)
    between = (0.0, 0.0)
    if count > 1:
        spread = python_statistics.variance([area.value for area in areas])
        between = spread / count, count - 1.0
    interval = estimate.interval(between=between)
    low, high = interval or (None, None)
    if low is not None and high is not None:
        low, high = max(0.0 if is_area else -1.0, low), min(1.0, high)
    return AreaEstimate(estimate.value, low, high, 0 if fixed else count)
