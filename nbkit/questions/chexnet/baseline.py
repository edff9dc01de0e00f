"""The baseline of global statistics, fitted before anything is trained."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nbkit.errors import ConfigError
from nbkit.questions.chexnet import sentences as words
from nbkit.questions.chexnet.areas import LabelFinding, ScoredImages, judge_labels
from nbkit.questions.chexnet.planning import ChexnetPlan
from nbkit.questions.chexnet.regression import Baseline, statistics_baseline
from nbkit.questions.chexnet.tables import area_column, interval_text
from nbkit.reports.columns import Column, table
from nbkit.studies.idle_machine import wait_before

_MIN_IMAGES_FOR_PROGRESS = 5_000


@dataclass(frozen=True)
class ChexnetBaseline:
    """The baseline of global statistics, fitted before anything is trained."""

    fitted: Baseline
    findings: Sequence[LabelFinding]
    """Of the baseline alone, in the place of a network."""

    @property
    def facts(self) -> dict[str, Any]:
        """What the report has to know of it, as JSON values."""
        fitted = self.fitted
        return {
            "baseline": {
                "files": list(fitted.files),
                "scores": {
                    label: None if scores is None else [*map(_rounded, scores)]
                    for label, scores in fitted.scores.items()
                },
                "train_images": fitted.train_images,
                "unreadable": len(fitted.unreadable),
            }
        }

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        areas = table(
            f"AUROC of 12 global statistics fitted to {self.fitted.train_images:,} "
            "training images",
            (
                Column("label", "label"),
                area_column("AUROC", "single"),
                Column("95% CI", "single", interval_text),
            ),
            self.findings,
            [*words.unreadable(self.facts), *words.left_out(self.findings)],
        )
        return {"text/html": areas.to_html(), "text/plain": areas.to_text()}


def prepare(plan: ChexnetPlan) -> ChexnetPlan:
    """Fit the baseline, and return the plan with its scores."""
    return replace(plan, prepared=baseline(plan).facts)


def baseline(planned: ChexnetPlan) -> ChexnetBaseline:
    """Fit the baseline of global statistics to the training images of a plan.

    Raises
    ------
    ConfigError
        If scikit-learn is not installed, no training image can be read, or one cannot
        and runs are to stop then.
    """
    wait_before(planned.arms.values(), planned.wait_for_idle)
    listing = planned.listing
    fitted = statistics_baseline(listing, on_progress=_Progress())
    config = next(iter(planned.arms.values()))
    if fitted.unreadable and config.unreadable_images == "stop":
        message = (
            f"data={config.data!r} has {len(fitted.unreadable)} images that cannot be "
            f"decoded ({fitted.unreadable[0]}), and unreadable_images='stop'. "
            "Fix or remove them, or use unreadable_images='skip'."
        )
        raise ConfigError(message)
    by_name = {sample.name: sample.label for sample in listing.evaluation}
    given = [by_name[name] for name in fitted.files]
    images = ScoredImages(
        {
            label: [
                of_image[place] for of_image in given if isinstance(of_image, tuple)
            ]
            for place, label in enumerate(listing.classes)
        },
        [listing.patients[name] for name in fitted.files] if listing.patients else None,
        [fitted.scores],
        [],
        None,
    )
    return ChexnetBaseline(fitted, judge_labels(images))


def _rounded(score: float) -> float:
    """Return it with as many digits as a run's predictions have."""
    return float(f"{score:.9g}")


class _Progress:
    """Prints progress at every tenth of the images."""

    def __init__(self) -> None:
        self._last_tenth = 0

    def __call__(self, done: int, total: int) -> None:
        tenth = 10 * done // total
        # A small set takes no noticeable time.
        if tenth > self._last_tenth and total > _MIN_IMAGES_FOR_PROGRESS:
            sys.stdout.write(f"statistics of {done:,} of {total:,} images\n")
        self._last_tenth = tenth


def aligned(
    baseline: Mapping[str, Any] | None, files: Sequence[str]
) -> dict[str, list[float] | None] | None:
    """Return the baseline's scores of these files."""
    if baseline is None:
        return None
    place = {file: number for number, file in enumerate(baseline["files"])}
    return {
        label: None if scores is None else [scores[place[file]] for file in files]
        for label, scores in baseline["scores"].items()
    }
