"""Tables of the precision report: answers, layouts, published pairs, bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from nbkit.config import ExperimentConfig
from nbkit.questions.precision.answers import LossParity
from nbkit.questions.precision.layouts import LayoutEffect
from nbkit.questions.precision.sentence import MeasuredArm
from nbkit.references.rows import PublishedPair, PublishedRow
from nbkit.reports.arm_rows import ArmRun
from nbkit.reports.columns import Column, interval, number, table
from nbkit.reports.parts import Note, Table
from nbkit.review.bounds import Bound, resnet50_bound
from nbkit.statistics import Ratio, all_known
from nbkit.statistics import quantities as wording

_NO_RUN = "Measure with control=True to separate rounding from errors."
_BOUND_MODEL, _BOUND_IMAGE_SIZE = "resnet50", 224

_times = "{:.2f}x".format


def loss_cell(answer: LossParity) -> str | None:
    """Return the final loss as text, with a caveat if there is one."""
    if answer.final_loss is None and not answer.suspicions:
        return None
    loss = "not finite" if answer.final_loss is None else f"{answer.final_loss:.3f}"
    return f"{loss}, {answer.caveat}" if answer.caveat else loss


def _gradients(answer: LossParity) -> str | None:
    """Return whether gradients were finite, as text; None where a run does not say."""
    if answer.weights_finite is None:
        return None
    if not answer.weights_finite:
        return "not finite"
    skipped = answer.updates_skipped
    return f"finite, {skipped} skipped" if skipped else "finite"


def first_step_cell(runs: Sequence[ArmRun]) -> str | None:
    """Return the first step of the first start, and of the later ones."""
    known = all_known(run.first_step_seconds for run in runs)
    if not known:
        return None
    first, *later = known
    return f"{first:.1f} s" + (f", then {median(later):.1f} s" if later else "")


def caveat_notes(answers: Mapping[str, LossParity]) -> list[str]:
    """Return why losses are suspect, then why others are inconclusive."""
    suspect = [
        f"{arm}: {answer.caveat}: {' and '.join(answer.suspicions)}."
        for arm, answer in answers.items()
        if answer.suspicions
    ]
    unjudged = [
        f"{arm}: loss parity inconclusive: {' and '.join(answer.unjudged)}. {_NO_RUN}"
        for arm, answer in answers.items()
        if answer.unjudged
    ]
    return [*suspect, *unjudged]


def answers_table(
    answers: Mapping[str, LossParity], steps: int, tolerance: float
) -> Table:
    """Return the loss parity of all arms after the same number of steps."""
    last = max(1, steps // 10)
    which = f"step {steps}" if last == 1 else f"steps {steps - last + 1} to {steps}"
    return table(
        f"Loss parity after {steps} steps",
        (
            Column("arm", "arm"),
            number("first loss", "first_loss", "{:.3f}".format),
            number(f"loss, {which}", "final_loss", "{:.3f}".format),
            number("vs. baseline", "difference", _signed),
            number("mean loss vs. baseline", "mean_loss_difference", _signed),
            Column("limit", "limit", lambda part: f"{part * 100:.3g}%", "loss_limit"),
            Column("gradients", _gradients),
            Column("finding", lambda answer: answer.caveat or "ok"),
            number(None, "updates_skipped"),
        ),
        [*answers.values()],
        [
            "All runs use the same initial weights and image order. Differences are "
            "the largest of all repeats, relative to the baseline's initial loss.",
            f"Limit: {tolerance * 100:g}%, or twice the effect of perturbing the "
            "baseline's weights by the rounding of the format, if larger (up to 25%).",
            f"A baseline whose runs differ by over {tolerance * 100:g}% is suspect.",
            "Gradients count as finite if the final weights are finite. In fp16, steps "
            "with non-finite gradients are skipped, usually a few at the start.",
        ],
    )


def _signed(part: float) -> str:
    return f"{part:+.1%}"


def layout_table(effects: Sequence[LayoutEffect], notes: Sequence[str]) -> Table:
    """Return the effect of the layout on each precision."""
    return table(
        "Measured: channels_last vs. channels_first",
        (
            Column("format", lambda row: row.precision + ", compiled" * row.compile),
            Column(
                "channels_last",
                lambda row: _times(row.last.estimate) if row.last else "baseline",
            ),
            Column("channels_first", "first.estimate", _times),
            Column("last / first", "effect.estimate", _times, "layout_ratio"),
            Column("95% CI (n)", "effect", _interval_and_runs),
            Column("verdict", "effect.verdict"),
            Column(None, "effect.ci_low", csv="layout_ratio_low"),
            Column(None, "effect.ci_high", csv="layout_ratio_high"),
        ),
        effects,
        [
            *notes,
            "Columns channels_last and channels_first: speedup over the baseline.",
        ],
    )


def _interval_and_runs(ratio: Ratio) -> str:
    ends = interval("{:.2f}".format)(ratio) or wording.UNKNOWN
    return f"{ends} ({ratio.n_a} and {ratio.n_b})"


def published_table(published: Mapping[str, Sequence[PublishedRow]]) -> Table:
    """Return the published rates of the same GPU and format, by arm."""
    return table(
        "Published: images/s on one GPU, by arm",
        (
            Column("arm", lambda row: row[0]),
            Column(
                *("images/s", lambda row: row[1].images_per_second, wording.rate),
                "images_per_second",
            ),
            Column("batch per GPU", lambda row: row[1].batch_size_per_gpu),
            Column("by", lambda row: f"{row[1].publisher}, {row[1].year}"),
            Column("source", lambda row: row[1].source),
        ),
        [(arm, row) for arm, rows in published.items() for row in rows],
    )


def pairs_table(pairs: Sequence[PublishedPair]) -> Table:
    """Return published results of one model in both layouts."""
    return table(
        "Published: ResNet-50, fp16, one GPU, images/s by layout",
        (
            Column("GPU", "first.gpu_name"),
            Column("channels_first", "first", _published_cell),
            Column("channels_last", "last", _published_cell),
            Column("ratio", "ratio", _times),
            Column("other differences", lambda pair: pair.differs or "not stated"),
            Column(
                None, "first.images_per_second", csv="channels_first_images_per_second"
            ),
            Column(
                None, "last.images_per_second", csv="channels_last_images_per_second"
            ),
        ),
        pairs,
        [
            "Paddle ran NVIDIA's code with its default channels_first. Versions and "
            "settings also differ, so the ratio is not only the effect of the layout."
        ],
    )


def _published_cell(row: PublishedRow) -> str:
    return f"{wording.rate(row.images_per_second)} ({row.publisher})"


def bounds_table(
    measured: Sequence[MeasuredArm],
    configs: Mapping[str, ExperimentConfig],
    gpu_name: str | None,
) -> Table | Note:
    """Return the share of the roofline of every arm, or why it is unknown."""
    config = configs[measured[0].arm]
    if gpu_name is None:
        return Note([])
    if (config.model, config.image_size) != (_BOUND_MODEL, _BOUND_IMAGE_SIZE):
        return Note(
            [
                f"Roofline: only available for {_BOUND_MODEL} at {_BOUND_IMAGE_SIZE} "
                f"pixels, not for {config.model} at {config.image_size}."
            ]
        )
    rows = []
    for measured_arm in measured:
        config = configs[measured_arm.arm]
        bound = _bound(gpu_name, config)
        if bound is None or measured_arm.is_control:
            continue
        rate = measured_arm.images_per_second.median / config.world_size
        rows.append(
            [
                measured_arm.arm,
                wording.rate(rate),
                wording.rate(bound.images_per_second),
                bound.fusion,
                wording.percent(rate / bound.images_per_second),
                wording.percent(bound.memory_bound_share),
            ]
        )
    if not rows:
        return Note([f"Roofline: the peak rates of {gpu_name} are unknown."])
    return Table(
        f"Roofline: share of the bound of {gpu_name}",
        ["arm", "images/s per GPU", "bound", "kernels", "share", "memory-bound"],
        rows,
        [
            "Bound: sum over kernels of the longer of memory and arithmetic time at "
            "data-sheet peaks; for compiled arms, with fused kernels.",
            "The best published code reaches 66% (H200) to 94% (L40S) of the fused "
            "bound. Winograd convolutions in fp32 may exceed it.",
        ],
    )


def _bound(gpu_name: str, config: ExperimentConfig) -> Bound | None:
    batch = config.batch_size_per_gpu
    return resnet50_bound(
        gpu_name,
        config.precision,
        "fused" if config.compile else "eager",
        batch if isinstance(batch, int) else 256,
    )
