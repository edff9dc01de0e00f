"""Paired comparison of two models' accuracy on the same images.

Both see the same images, so what counts is on how many only one of them is right. That
needs far fewer images than two accuracies beside each other would.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from nbkit.errors import NotEnoughDataError

AccuracyVerdict: TypeAlias = Literal["kept", "lost", "lower", "too few images to tell"]

ACCURACY_MARGIN = 0.01
"""A loss of less than one point of top-1 accuracy counts as none. That is a choice:
MLPerf Inference asks for 99 % of the accuracy in FP32, which is relative, and of 76 %
stricter (0.76 points): https://docs.mlcommons.org/inference/benchmarks/"""


@dataclass(frozen=True)
class PairedAccuracy:
    """Accuracy of models A and B on the same images, and its difference."""

    images: int
    a_accuracy: float
    b_accuracy: float
    only_a: int
    """Images that only A classifies correctly."""
    only_b: int
    """Images that only B classifies correctly."""
    difference: float
    """A's accuracy minus B's; -0.02 is two percentage points lower."""
    ci_low: float
    ci_high: float
    p_value: float
    """p-value of McNemar's exact test for equal accuracy."""
    verdict: AccuracyVerdict
    """``kept`` if the whole interval is above -margin, ``lost`` if all of it is below
    -margin, ``lower`` if all of it is below 0 but not below -margin, else ``too few
    images to tell``."""
    confidence: float
    margin: float


def paired_accuracy(
    a_correct: Sequence[bool],
    b_correct: Sequence[bool],
    *,
    margin: float = ACCURACY_MARGIN,
    confidence: float = 0.95,
) -> PairedAccuracy:
    """Compare two models by the images that only one classifies correctly.

    Parameters
    ----------
    a_correct, b_correct
        Whether each image is classified correctly, in the same order for both.
    margin
        Largest loss of accuracy for the verdict ``kept``, as a fraction of all images.
    confidence
        Confidence level of the interval of the difference.

    Returns
    -------
    PairedAccuracy
        The interval is the adjusted Wald interval (one image is added to each kind of
        disagreement), which has a positive width even if the models always agree.

    Raises
    ------
    NotEnoughDataError
        If there is no image, or the numbers of images differ.

    References
    ----------
    Q. McNemar, Psychometrika 12 (1947), https://doi.org/10.1007/BF02295996;
    D. G. Bonett and R. M. Price, Journal of Educational and Behavioral Statistics 37
    (2012), https://doi.org/10.3102/1076998611411915
    """
    if not a_correct or len(a_correct) != len(b_correct):
        message = (
            f"paired_accuracy: a_correct has {len(a_correct)} images, b_correct "
            f"{len(b_correct)}. Pass the same images (at least 1) in the same order."
        )
        raise NotEnoughDataError(message)
    pairs = list(zip(a_correct, b_correct, strict=True))
    images = len(pairs)
    only_a = sum(a and not b for a, b in pairs)
    only_b = sum(b and not a for a, b in pairs)
    part_a, part_b = ((count + 1) / (images + 2) for count in (only_a, only_b))
    centre = part_a - part_b
    error = math.sqrt(max(0.0, part_a + part_b - centre**2) / (images + 2))
    half = statistics.NormalDist().inv_cdf(0.5 + confidence / 2) * error
    low, high = max(-1.0, centre - half), min(1.0, centre + half)
    return PairedAccuracy(
        images=images,
        a_accuracy=sum(map(bool, a_correct)) / images,
        b_accuracy=sum(map(bool, b_correct)) / images,
        only_a=only_a,
        only_b=only_b,
        difference=(only_a - only_b) / images,
        ci_low=low,
        ci_high=high,
        p_value=_mcnemar(only_a, only_b),
        verdict=_verdict(low, high, margin),
        confidence=confidence,
        margin=margin,
    )


def images_needed(margin: float = ACCURACY_MARGIN, *, confidence: float = 0.95) -> int:
    """Return the minimum number of images for the verdict ``kept``.

    It is enough if both models are right on the same images; every disagreement
    increases it.
    """
    z = statistics.NormalDist().inv_cdf(0.5 + confidence / 2)
    return max(1, math.floor(z * math.sqrt(2) / margin) - 1)


def share_interval(
    count: int, images: int, *, confidence: float = 0.95
) -> tuple[float, float]:
    """Return the interval of a share of images, such as an accuracy or agreement.

    Wilson's interval, which stays within 0 and 1 and has a positive width even for
    shares of 0 and 1.

    References
    ----------
    E. B. Wilson, Journal of the American Statistical Association 22 (1927),
    https://doi.org/10.1080/01621459.1927.10502953
    """
    if not 0 <= count <= images or not images:
        message = (
            f"share_interval: {count} of {images} images. Pass at least 1 image, and a "
            "count from 0 to the number of images."
        )
        raise NotEnoughDataError(message)
    z = statistics.NormalDist().inv_cdf(0.5 + confidence / 2)
    part, weight = count / images, z**2 / images
    centre = part + weight / 2
    half = z * math.sqrt((part * (1 - part) + weight / 4) / images)
    low, high = ((centre + end) / (1 + weight) for end in (-half, half))
    return max(0.0, low), min(1.0, high)


def _mcnemar(only_a: int, only_b: int) -> float:
    """Return the two-sided probability of so uneven a split of a fair coin's tosses."""
    tosses, fewer = only_a + only_b, min(only_a, only_b)
    tail = sum(math.comb(tosses, heads) for heads in range(fewer + 1))
    return min(1.0, 2 * tail / 2**tosses)


def _verdict(low: float, high: float, margin: float) -> AccuracyVerdict:
    if low > -margin:
        return "kept"
    if high < -margin:
        return "lost"
    return "lower" if high < 0 else "too few images to tell"
