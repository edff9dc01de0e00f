"""Words and cells of the tables that compare arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nbkit.reports.arm_rows import ArmRow
from nbkit.review.row_checks import INPUT_BOUND_SHARE
from nbkit.statistics import Ratio, RunsNeeded, has_groups, interval_in_words
from nbkit.statistics import quantities as wording
from nbkit.statistics.wording import ci_text

_FEW_RUNS = 5
"""Up to which each run is shown beside the interval."""

HEADLINE = (
    "arm",
    "images/s",
    "95% CI (n)",
    "ratio",
    "95% CI",
    "verdict",
    "data wait",
    "memory",
    "J/image",
    "CPU ms/image",
)
"""Columns of `headline_cells`."""


def headline_cells(row: ArmRow, verdict: str | None) -> list[str | None]:
    """Return an arm as text, beside the verdict on it."""
    rate, ratio = row.images_per_second, row.ratio
    interval = None if rate is None else rate_interval(rate.ci_low, rate.ci_high)
    return [
        row.arm,
        None if rate is None else wording.rate(rate.median),
        f"{interval or wording.UNKNOWN} ({row.n})",
        None if ratio is None else f"{ratio.estimate:.3f}",
        None if ratio is None else ratio_interval(ratio.ci_low, ratio.ci_high),
        verdict,
        wording.percent(row.data_wait_share),
        wording.size(row.peak_memory_bytes),
        None if row.joules_per_image is None else f"{row.joules_per_image:.3g}",
        None if row.cpu_ms_per_image is None else f"{row.cpu_ms_per_image:.2f}",
    ]


def headline_values(rows: Sequence[ArmRow]) -> dict[str, list[Any]]:
    """Return the numbers of the headline, by column."""
    rates = [row.images_per_second for row in rows]
    ratios = [row.ratio for row in rows]
    names = ("data_wait_share", "communication_share", "peak_memory_bytes")
    names += ("joules_per_image", "cpu_ms_per_image", "seconds")
    return {
        "images_per_second": [rate and rate.median for rate in rates],
        "images_per_second_ci_low": [rate and rate.ci_low for rate in rates],
        "images_per_second_ci_high": [rate and rate.ci_high for rate in rates],
        "runs": [row.n for row in rows],
        "ratio_estimate": [ratio and ratio.estimate for ratio in ratios],
        "ratio_ci_low": [ratio and ratio.ci_low for ratio in ratios],
        "ratio_ci_high": [ratio and ratio.ci_high for ratio in ratios],
        **{name: [getattr(row, name) for row in rows] for name in names},
    }


def input_bound(waits: Sequence[tuple[str, float | None]]) -> list[str]:
    """Return a sentence if the input was slower than the devices."""
    what, share = max(waits, key=lambda wait: wait[1] or 0)
    if (share or 0) < INPUT_BOUND_SHARE:
        return []
    return [
        f"Input-bound ({what}): {wording.percent(share)} of the time is data wait; the "
        "rate is the input's, not the device's."
    ]


def each_run(rates: Mapping[str, Sequence[float]]) -> list[str]:
    """Return every run where they are few, and which runs fall into two groups."""
    few = [
        f"{arm}: {_in_order(runs)}"
        for arm, runs in rates.items()
        if 1 < len(runs) <= _FEW_RUNS
    ]
    notes = [f"Images/s of each run, ascending: {'; '.join(few)}."] if few else []
    grouped = [arm for arm, runs in rates.items() if has_groups(runs)]
    if grouped:
        notes.append(
            f"The runs of {'; '.join(grouped)} fall into two groups, for example two "
            "clock rates; median and CI describe neither. Check each run."
        )
    return notes


def ratio_text(ratio: Ratio, against: str = "") -> str:
    """Return a ratio such as ``3.35x [3.34, 3.35] vs. fp32 (95% CI, n=5): faster``."""
    show = (f"{{:.{2 if ratio.estimate >= 1 else 3}f}}").format
    runs = f"n={ratio.n_a}" + f" and {ratio.n_b}" * (ratio.n_a != ratio.n_b)
    text = f"{show(ratio.estimate)}x"
    if ratio.ci_low is not None and ratio.ci_high is not None:
        text += f" {interval_in_words(ratio.ci_low, ratio.ci_high, show)}"
        runs = f"{ratio.confidence * 100:g}% CI, {runs}"
    verdict: str = ratio.verdict
    if verdict == "not enough runs":
        verdict = "not enough runs for a verdict"
    elif verdict not in ("faster", "slower"):
        verdict = ratio.conclusion.rstrip(".")
    return f"{text}{f' vs. {against}' if against else ''} ({runs}): {verdict}"


def held_together(verdicts: Sequence[Ratio]) -> list[str]:
    """Return that the verdicts of a report hold together, where there are several."""
    several = "Verdicts are corrected for multiple comparisons (Holm)."
    return [several] if len(verdicts) > 1 else []


def _in_order(rates: Sequence[float]) -> str:
    return ", ".join(map(wording.rate, sorted(rates)))


def lone_sentence(row: ArmRow, rates: Sequence[float]) -> str:
    """Return what an arm shows by itself."""
    rate = row.images_per_second
    if rate is None:
        return f"{row.arm}: no images/s measured."
    spread = "n=1, no interval"
    if rate.ci_low is not None and rate.ci_high is not None:
        spread = f"{ci_text(rate.ci_low, rate.ci_high, shown=wording.rate)}, n={rate.n}"
        spread += f": {_in_order(rates)}" if rate.n <= _FEW_RUNS else ""
    return f"{row.arm} trains {wording.rate(rate.median)} images/s ({spread})."


def rate_interval(low: float | None, high: float | None) -> str | None:
    """Return an interval of images/s as text; None where there is none."""
    if low is None or high is None:
        return None
    return interval_in_words(low, high, wording.rate)


def ratio_interval(low: float | None, high: float | None) -> str | None:
    """Return an interval of a ratio as text; None where there is none."""
    if low is None or high is None:
        return None
    return interval_in_words(low, high)


def needed_runs(needed: RunsNeeded | None, ratio: Ratio | None) -> str | None:
    """Return how many runs an arm are needed, in a few words."""
    if needed is None:
        return None
    if needed.more == 0:
        return "settled"
    if ratio is not None and ratio.is_noise:
        return "more of the control"
    if ratio is not None and ratio.verdict == "withheld":
        return "unknown"
    if needed.runs is None:
        return f"more than {needed.largest} runs"
    return f"{needed.runs} runs"
