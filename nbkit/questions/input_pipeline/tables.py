"""Tables of the input pipeline report: steps, trials, sizes, costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from nbkit.plural import plural
from nbkit.questions.input_pipeline.trials import LoaderSetting, Trial, Tuning
from nbkit.reports.arm_tables import ratio_text
from nbkit.reports.columns import Column, number, rate, ratio, table
from nbkit.reports.parts import Source, Table
from nbkit.statistics import NoiseFloor, Ratio, Summary
from nbkit.statistics import quantities as wording

CHEXNET = Source(
    "R. Vasudev and J. Lockman, Optimization techniques for training CheXNet on Dell "
    "C4140 with Nvidia V100 GPUs (2019)",
    "https://www.dell.com/support/kbdoc/en-us/000124384/optimization-techniques-for-"
    "training-chexnet-on-dell-c4140-with-nvidia-v100-gpus",
)
"""The two pipelines, step by step."""

GUIDE = Source(
    "Dell EMC Ready Solutions for AI: Deep Learning with NVIDIA, architecture guide "
    "(2018)"
)
"""The rule of how many workers."""

_OLD = (
    ("list the files", "list"),
    ("make a TFRecordDataset of them", "read"),
    ("load and preprocess images", "map"),
    ("shard", "shard"),
    ("shuffle", "shuffle"),
    ("repeat", "the training's epochs"),
    ("batch", "batch"),
    ("prefetch", "prefetch"),
)
_NEW = (
    ("list the files", "list"),
    ("make a data set of their names", "list"),
    ("shard", "shard"),
    ("shuffle the files", "shuffle"),
    ("parallel interleave", "interleave"),
    ("prefetch records", "prefetch"),
    ("shuffle the records", "shuffle"),
    ("repeat", "the training's epochs"),
    ("map and batch in one", "map_and_batch"),
    ("prefetch", "prefetch"),
)


@dataclass(frozen=True)
class AtSize:
    """Both whole pipelines at one number of devices."""

    world_size: int
    old: Summary | None
    new: Summary | None
    ratio: Ratio | None
    """New over old."""
    demand: float | None
    """Images/s that the devices could compute."""


def steps_table() -> Table:
    """Return the steps of both published pipelines, and their equivalents here."""
    steps = zip_longest(_OLD, _NEW, fillvalue=(None, None))
    return Table(
        "The two pipelines of the CheXNet report",
        ["step", "old, 8 steps", "here", "new, 10 steps", "here"],
        [[f"{number}", *old, *new] for number, (old, new) in enumerate(steps, start=1)],
        [
            "Steps, order and interleaving of 10 files as in the report (TensorFlow), "
            "but with Pillow in threads. Shuffle buffer: 500 images in the report, at "
            "most a tenth of a rank's images here. The old pipeline prefetches as many "
            "batches as a batch has images in the report, prefetch_factor batches here."
        ],
    )


def setting_words(setting: LoaderSetting) -> str:
    """Return a setting in words."""
    kind = ["thread"] if _has_threads(setting) else ["process", "processes"]
    workers = plural(setting.workers, *kind)
    return f"{setting.loader}, {workers} per rank, prefetch {setting.prefetch}"


_MILLISECONDS = "{:.2f}".format


class _Numbered(NamedTuple):
    number: int
    trial: Trial
    is_chosen: bool

    @property
    def images_per_second(self) -> float | None:
        return self.trial.images_per_second if self.trial.cause is None else None


_TRIALS = (
    Column("trial", "number"),
    Column("loader", "trial.setting.loader"),
    Column(
        *("processes", "trial.setting"),
        lambda setting: None if _has_threads(setting) else f"{setting.workers}",
    ),
    Column(
        *("threads", "trial.setting"),
        lambda setting: f"{setting.workers}" if _has_threads(setting) else None,
    ),
    Column("prefetch", "trial.setting.prefetch"),
    Column("images/s", lambda row: wording.rate(row.images_per_second)),
    number(None, "images_per_second"),
    number(None, "trial.cause"),
    number("CPU ms/image", "trial.cpu_ms_per_image", _MILLISECONDS),
    number("data wait", "trial.data_wait_share", wording.percent),
    Column(
        "",
        lambda row: "chosen" * row.is_chosen if row.trial.cause is None else "failed",
    ),
    Column("reason", "trial.why"),
    number(None, "trial.run_id"),
)


def tuning_table(tuning: Tuning) -> Table:
    """Return every trial of the tuner, in order."""
    rows = [
        _Numbered(number, trial, trial.setting == tuning.chosen)
        for number, trial in enumerate(tuning.trials, start=1)
    ]
    return table(
        f"Tuner trials: {len(rows)} ({len({row.trial.setting for row in rows})} of "
        f"{tuning.grid_size} settings)",
        _TRIALS,
        rows,
        [
            *_disturbed_words(rows),
            f"Chosen: {setting_words(tuning.chosen)}; {tuning.why}.",
            f"n=1 per trial; {_noise_words(tuning)} The selected setting is measured "
            "again as an arm, without selection bias.",
            *(
                f"Trial {row.number} failed: {row.trial.cause}"
                for row in rows
                if row.trial.cause is not None
            ),
        ],
    )


def sizes_table(rows: Sequence[AtSize], device: str, notes: Sequence[str]) -> Table:
    """Return both pipelines by number of devices."""
    return table(
        f"Throughput by number of {device}",
        (
            Column(device, "world_size"),
            *(
                column
                for name in ("old", "new")
                for column in rate(
                    *(f"{name}, images/s", "95% CI (n)"),
                    *(name, f"{name}_images_per_second"),
                    n=f"{name}.n",
                )
            ),
            *ratio("new / old", "ratio"),
            Column("demand", "demand", wording.rate, "demand_images_per_second"),
        ),
        rows,
        [
            "Demand: images/s of the devices without data wait.",
            *notes,
        ],
    )


class _Need(NamedTuple):
    arm: str
    demand: float | None
    cpu_ms: float | None

    @property
    def cores(self) -> float | None:
        if self.demand is None or self.cpu_ms is None:
            return None
        return self.demand * self.cpu_ms / 1e3


def cores_table(
    needs: Mapping[str, tuple[float | None, float | None]],
    cores: float | None,
    *,
    trains: bool,
) -> Table:
    """Return the CPU cores that each loader needs to keep up with the devices."""

    def verdict(needed: float) -> str | None:
        # A lower bound that the cores reach does not show that they are enough.
        fits = "yes" if trains else None
        return None if cores is None else fits if needed <= cores else "no"

    return table(
        "CPU cores needed: demand / images/s per core",
        (
            Column("arm", "arm"),
            Column("demand, images/s", "demand", wording.rate),
            Column("CPU ms/image", "cpu_ms", _MILLISECONDS),
            Column("images/s per core", "cpu_ms", lambda ms: wording.rate(1e3 / ms)),
            Column("cores needed", "cores", "{:.1f}".format, "cores_needed"),
            Column(
                "enough" if cores is None else f"{cores:g} suffice", "cores", verdict
            ),
        ),
        [_Need(arm, *need) for arm, need in needs.items()],
        [f"{_CPU_TIME} {_OF_A_TRAINING if trains else _OF_LOADING}"],
    )


_CPU_TIME = (
    "CPU ms/image: CPU time of all processes of the ranks, including the decoding of "
    "unused images."
)
_OF_A_TRAINING = (
    "It includes the CPU time of the training loop, such as kernel launches; the input "
    "pipeline alone needs fewer cores. Logical CPUs that share a physical core or its "
    "caches are slower, so more of them may be needed."
)
_OF_LOADING = (
    'It includes normalization, which runs on the GPU in training. The column "cores '
    'needed" is a lower bound, because logical CPUs that share a physical core or its '
    "caches are slower."
)


def _has_threads(setting: LoaderSetting) -> bool:
    """Return whether a loader's workers are threads of the rank."""
    return setting.loader in ("tfrecord", "dali")


def _disturbed_words(rows: Sequence[_Numbered]) -> list[str]:
    """Return that the choice is not reliable, and why; nothing where it is."""
    disturbed = [row for row in rows if row.trial.disturbed is not None]
    if not disturbed:
        return []
    number, trial, _ = disturbed[0]
    return [
        f"Unreliable: {len(disturbed)} of {len(rows)} trials were disturbed. "
        f"Trial {number}: {trial.disturbed} Tune again on an idle machine."
    ]


def _noise_words(tuning: Tuning) -> str:
    margin = f"differences up to {tuning.margin * 100:.1f}% are ignored."
    if tuning.noise is None:
        return f"noise not measured; {margin}"
    noise = f"{tuning.noise * 100:.1f}%"
    return f"two measurements of the first setting differed by {noise}; {margin}"


def ratio_words(new_over_old: Ratio, floor: NoiseFloor | None) -> str:
    """Return the ratio of both pipelines with its verdict, or why it has none."""
    text = "chexnet_new / chexnet_old"
    if floor is not None and floor.covers(new_over_old):
        return f"{text}: no difference beyond the A/A control ({floor.difference})"
    return f"{text} = {ratio_text(new_over_old)}"
