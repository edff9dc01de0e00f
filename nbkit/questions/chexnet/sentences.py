"""Sentences of the chexnet report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nbkit.datasets.nih import NIH_KIND, NIH_LABELS
from nbkit.plural import plural
from nbkit.questions.chexnet.areas import FEWEST_PATIENTS, MEAN, LabelFinding
from nbkit.questions.chexnet.planning import SYNTHETIC_MULTILABEL
from nbkit.questions.chexnet.tables import difference_text, interval_text
from nbkit.reports.parts import Source
from nbkit.statistics import MINIMUM_RUNS

_DELONG = Source(
    "E. R. DeLong et al., Comparing the areas under two or more correlated receiver "
    "operating characteristic curves, Biometrics 44 (1988)",
    "https://doi.org/10.2307/2531595",
)
_CLUSTERED = Source(
    "N. A. Obuchowski, Nonparametric analysis of clustered ROC curve data, Biometrics "
    "53 (1997)",
    "https://doi.org/10.2307/2533958",
)
_READERS = Source(
    "N. A. Obuchowski and H. E. Rockette, Hypothesis testing of diagnostic accuracy "
    "for multiple readers and multiple tests, Communications in Statistics 24 (1995)",
    "https://doi.org/10.1080/03610919508813243",
)
_NIH = Source(
    "X. Wang, Y. Peng, L. Lu, Z. Lu, M. Bagheri, R. Summers, ChestX-ray8: "
    "Hospital-scale chest X-ray database and benchmarks on weakly-supervised "
    "classification and localization of common thorax diseases, CVPR 2017, "
    "pp. 3462-3471",
    "https://arxiv.org/abs/1705.02315",
)
_NIH_IMAGES = Source(
    "NIH Clinical Center, provider of the ChestX-ray14 images",
    "https://nihcc.app.box.com/v/ChestXray-NIHCC",
)


def answer(findings: Sequence[LabelFinding], *, is_made: bool) -> str:
    """Return the result in a few words; without a margin, of one device alone."""
    mean = findings[-1]
    if mean.single is None:
        return f"No mean AUROC: {mean.caveat}."
    judged = [
        finding
        for finding in findings
        if finding.label != MEAN and finding.caveat is None
    ]
    interval = interval_text(mean.single)
    spread = f"95% CI {interval}" if interval else "no CI"
    count = mean.single.trainings
    labels = plural(len(judged), "label")
    text = f"Mean AUROC {mean.single.value:.3f} ({spread}, {labels}, n={count})"
    return f"{text}. {shortcut_sentence(mean, is_made=is_made)}"


def shortcut_sentence(mean: LabelFinding, *, is_made: bool) -> str:
    """Return what it means that global statistics do as well, or do not."""
    what = "anything in the images" if is_made else "disease"
    if mean.baseline is None or mean.gain is None:
        return (
            "The shortcut baseline is unknown, so this AUROC is not "
            f"evidence that the network recognizes {what}."
        )
    start = (
        f"Shortcut baseline (12 global image statistics): {mean.baseline.value:.3f}; "
        f"network minus baseline {difference_text(mean.gain)}"
    )
    verdict = mean.above_baseline
    if verdict == "above the statistics":
        return (
            f"{start}. The network beats the baseline, which does not prove that it "
            f"recognizes {what}."
        )
    worse = verdict == "below the statistics"
    why = "below the baseline" if worse else "not shown to be better"
    if verdict == "not enough runs":
        why += f" (n={mean.gain.trainings}, a verdict needs {MINIMUM_RUNS})"
    return f"{start}: {why}, so the AUROC is not evidence that it recognizes {what}."


def nothing_to_pair(gpus: int) -> str:
    """Return why several devices are not compared with one."""
    if gpus == 1:
        return "All training runs used 1 device. Use gpus=2 or more to compare."
    return (
        f"No pair of training runs finished on both 1 and {gpus} devices. Call run() "
        "of the study to continue it; if runs diverged, lower learning_rate."
    )


def device_sentences(finding: LabelFinding, gpus: int, margin: float) -> list[str]:
    """Return whether several devices reach the same AUROC as one."""
    difference = finding.difference
    if difference is None:
        return []
    start = (
        f"Mean AUROC on {gpus} devices minus 1 device at equal global batch size: "
        f"{difference_text(difference)},"
    )
    verdict = finding.same_within(margin)
    if verdict == "same":
        return [f"{start} equal within {margin:g}."]
    if verdict == "differs":
        return [f"{start} different."]
    why = ""
    if verdict == "not enough runs":
        why = f" (n={difference.trainings} of {MINIMUM_RUNS} pairs)"
    return [f"{start} not resolved{why}."]


def unreadable(plan: Mapping[str, Any]) -> list[str]:
    """Return how many images the baseline excludes."""
    count = (plan.get("baseline") or {}).get("unreadable")
    if not count:
        return []
    return [f"Omitted: {plural(count, 'image')} that cannot be read."]


def no_claim(*, is_made: bool) -> str:
    """Return what no number of the report says."""
    if is_made:
        return "The images are generated patterns; the numbers do not apply to X-rays."
    return (
        "For research and benchmarks only, not for medical use. Labels are often "
        "extracted automatically from radiology reports, and a model may learn to "
        "recognize the hospital or scanner instead of the disease."
    )


def data_source(plan: Mapping[str, Any], data: str, labels: Sequence[str]) -> str:
    """Return whose the images are, and on which terms."""
    if data == SYNTHETIC_MULTILABEL:
        return "Images: generated by nbkit (synthetic-multilabel), under its licence."
    terms = (
        "NIH places no restrictions on the use of the images, and asks users to link "
        "to the source, cite the paper and acknowledge the NIH Clinical Center as the "
        "provider"
    )
    if plan.get("data_kind") == NIH_KIND:
        return f"Images: NIH ChestX-ray14, {data}. {terms}."
    if set(labels) >= set(NIH_LABELS):
        return (
            f"Images: {data}, with the 14 labels of NIH ChestX-ray14. If the images "
            f"are from this data set: {terms}."
        )
    return (
        f"Images: {data}. Source and licence are unknown; cite them when you publish "
        "these numbers."
    )


def sources(plan: Mapping[str, Any], labels: Sequence[str]) -> list[Source]:
    """Return the sources of methods and data."""
    is_nih = plan.get("data_kind") == NIH_KIND or set(labels) >= set(NIH_LABELS)
    return [_DELONG, _CLUSTERED, _READERS, *([_NIH, _NIH_IMAGES] if is_nih else [])]


def method(*, patients: bool, trainings: int) -> list[str]:
    """Return how AUROCs and their intervals come about."""
    whose = "patients" if patients else "images"
    who = (
        "of whole patients (Obuchowski's variance for clustered data)"
        if patients
        else "of single images, because patient_id is missing (DeLong's variance)"
    )
    spread = (
        "It includes the variance between training runs (readers and cases)."
        if trainings > 1
        else "With one training run, the variance between runs is not included."
    )
    return [
        "AUROC: from each run's predictions.csv at its last evaluation.",
        f"95% CI: over samples {who}; Student's t, degrees of freedom: {whose} of the "
        f"smaller class minus one. {spread}",
        f"The mean is over labels with {FEWEST_PATIENTS} or more positive and negative "
        f"{whose}, training images of both classes and no perfect or constant ranking.",
        "Differences are paired over the same images.",
        "12 statistics: one logistic regression per label (scikit-learn) on mean, "
        "spread, 5 percentiles, sharpness, border, dark and saturated share and bytes "
        "per pixel of whole images, fitted to the training images. Except for the "
        "border, they do not depend on positions in the image.",
    ]
