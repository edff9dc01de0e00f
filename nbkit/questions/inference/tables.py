"""Tables of the inference report: speed, latency, accuracy, formats, published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nbkit.questions.inference.latency import Kept, Served
from nbkit.references.rows import PublishedRow
from nbkit.reports.arm_tables import rate_interval, ratio_interval
from nbkit.reports.parts import Note, Table
from nbkit.statistics import Summary, images_needed, interval_in_words
from nbkit.statistics import quantities as wording

_QUANTILES = ("p50", "p95", "p99")

_IMAGES = {"real": "read", "synthetic": "random"}


def speed_table(
    served: Sequence[Served], baseline: str, where: str, notes: Sequence[str]
) -> Table:
    """Return the headline: every format at every batch size."""
    return Table(
        f"Measured {where}; ratios against {baseline} at the same batch size",
        [
            *("format", "batch", "p50 ms", "p95 ms", "p99 ms", "images/s"),
            *("95 % interval (runs)", "ratio", "95 % interval", "verdict"),
            *("memory", "J/image"),
        ],
        [_speed_cells(one, baseline) for one in served],
        notes,
        {
            "batch_size": [one.batch_size for one in served],
            "passes_of_a_run": [one.passes for one in served],
            **_seconds(served),
            "images_per_second": [one.images_per_second.median for one in served],
            "images_per_second_ci_low": [o.images_per_second.ci_low for o in served],
            "images_per_second_ci_high": [o.images_per_second.ci_high for o in served],
            "runs": [one.images_per_second.n for one in served],
            "ratio_estimate": [o.against and o.against.estimate for o in served],
            "ratio_ci_low": [o.against and o.against.ci_low for o in served],
            "ratio_ci_high": [o.against and o.against.ci_high for o in served],
            "peak_memory_bytes": [one.peak_memory_bytes for one in served],
            "joules_per_image": [one.joules_per_image for one in served],
        },
    )


def _speed_cells(one: Served, baseline: str) -> list[str | None]:
    rate, against = one.images_per_second, one.against
    interval = rate_interval(rate.ci_low, rate.ci_high) or wording.UNKNOWN
    verdict = None if against is None else against.verdict
    if one.is_control:
        # The noise floor says what it shows.
        verdict = "control"
    return [
        one.arm,
        f"{one.batch_size:,}",
        *(_milliseconds(_of(one, name)) for name in _QUANTILES),
        wording.rate(rate.median),
        f"{interval} ({rate.n})",
        None if against is None else f"{against.estimate:.3f}",
        None if against is None else ratio_interval(against.ci_low, against.ci_high),
        "baseline" if one.arm == baseline else verdict,
        wording.size(one.peak_memory_bytes),
        None if one.joules_per_image is None else f"{one.joules_per_image:.3g}",
    ]


def latency_table(served: Sequence[Served]) -> Table:
    """Return every percentile with its interval over process starts."""
    return Table(
        "Latency of a batch in ms, with 95 % intervals over process starts",
        ["format", "batch", *_QUANTILES, "passes a run", "runs"],
        [
            [
                one.arm,
                f"{one.batch_size:,}",
                *(_with_interval(_of(one, name)) for name in _QUANTILES),
                f"{one.passes:,}",
                f"{one.images_per_second.n}",
            ]
            for one in served
        ],
        [
            "From images on the device to finished outputs, with nothing else running. "
            "Percentiles are of the passes of one process start; the table shows the "
            "median over the starts. p95 needs 20 passes, p99 100.",
        ],
        _seconds(served),
    )


def _of(one: Served, name: str) -> Summary | None:
    return getattr(one, f"{name}_seconds")


def _seconds(served: Sequence[Served]) -> dict[str, list[float | None]]:
    found: dict[str, list[float | None]] = {}
    for name in _QUANTILES:
        each = [_of(one, name) for one in served]
        found[f"{name}_seconds"] = [one and one.median for one in each]
        found[f"{name}_seconds_ci_low"] = [one and one.ci_low for one in each]
        found[f"{name}_seconds_ci_high"] = [one and one.ci_high for one in each]
    return found


def _milliseconds(found: Summary | None) -> str | None:
    return None if found is None else _figures(1e3 * found.median)


def _with_interval(found: Summary | None) -> str | None:
    if found is None:
        return None
    text = _figures(1e3 * found.median)
    if found.ci_low is None or found.ci_high is None:
        return text
    ends = interval_in_words(1e3 * found.ci_low, 1e3 * found.ci_high, _figures)
    return f"{text} ({ends})"


def _figures(milliseconds: float) -> str:
    digits = 0 if milliseconds >= 1000 else 1 if milliseconds >= 100 else 2
    return f"{milliseconds:,.{digits}f}"


def accuracy_table(kept: Mapping[str, Kept], baseline: str, margin: float) -> Table:
    """Return what is left of the accuracy, on the same images."""
    pairs = [one.paired for one in kept.values()]
    differing = [one.arm for one in kept.values() if one.starts_differ]
    notes = [
        "Every format answers on the same images with the same weights. What counts is "
        "the number on which only one of the two is right; p is McNemar's exact test. "
        f"Kept: the whole interval is above {-100 * margin:g} points.",
        *_few_images(kept.values(), margin),
        *(
            f"Not judged: {why}."
            for why in {one.withheld for one in kept.values()}
            if why
        ),
    ]
    if any(one.score_name == "mean_auroc" for one in kept.values()):
        notes.append(
            "AUROC is the mean over the labels, without a test of the difference. Same "
            "answer: of all images and labels, without an interval, since those of an "
            "image are not independent."
        )
    if differing:
        notes.append(
            f"Process starts of {', '.join(differing)} do not all give the same "
            "classes; the first is compared."
        )
    return Table(
        f"Accuracy kept or lost, against {baseline}",
        [
            *("format", "accuracy", "same answer (95 % interval)", "only it right"),
            *("only baseline right", "difference", "95 % interval", "p", "images"),
            "accuracy is",
        ],
        [_accuracy_cells(one, baseline) for one in kept.values()],
        notes,
        {
            "accuracy": [one.score for one in kept.values()],
            "agreement": [one.agreement for one in kept.values()],
            "agreement_ci_low": [
                one.agreement_interval and one.agreement_interval[0]
                for one in kept.values()
            ],
            "agreement_ci_high": [
                one.agreement_interval and one.agreement_interval[1]
                for one in kept.values()
            ],
            "difference": [pair and pair.difference for pair in pairs],
            "difference_ci_low": [pair and pair.ci_low for pair in pairs],
            "difference_ci_high": [pair and pair.ci_high for pair in pairs],
            "p_value": [pair and pair.p_value for pair in pairs],
        },
    )


def _few_images(kept: Iterable[Kept], margin: float) -> list[str]:
    """Say how many images would do, where there are not enough for any verdict."""
    needed = images_needed(margin)
    images = [one.paired.images for one in kept if one.paired is not None]
    if not images or min(images) >= needed:
        return []
    return [
        f"{min(images):,} images are too few to show that accuracy is kept, "
        f"whatever the answers. It takes {needed:,} if both are right on the same "
        "ones, and more with every image on which only one is."
    ]


def _accuracy_cells(one: Kept, baseline: str) -> list[str | None]:
    named = "AUROC " if one.score_name == "mean_auroc" else ""
    score = None if one.score is None else f"{named}{wording.percent(one.score)}"
    agreement = None if one.agreement is None else wording.percent(one.agreement)
    if one.agreement_interval is not None:
        low, high = one.agreement_interval
        ends = f"{100 * low:.1f} to {100 * high:.1f}"
        agreement = f"{agreement} ({ends})"
    pair = one.paired
    if pair is None:
        last = "baseline" if one.arm == baseline else "not judged"
        return [one.arm, score, agreement, *[None] * 6, last]
    return [
        one.arm,
        score,
        agreement,
        f"{pair.only_a}",
        f"{pair.only_b}",
        f"{100 * pair.difference:+.1f}",
        f"{100 * pair.ci_low:+.1f} to {100 * pair.ci_high:+.1f}",
        f"{pair.p_value:.2g}",
        f"{pair.images:,}",
        pair.verdict,
    ]


def formats_table(
    numbers: Mapping[str, Mapping[str, Any]],
    weights: Mapping[str, Any],
    unavailable: Mapping[str, str],
) -> Table:
    """Return what each format computes in, and whose weights it has."""
    rows: list[list[str | None]] = []
    for arm, one in numbers.items():
        share = one.get("int8_multiply_add_share")
        library = one.get("library")
        rows.append(
            [
                arm,
                one.get("weights"),
                one.get("elsewhere"),
                None if share is None else wording.percent(share),
                library and f"{library} {one.get('library_version')}",
                one.get("backend"),
                _calibrated(one),
            ]
        )
    rows += [[arm, "not available", *[None] * 5] for arm in unavailable]
    notes = [f"{arm} is not available: {why}" for arm, why in unavailable.items()]
    return Table(
        "What is computed in which format",
        [
            *("format", "weights", "elsewhere", "INT8 multiply-adds"),
            *("library", "backend", "calibration images"),
        ],
        rows,
        [_origin(weights), *notes],
    )


def _calibrated(one: Mapping[str, Any]) -> str | None:
    images = one.get("calibration_images")
    return None if images is None else f"{images:,}"


def _origin(weights: Mapping[str, Any]) -> str:
    source = weights.get("source")
    if source == "random":
        return f"Weights of all formats: random, seed {weights.get('seed')}."
    parts = {
        "run": f"run {weights.get('run_id')}, step {weights.get('step')}",
        "pretrained": f"torchvision's {weights.get('name')}",
        "checkpoint": f"checkpoint {weights.get('path')}",
    }
    digest = str(weights.get("sha256"))[:16]
    new = ", with a new output layer" if weights.get("new_output_layer") else ""
    origin = parts.get(str(source), "unknown")
    return f"Weights of all formats: {origin}{new}; SHA-256 {digest}…"


def published_table(rows: Sequence[PublishedRow], model: str) -> Table | Note:
    """Return published results of a model at inference."""
    if not rows:
        return Note([f"Published by others: no inference results of {model}."])
    return Table(
        f"Published by others, not measured here: {model} at inference, images/s",
        [
            *("device", "format", "batch", "images/s", "layout", "compiled"),
            *("images", "conditions", "publisher", "software", "year"),
        ],
        [
            [
                row.gpu_name or "CPU",
                row.precision,
                f"{row.batch_size_per_gpu:,}",
                wording.rate(row.images_per_second),
                row.memory_format,
                _yes_or_no(row.compile),
                _IMAGES.get(str(row.data)),
                row.conditions,
                row.publisher,
                row.software,
                f"{row.year}",
            ]
            for row in rows
        ],
        [
            "One number each, without an interval; other software, other machines. "
            "Where images are read during the run, reading and decoding may limit the "
            "rate; here, as with random images, they are on the device beforehand. "
            "For each device and format: the batch sizes measured here, and the best. "
            "TensorRT's INT8 in Dell's guide of 2018 is only in a figure, so it has no "
            "row.",
        ],
        {"images_per_second": [row.images_per_second for row in rows]},
    )


def _yes_or_no(value: bool | None) -> str | None:
    return None if value is None else "yes" if value else "no"
