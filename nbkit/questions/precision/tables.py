"""Tables of the precision report: answers, layouts, published pairs, bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nbkit.config import ExperimentConfig
from nbkit.questions.precision.answers import Answer
from nbkit.questions.precision.layouts import LayoutEffect
from nbkit.questions.precision.sentence import MeasuredArm
from nbkit.references.rows import PublishedPair, PublishedRow
from nbkit.reports.parts import Note, Table
from nbkit.review.bounds import Bound, resnet50_bound
from nbkit.statistics import Ratio, interval_in_words
from nbkit.statistics import quantities as wording

_NO_RUN = (
    "No run with perturbed weights shows how much of that is rounding; measure with "
    "control=True."
)
_BOUND_MODEL, _BOUND_IMAGE_SIZE = "resnet50", 224


def loss_cell(answer: Answer) -> str | None:
    """Return the final loss as text, with the doubt there may be."""
    if answer.final_loss is None and not answer.suspicions:
        return None
    loss = "not finite" if answer.final_loss is None else f"{answer.final_loss:.3f}"
    return f"{loss}, {answer.doubt}" if answer.doubt else loss


def gradient_cell(answer: Answer) -> str | None:
    """Return whether gradients were finite, as text; None where a run does not say."""
    if answer.weights_finite is None:
        return None
    if not answer.weights_finite:
        return "not finite"
    skipped = answer.updates_skipped
    return f"finite, {skipped} skipped" if skipped else "finite"


def doubt_notes(answers: Mapping[str, Answer]) -> list[str]:
    """Return why answers may be wrong, then why others are not judged."""
    suspect = [
        f"{arm}: wrong answer? {' and '.join(answer.suspicions)}."
        for arm, answer in answers.items()
        if answer.suspicions
    ]
    unjudged = [
        f"{arm}: answer not judged: {' and '.join(answer.unjudged)}. {_NO_RUN}"
        for arm, answer in answers.items()
        if answer.unjudged
    ]
    return [*suspect, *unjudged]


def answers_table(answers: Mapping[str, Answer], steps: int, tolerance: float) -> Table:
    """Return where every arm's training arrived after equally many steps."""
    last = max(1, steps // 10)
    which = f"step {steps}" if last == 1 else f"steps {steps - last + 1} to {steps}"
    return Table(
        f"Is the answer still right after {steps} steps?",
        [
            *("arm", "first loss", f"loss, {which}", "against the baseline"),
            *("on the way", "limit", "gradients", "finding"),
        ],
        [
            [
                answer.arm,
                None if answer.first_loss is None else f"{answer.first_loss:.3f}",
                None if answer.final_loss is None else f"{answer.final_loss:.3f}",
                _signed(answer.difference),
                _signed(answer.difference_on_the_way),
                f"{answer.limit * 100:.3g} %",
                gradient_cell(answer),
                answer.doubt or "nothing suspicious",
            ]
            for answer in answers.values()
        ],
        [
            "Every run begins with the same weights and sees the same images in the "
            "same order. The loss is the mean over the last tenth of the steps, on the "
            "way that over all steps; medians over runs. Differences from the "
            "baseline are fractions of the first loss, of the repeat that differs "
            "most, and are suspicious above the limit: "
            f"{tolerance * 100:g} % or, if the study has measured it, twice the effect "
            "of changing the baseline's weights by as little as the format rounds. "
            f"If the baseline's own runs differ by more than {tolerance * 100:g} %, it "
            "is suspect too.",
            "A weight that is not finite stays so, therefore finite weights at "
            "the end mean that every applied gradient was finite. In fp16 "
            "steps whose gradients are not finite are skipped; a few at the beginning, "
            "while the loss scale is found, are usual.",
        ],
        {
            "first_loss": [answer.first_loss for answer in answers.values()],
            "final_loss": [answer.final_loss for answer in answers.values()],
            "difference": [answer.difference for answer in answers.values()],
            "difference_on_the_way": [
                answer.difference_on_the_way for answer in answers.values()
            ],
            "loss_limit": [answer.limit for answer in answers.values()],
            "updates_skipped": [answer.updates_skipped for answer in answers.values()],
        },
    )


def _signed(part: float | None) -> str | None:
    return None if part is None else f"{part * 100:+.1f} %"


def layout_table(effects: Sequence[LayoutEffect], notes: Sequence[str]) -> Table:
    """Return what the layout does to each precision."""
    return Table(
        "Measured: what the layout does",
        [
            *("format", "channels_last", "channels_first", "layout alone"),
            *("95 % interval (runs)", "verdict"),
        ],
        [
            [
                f"{one.precision}, compiled" if one.compile else one.precision,
                _times(one.last) if one.last else "baseline",
                _times(one.first),
                _times(one.effect),
                _interval(one.effect),
                one.effect.verdict,
            ]
            for one in effects
        ],
        [
            *notes,
            "Both columns are gains over the same baseline; the layout alone is "
            "channels_last over channels_first of the same format.",
        ],
        {
            "layout_ratio": [one.effect.estimate for one in effects],
            "layout_ratio_low": [one.effect.ci_low for one in effects],
            "layout_ratio_high": [one.effect.ci_high for one in effects],
        },
    )


def _times(found: Ratio) -> str:
    return f"{found.estimate:.2f} x"


def _interval(found: Ratio) -> str:
    counted = f"({found.n_a} and {found.n_b})"
    if found.ci_low is None or found.ci_high is None:
        return f"– {counted}"
    ends = interval_in_words(found.ci_low, found.ci_high, "{:.2f}".format)
    return f"{ends} {counted}"


def pairs_table(pairs: Sequence[PublishedPair]) -> Table:
    """Return the same model in both layouts, as others have published it."""
    return Table(
        "Published by others: ResNet-50 in fp16 on one GPU, images/s by layout",
        ["GPU", "channels_first", "channels_last", "ratio", "what else differs"],
        [
            [
                pair.first.gpu_name,
                _published_cell(pair.first),
                _published_cell(pair.last),
                f"{pair.ratio:.2f} x",
                pair.differs or "nothing stated",
            ]
            for pair in pairs
        ],
        [
            "One number each, without an interval. Paddle ran NVIDIA's code "
            "without the option that sets the layout, so main.py used "
            "channels_first; versions and settings differ too, so this ratio is not "
            "the effect of the layout alone."
        ],
        {
            "channels_first_images_per_second": [
                p.first.images_per_second for p in pairs
            ],
            "channels_last_images_per_second": [
                p.last.images_per_second for p in pairs
            ],
        },
    )


def _published_cell(row: PublishedRow) -> str:
    return f"{wording.rate(row.images_per_second)} ({row.publisher})"


def bounds_table(
    measured: Sequence[MeasuredArm],
    configs: Mapping[str, ExperimentConfig],
    gpu_name: str | None,
) -> Table | Note:
    """Return how much of what the GPU allows every arm reaches, or why not."""
    config = configs[measured[0].arm]
    if gpu_name is None:
        return Note(["Physical bound: not computed, no GPU was measured."])
    if (config.model, config.image_size) != (_BOUND_MODEL, _BOUND_IMAGE_SIZE):
        return Note(
            [
                f"Physical bound: known for {_BOUND_MODEL} at {_BOUND_IMAGE_SIZE} "
                f"pixels, not for {config.model} at {config.image_size}."
            ]
        )
    rows = []
    for one in measured:
        bound = _bound(gpu_name, configs[one.arm])
        if bound is not None and not one.is_control:
            rows.append(_bound_cells(one, configs[one.arm].world_size, bound))
    if not rows:
        return Note([f"Physical bound: the peaks of {gpu_name} are not known."])
    return Table(
        f"How much of what memory bandwidth and arithmetic of {gpu_name} allow",
        ["arm", "images/s of a GPU", "bound", "kernels", "share", "limited by memory"],
        rows,
        [
            "The bound is a sum over kernels, each at the data sheet's bandwidth or "
            "arithmetic, whichever takes longer; compiled arms are compared with fused "
            "kernels. The best published code reaches 66 % (H200) to 94 % (L40S) of "
            "the fused bound. "
            "In fp32 a convolution may need less arithmetic than is counted "
            "(Winograd), so that there the bound is not strict."
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


def _bound_cells(one: MeasuredArm, world_size: int, bound: Bound) -> list[str | None]:
    rate = one.images_per_second.median / world_size
    return [
        one.arm,
        wording.rate(rate),
        wording.rate(bound.images_per_second),
        bound.fusion,
        wording.percent(rate / bound.images_per_second),
        wording.percent(bound.memory_bound_share),
    ]
