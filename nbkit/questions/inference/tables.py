"""Tables of the inference report: speed, latency, accuracy, formats, published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from nbkit.questions.inference.latency import FormatAccuracy, Served
from nbkit.references.rows import PublishedRow
from nbkit.reports.columns import Column, ends, interval, number, rate, table
from nbkit.reports.parts import Note, Table
from nbkit.statistics import Summary, images_needed
from nbkit.statistics import quantities as wording

_IMAGES = {"real": "read", "synthetic": "random"}


def speed_table(
    served: Sequence[Served], baseline: str, where: str, notes: Sequence[str]
) -> Table:
    """Return the headline: every format at every batch size."""

    def verdict(row: Served) -> str | None:
        # What the control shows, the noise floor says.
        own = "control" if row.is_control else row.against and row.against.verdict
        return "baseline" if row.arm == baseline else own

    return table(
        f"Inference on {where}; ratios to {baseline} at the same batch size",
        (
            Column("format", "arm"),
            number("batch", "batch_size", "{:,}".format),
            Column(None, "passes", csv="passes_of_a_run"),
            *_percentiles(lambda seconds: _milliseconds(seconds.median), " ms"),
            *rate(
                *("images/s", "95% CI (runs)"),
                *("images_per_second", "images_per_second"),
                n="images_per_second.n",
            ),
            *ends("images_per_second", "images_per_second"),
            Column(None, "images_per_second.n", csv="runs"),
            Column("ratio", "against.estimate", "{:.3f}".format, "ratio_estimate"),
            Column("95% CI", "against", interval()),
            Column("verdict", verdict),
            *ends("against", "ratio"),
            number("memory", "peak_memory_bytes", wording.size),
            number("J/image", "joules_per_image", "{:.3g}".format),
        ),
        served,
        notes,
    )


def latency_table(served: Sequence[Served]) -> Table:
    """Return every percentile with its interval over process starts."""
    return table(
        "Latency per batch in ms, with 95% CI over process starts",
        (
            Column("format", "arm"),
            Column("batch", "batch_size", "{:,}".format),
            *_percentiles(_with_interval),
            Column("passes per run", "passes", "{:,}".format),
            Column("runs", "images_per_second.n"),
        ),
        served,
        [
            "Latency: from images on the device to finished outputs. Percentiles: per "
            "process start, then the median over starts; p95 requires 20 passes, p99 "
            "100.",
        ],
    )


def _percentiles(show: Callable[[Summary], str], unit: str = "") -> list[Column]:
    """Return the latencies, each with its interval in the CSV."""
    return [
        column
        for name in ("p50", "p95", "p99")
        for column in (
            number(f"{name}{unit}", f"{name}_seconds", show),
            *ends(f"{name}_seconds", f"{name}_seconds"),
        )
    ]


def _with_interval(seconds: Summary) -> str:
    text, spread = _milliseconds(seconds.median), interval(_milliseconds)(seconds)
    return f"{text} ({spread})" if spread else text


def _milliseconds(seconds: float) -> str:
    shown = 1e3 * seconds
    digits = 0 if shown >= 1000 else 1 if shown >= 100 else 2
    return f"{shown:,.{digits}f}"


def accuracy_table(
    accuracies: Mapping[str, FormatAccuracy], baseline: str, margin: float
) -> Table:
    """Return the accuracy of all formats on the same images."""
    is_auroc = any(
        accuracy.score_name == "mean_auroc" for accuracy in accuracies.values()
    )
    differing = [
        accuracy.arm for accuracy in accuracies.values() if accuracy.starts_differ
    ]
    notes = [
        "All formats use the same weights and images; p: McNemar's exact test on "
        "images that only the format or only the baseline classifies correctly. Kept: "
        f"the whole 95% CI is above {-100 * margin:g} points.",
        *_few_images(accuracies.values(), margin),
        *(
            f"Not judged: {why}."
            for why in {accuracy.withheld for accuracy in accuracies.values()}
            if why
        ),
    ]
    if is_auroc:
        notes.append(
            "AUROC: mean over labels; its difference is not tested. Agreement: over "
            "all image-label pairs, without a CI because labels of an image are not "
            "independent."
        )
    if differing:
        notes.append(
            f"Runs of {'; '.join(differing)} differ in their predictions for some "
            "images. Only the first run is compared."
        )
    unjudged = dict.fromkeys(accuracies, "not judged") | {baseline: "baseline"}

    def agreed(row: FormatAccuracy) -> tuple[float | None, float | None]:
        return row.agreement_interval or (None, None)

    return table(
        f"Accuracy vs. {baseline}",
        (
            Column("format", "arm"),
            Column(
                *("accuracy", "score"),
                lambda part: f"AUROC {part:.3f}" if is_auroc else wording.percent(part),
                "accuracy",
            ),
            Column("agreement (95% CI)", _agreement),
            number(None, "agreement"),
            Column(None, lambda row: agreed(row)[0], csv="agreement_ci_low"),
            Column(None, lambda row: agreed(row)[1], csv="agreement_ci_high"),
            Column("only this correct", "paired.only_a"),
            Column("only baseline correct", "paired.only_b"),
            number("difference", "paired.difference", _points),
            Column(
                *("95% CI", "paired"),
                lambda pair: f"{_points(pair.ci_low)} to {_points(pair.ci_high)}",
            ),
            *ends("paired", "difference"),
            number("p", "paired.p_value", "{:.2g}".format),
            Column("images", "paired.images", "{:,}".format),
            Column("verdict", lambda row: row.verdict or unjudged[row.arm]),
        ),
        [*accuracies.values()],
        notes,
    )


def _few_images(accuracies: Iterable[FormatAccuracy], margin: float) -> list[str]:
    """Say how many images would do, where there are not enough for any verdict."""
    needed = images_needed(margin)
    images = [
        accuracy.paired.images for accuracy in accuracies if accuracy.paired is not None
    ]
    if not images or min(images) >= needed:
        return []
    return [
        f"Too few images to show that accuracy is unchanged: {min(images):,}. Use "
        f"{needed:,} or more."
    ]


def _agreement(row: FormatAccuracy) -> str | None:
    if row.agreement is None or row.agreement_interval is None:
        return None if row.agreement is None else wording.percent(row.agreement)
    low, high = row.agreement_interval
    return f"{wording.percent(row.agreement)} [{100 * low:.1f}, {100 * high:.1f}]"


def _points(part: float) -> str:
    return f"{100 * part:+.1f}"


def formats_table(
    numbers: Mapping[str, Mapping[str, Any]],
    weights: Mapping[str, Any],
    unavailable: Mapping[str, str],
) -> Table:
    """Return the computation types of each format, and the source of the weights."""

    def fact(name: str) -> Callable[[Mapping[str, Any]], Any]:
        return lambda row: row.get(name)

    def library(row: Mapping[str, Any]) -> str | None:
        name = row.get("library")
        return name and f"{name} {row.get('library_version')}"

    rows = [{**facts, "arm": arm} for arm, facts in numbers.items()]
    rows += [{"arm": arm, "weights": "not available"} for arm in unavailable]
    share = fact("int8_multiply_add_share")
    return table(
        "Number formats of weights and operations",
        (
            Column("format", fact("arm")),
            Column("weights", fact("weights")),
            Column("other operations", fact("elsewhere")),
            Column("INT8 multiply-adds", share, wording.percent),
            Column("library", library),
            Column("backend", fact("backend")),
            Column("calibration images", fact("calibration_images"), "{:,}".format),
        ),
        rows,
        [
            _origin(weights),
            *(f"{arm} is not available: {why}" for arm, why in unavailable.items()),
        ],
    )


def _origin(weights: Mapping[str, Any]) -> str:
    source = weights.get("source")
    if source == "random":
        return f"Weights of all formats: random, seed {weights.get('seed')}."
    parts = {
        "run": f"run {weights.get('run_id')}, step {weights.get('step')}",
        "pretrained": f"torchvision's {weights.get('name')}",
        "checkpoint": f"checkpoint {weights.get('path')}",
    }
    digest = weights.get("sha256")
    new = ", with a new output layer" if weights.get("new_output_layer") else ""
    origin = parts.get(str(source), "unknown")
    end = f"; SHA-256 {digest[:16]}…" if digest else "."
    return f"Weights of all formats: {origin}{new}{end}"


def published_table(rows: Sequence[PublishedRow], model: str) -> Table | Note:
    """Return published results of a model at inference."""
    if not rows:
        return Note([f"No published inference results of {model}."])
    return table(
        f"Published by others: {model} inference, images/s",
        (
            Column("device", lambda row: row.gpu_name or "CPU"),
            Column("format", "precision"),
            Column("batch", "batch_size_per_gpu", "{:,}".format),
            number("images/s", "images_per_second", wording.rate),
            Column("layout", "memory_format"),
            Column("compiled", "compile", lambda flag: "yes" if flag else "no"),
            Column("images", "data", _IMAGES.get),
            *(
                Column(name, name)
                for name in ("conditions", "publisher", "software", "year")
            ),
        ),
        rows,
        [
            "Single values without a CI, from other software and machines. Published "
            "rates may be limited by reading images; here, images are already on the "
            "device. Rows: per device and format, the batch sizes measured here and "
            "the fastest batch size.",
        ],
    )
