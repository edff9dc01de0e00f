"""Words and cells of the tables that compare arms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from nbkit.reports import columns
from nbkit.reports.arm_rows import ArmRow
from nbkit.reports.columns import Column
from nbkit.review.row_checks import INPUT_BOUND_SHARE
from nbkit.statistics import Ratio, RunsNeeded, has_groups, interval_in_words
from nbkit.statistics import quantities as wording
from nbkit.statistics.wording import ci_text

_FEW_RUNS = 5
"""Maximum number of runs for which each run is listed."""


def headline_columns(
    verdict: Callable[[ArmRow], str | None],
    more: Mapping[str, Mapping[str, str | None]],
) -> Iterator[Column]:
    """Yield the columns of the headline: rate, verdict and costs of an arm, and more.

    More are cells by column and arm.
    """
    rate = "images_per_second"
    yield Column("arm", "arm")
    yield from columns.rate("images/s", "95% CI (n)", rate, rate, n="n")
    yield from columns.ends(rate, rate)
    yield Column(None, "n", csv="runs")
    yield Column("ratio", "ratio.estimate", "{:.3f}".format, "ratio_estimate")
    yield Column("95% CI", "ratio", columns.interval())
    yield from columns.ends("ratio", "ratio")
    yield Column("verdict", verdict)
    for title, name, show in (
        ("data wait", "data_wait_share", wording.percent),
        (None, "communication_share", str),
        ("memory", "peak_memory_bytes", wording.size),
        ("J/image", "joules_per_image", "{:.3g}".format),
        ("CPU ms/image", "cpu_ms_per_image", "{:.2f}".format),
        (None, "seconds", str),
    ):
        yield columns.number(title, name, show)
    for title, cells in more.items():
        yield Column(title, lambda row, cells=cells: cells.get(row.arm))


def input_bound(waits: Sequence[tuple[str, float | None]]) -> list[str]:
    """Return a sentence if the input pipeline limited the rate."""
    what, share = max(waits, key=lambda wait: wait[1] or 0)
    if (share or 0) < INPUT_BOUND_SHARE:
        return []
    return [
        f"Input-bound ({what}): {wording.percent(share)} of the time is data wait; the "
        "input pipeline limits the rate, not the device."
    ]


def each_run(rates: Mapping[str, Sequence[float]]) -> list[str]:
    """Return every run if there are few, and which runs form two groups."""
    few = [
        f"{arm}: {_in_order(runs)}"
        for arm, runs in rates.items()
        if 1 < len(runs) <= _FEW_RUNS
    ]
    notes = [f"Images/s of each run, ascending: {'; '.join(few)}."] if few else []
    grouped = [arm for arm, runs in rates.items() if has_groups(runs)]
    if grouped:
        notes.append(
            f"The runs of {'; '.join(grouped)} form two groups, for example at "
            "different clock rates. Median and CI describe neither group. Compare the "
            "runs."
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
    """Return the note on Holm's correction, if there are several verdicts."""
    several = "Verdicts are corrected for multiple comparisons (Holm)."
    return [several] if len(verdicts) > 1 else []


def _in_order(rates: Sequence[float]) -> str:
    return ", ".join(map(wording.rate, sorted(rates)))


def lone_sentence(row: ArmRow, rates: Sequence[float]) -> str:
    """Return the result of an arm without a comparison."""
    rate = row.images_per_second
    if rate is None:
        return f"{row.arm}: no images/s measured."
    spread = "n=1, no interval"
    if rate.ci_low is not None and rate.ci_high is not None:
        spread = f"{ci_text(rate.ci_low, rate.ci_high, shown=wording.rate)}, n={rate.n}"
        spread += f": {_in_order(rates)}" if rate.n <= _FEW_RUNS else ""
    return f"{row.arm}: {wording.rate(rate.median)} images/s ({spread})."


def needed_runs(needed: RunsNeeded | None, ratio: Ratio | None) -> str | None:
    """Return the number of runs needed per arm, in a few words."""
    if needed is None:
        return None
    if needed.more == 0:
        return "settled"
    if ratio is not None and ratio.is_noise:
        return "more repeats of the control"
    if ratio is not None and ratio.verdict == "withheld":
        return "unknown"
    if needed.runs is None:
        return f"more than {needed.largest} runs"
    return f"{needed.runs} runs"
