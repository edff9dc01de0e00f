"""Tables of the chexnet report: labels, one device against several, baseline, rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from nbkit.plural import plural
from nbkit.questions.chexnet.areas import AreaEstimate, LabelFinding
from nbkit.questions.chexnet.literature import PublishedAreas
from nbkit.reports.arm_tables import each_run
from nbkit.reports.columns import Column, interval, rate, table
from nbkit.reports.parts import Table
from nbkit.statistics import MINIMUM_RUNS, Ratio, Summary, summarise
from nbkit.statistics import quantities as wording

_ONE_IN_TWENTY = "The CIs are not corrected for multiple labels."


def interval_text(estimate: AreaEstimate | None, shown: str = "{:.3f}") -> str | None:
    """Return an interval of AUROCs, such as ``[0.701, 0.755]``; None without one."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return None
    return f"[{shown.format(estimate.low)}, {shown.format(estimate.high)}]"


def difference_text(estimate: AreaEstimate) -> str:
    """Return a difference with its interval: ``+0.012 (95% CI [-0.003, +0.027])``."""
    ends = interval_text(estimate, "{:+.3f}")
    return f"{estimate.value:+.3f} ({f'95% CI {ends}' if ends else 'no CI'})"


def area_column(title: str, path: str, csv: str | None = None) -> Column:
    """Return an AUROC."""
    return Column(title, f"{path}.value", "{:.3f}".format, csv)


def _ends(path: str, csv: str) -> list[Column]:
    ends = ("low", "high")
    return [Column(None, f"{path}.{end}", csv=f"{csv}_{end}") for end in ends]


def areas_table(
    findings: Sequence[LabelFinding], trainings: int, are_finite: bool
) -> Table:
    """Return the headline: every label's AUROC beside that of global statistics."""
    has_patients = any(finding.patients is not None for finding in findings)
    return table(
        f"AUROC of the network on 1 device (n={trainings}) and of 12 global statistics",
        (
            Column("label", "label"),
            Column("positive images", "positives", "{:,}".format),
            *[Column("patients", "patients", "{:,}".format)] * has_patients,
            area_column("network", "single", "network_auroc"),
            Column("95% CI", "single", interval_text),
            *_ends("single", "network"),
            area_column("12 statistics", "baseline", "statistics_auroc"),
            Column("95% CI", "baseline", interval_text),
            Column("network minus statistics", "gain", _signed),
            Column(None, "gain.value", csv="gain"),
            *_ends("gain", "gain"),
            Column(
                "finding",
                lambda row: (
                    row.caveat or (row.above_baseline if are_finite else "withheld")
                ),
            ),
        ),
        findings,
        [_ONE_IN_TWENTY],
    )


def _signed(estimate: AreaEstimate) -> str:
    ends = interval_text(estimate, "{:+.3f}")
    return f"{estimate.value:+.3f} {ends or ''}".rstrip()


def same_table(
    findings: Sequence[LabelFinding], gpus: int, margin: float, trainings: int
) -> Table:
    """Return whether several devices arrive where one does, at equal global batches."""
    same = f"equal within {margin:g}"
    return table(
        f"AUROC on {gpus} devices vs. 1 device",
        (
            Column("label", "label"),
            area_column("1 device", "paired"),
            area_column(f"{gpus} devices", "parallel"),
            area_column("12 statistics", "baseline"),
            Column(
                *("difference of devices", "difference.value"),
                *("{:+.3f}".format, "difference"),
            ),
            Column(
                "95% CI",
                "difference",
                lambda difference: interval_text(difference, "{:+.3f}"),
            ),
            *_ends("difference", "difference"),
            Column(
                *(
                    "verdict",
                    lambda finding: finding.caveat or finding.same_within(margin),
                ),
                lambda verdict: same if verdict == "same" else verdict,
            ),
        ),
        findings,
        [
            f"n={plural(trainings, 'pair')} with equal seed, initial weights, images "
            "and global batches; gradient summation and BatchNorm statistics differ.",
            f"'{same}' requires the whole 95% CI within the margin and {MINIMUM_RUNS} "
            "pairs; 'not resolved' is not evidence of a difference.",
            _ONE_IN_TWENTY,
        ],
    )


def trainings_table(
    rows: Sequence[tuple[str, float | None, float | None]], baseline: float | None
) -> Table:
    """Return each training's own mean AUROC."""
    return table(
        "Individual training runs",
        (
            Column("training", itemgetter(0)),
            Column("mean AUROC", itemgetter(1), "{:.4f}".format, "mean_auroc"),
            Column(
                *("12 statistics", lambda _: baseline),
                *("{:.4f}".format, "statistics_auroc"),
            ),
            Column("images/s", itemgetter(2), wording.rate, "images_per_second"),
        ),
        rows,
        ["At the last evaluation, over the same labels as the mean."],
    )


class _Arm(NamedTuple):
    name: str
    rate: Summary | None


def rates_table(
    runs: Mapping[str, Sequence[float]],
    ratio: Ratio | None,
    functional: bool,
) -> Table:
    """Return images per second on one device and on several."""
    first = next(iter(runs))
    speed = ratio and f"{ratio.estimate:.2f}x"
    rows = [
        _Arm(arm, summarise(rates) if rates else None) for arm, rates in runs.items()
    ]
    where = "CPU smoke test" if functional else "GPUs"
    return table(
        f"Training throughput ({where})",
        (
            Column("arm", "name"),
            *rate(
                *("images/s", "95% CI (runs)", "rate", "images_per_second"),
                n="rate.n",
            ),
            Column("speedup", lambda arm: "baseline" if arm.name == first else speed),
            Column(
                *("95% CI", lambda arm: None if arm.name == first else ratio),
                interval(),
            ),
        ),
        rows,
        [
            "The global batch is fixed, so each of several devices processes fewer "
            "images (strong scaling).",
            *each_run(runs),
        ],
    )


def published_table(
    findings: Sequence[LabelFinding], published: Sequence[PublishedAreas]
) -> Table:
    """Return published results of these labels, beside what is measured."""
    return table(
        "AUROC on ChestX-ray14: measured here and published",
        (
            Column("label", "label"),
            area_column("measured here", "single"),
            area_column("12 statistics, here", "baseline"),
            *(
                Column(
                    paper.publisher,
                    lambda row, paper=paper: paper.areas.get(row.label),
                    *("{:.3f}".format, paper.publisher),
                )
                for paper in published
            ),
        ),
        [finding for finding in findings if finding.positives is not None],
        [
            "The published AUROCs are single values without a CI, on other splits of "
            "all 112,120 images, for context only. Source: the table at "
            f"{published[0].table_url}."
        ],
    )
