"""Tables of the input pipeline report: steps, trials, sizes, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nbkit.questions.input_pipeline.trials import Setting, Trial, Tuning
from nbkit.reports.arm_tables import rate_interval, ratio_interval
from nbkit.reports.parts import Source, Table
from nbkit.statistics import NoiseFloor, Ratio, Summary, interval_in_words
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
    """Return the eight and the ten steps of the source, and what does them here."""
    rows = []
    for number, new in enumerate(_NEW, start=1):
        old = _OLD[number - 1] if number <= len(_OLD) else (None, None)
        rows.append([f"{number}", *old, *new])
    return Table(
        "The two pipelines of the report on CheXNet",
        ["step", "old, 8 steps", "here", "new, 10 steps", "here"],
        rows,
        [
            "Steps and their order are the report's, as are 10 files in turn. The "
            "report uses TensorFlow; here nbkit's steps do the same, with Pillow in "
            "threads. Two settings differ: the report shuffles 500 images, here at "
            "most a tenth of a rank's, and its old pipeline prefetches as many "
            "batches as a batch has images, here prefetch_factor."
        ],
    )


def setting_words(setting: Setting) -> str:
    """Return a setting in words."""
    one, many = ("thread", "threads") if _has_threads(setting) else _PROCESSES
    what = one if setting.workers == 1 else many
    return (
        f"{setting.loader} with {setting.workers} {what} a rank and prefetch "
        f"{setting.prefetch}"
    )


def tuning_table(tuning: Tuning) -> Table:
    """Return every trial of the tuner, in order."""
    rows = []
    for number, trial in enumerate(tuning.trials, start=1):
        setting = trial.setting
        threads = _has_threads(setting)
        rows.append(
            [
                f"{number}",
                setting.loader,
                None if threads else f"{setting.workers}",
                f"{setting.workers}" if threads else None,
                f"{setting.prefetch}",
                wording.rate(_rate_of(trial)),
                _milliseconds(trial.cpu_ms_per_image),
                wording.percent(trial.data_wait_share),
                _what_became_of(trial, tuning.chosen),
                trial.why,
            ]
        )
    trials = tuning.trials
    return Table(
        f"What the tuner tried: {len(trials)} of {tuning.grid_size} settings",
        [
            *("trial", "loader", "processes", "threads", "prefetch", "images/s"),
            *("CPU ms/image", "data wait", "", "why it was tried"),
        ],
        rows,
        [
            *_disturbed_words(trials),
            f"Chosen: {setting_words(tuning.chosen)}, {tuning.why}.",
            f"One run each, images of the measured window over its time; "
            f"{_noise_words(tuning)} The chosen setting is measured again among the "
            "arms, because the best of several noisy numbers flatters.",
            *(
                f"Trial {number} failed: {trial.cause}"
                for number, trial in enumerate(trials, start=1)
                if trial.cause is not None
            ),
        ],
        {
            "images_per_second": [_rate_of(trial) for trial in trials],
            "cause": [trial.cause for trial in trials],
            "cpu_ms_per_image": [trial.cpu_ms_per_image for trial in trials],
            "data_wait_share": [trial.data_wait_share for trial in trials],
            "run_id": [trial.run_id for trial in trials],
        },
    )


def sizes_table(rows: Sequence[AtSize], device: str, notes: Sequence[str]) -> Table:
    """Return both pipelines by number of devices."""
    return Table(
        f"Throughput of both pipelines by {device}",
        [
            *(device, "old, images/s", "95 % interval", "new, images/s"),
            *("95 % interval", "new / old", "95 % interval", "verdict", "demand"),
        ],
        [
            [
                f"{row.world_size}",
                *_rate_cells(row.old),
                *_rate_cells(row.new),
                None if row.ratio is None else f"{row.ratio.estimate:.3f}",
                None
                if row.ratio is None
                else ratio_interval(row.ratio.ci_low, row.ratio.ci_high),
                None if row.ratio is None else row.ratio.verdict,
                wording.rate(row.demand),
            ]
            for row in rows
        ],
        [
            "Demand: images/s that the devices would compute if no data were waited "
            "for.",
            *notes,
        ],
        {
            "old_images_per_second": [row.old and row.old.median for row in rows],
            "new_images_per_second": [row.new and row.new.median for row in rows],
            "demand_images_per_second": [row.demand for row in rows],
        },
    )


def cores_table(
    needs: Mapping[str, tuple[float | None, float | None]],
    cores: float | None,
    *,
    trains: bool,
) -> Table:
    """Return how many cores every arm's loader needs to keep up with the devices."""
    rows, numbers = [], []
    for arm, (demand, cpu_ms) in needs.items():
        needed = None if demand is None or cpu_ms is None else demand * cpu_ms / 1e3
        numbers.append(needed)
        enough = None
        if needed is not None and cores is not None:
            # A lower bound that the cores reach does not show that they are enough.
            fits = "yes" if trains else None
            enough = fits if needed <= cores else "no"
        rows.append(
            [
                arm,
                wording.rate(demand),
                _milliseconds(cpu_ms),
                None if cpu_ms is None else wording.rate(1e3 / cpu_ms),
                None if needed is None else f"{needed:.1f}",
                enough,
            ]
        )
    return Table(
        "Cores that the input needs: demand / rate of a core",
        [
            *("arm", "demand, images/s", "CPU ms/image", "images/s of a core"),
            "cores needed",
            "enough" if cores is None else f"{cores:g} are enough",
        ],
        rows,
        [f"{_CPU_TIME} {_OF_A_TRAINING if trains else _OF_LOADING}"],
        {"cores_needed": numbers},
    )


_PROCESSES = ("process", "processes")
_CPU_TIME = (
    "CPU time of an image is that of every process of the ranks, including images "
    "that a loader reads and decodes without use."
)
_OF_A_TRAINING = (
    "It includes the training's own, such as starting kernels and waiting for the "
    "GPU: the input alone needs fewer cores. On the other hand, cores that share "
    "caches, or one physical core, do less each."
)
_OF_LOADING = (
    "It includes the normalisation that a GPU would do. Cores needed is a lower bound, "
    "which may show that cores are too few, not that they are enough: cores that share "
    "caches, or one physical core, do less each."
)


def _has_threads(setting: Setting) -> bool:
    """Return whether a loader's workers are threads of the rank."""
    return setting.loader in ("tfrecord", "dali")


def _rate_of(trial: Trial) -> float | None:
    """Return the rate of a trial; one that failed has none."""
    return None if trial.cause is not None else trial.images_per_second


def _what_became_of(trial: Trial, chosen: Setting) -> str:
    if trial.cause is not None:
        return "failed"
    return "chosen" if trial.setting == chosen else ""


def _disturbed_words(trials: Sequence[Trial]) -> list[str]:
    """Return that the choice is not reliable, and why; nothing where it is."""
    found = [
        (number, trial.disturbed)
        for number, trial in enumerate(trials, start=1)
        if trial.disturbed is not None
    ]
    if not found:
        return []
    number, evidence = found[0]
    return [
        f"Not reliable: {len(found)} of {len(trials)} trials were disturbed. Trial "
        f"{number}: {evidence} Tune again when nothing else uses this machine."
    ]


def _noise_words(tuning: Tuning) -> str:
    margin = f"differences up to {tuning.margin * 100:.1f} % are ignored."
    if tuning.noise is None:
        return f"noise not measured, {margin}"
    noise = f"{tuning.noise * 100:.1f} %"
    return f"the start, measured twice, differed from itself by {noise}, and {margin}"


def _rate_cells(rate: Summary | None) -> list[str | None]:
    if rate is None:
        return [None, None]
    interval = rate_interval(rate.ci_low, rate.ci_high) or wording.UNKNOWN
    return [wording.rate(rate.median), f"{interval} ({rate.n})"]


def _milliseconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


def ratio_words(found: Ratio, floor: NoiseFloor | None, baseline: str) -> str:
    """Return the ratio of two inputs with its verdict, or why it has none."""
    if floor is not None and floor.covers(found):
        return (
            f"differs from the old one ({baseline}) by no more than {baseline} twice "
            f"differed ({floor.difference})"
        )
    text = f"delivers {found.estimate:.2f} times"
    if found.ci_low is not None and found.ci_high is not None:
        ends = interval_in_words(found.ci_low, found.ci_high, "{:.2f}".format)
        text += f" (95 % interval {ends})"
    text += f" what the old one ({baseline}) does"
    if found.verdict == "not enough runs":
        return f"{text}, not enough runs for a verdict ({min(found.n_a, found.n_b)})"
    if found.verdict == "withheld":
        return f"{text}: {found.conclusion.rstrip('.')}"
    return f"{text}: {found.verdict}"
