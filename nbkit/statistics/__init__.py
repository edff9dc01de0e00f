"""Definitions of nbkit's numbers, from raw counts.

Two levels are kept apart. *Steps* of one process share their caches, clocks and
neighbours, so they are not independent: a run is one number, its images over the time
of its steps, without an interval. *Runs* are separate process starts: an interval and a
verdict are computed from that one number a run and from nothing else.

Standard library only, so that every process can afford the import.
"""

from nbkit.statistics.allreduce import (
    AllReduceTiming,
    allreduce_timing,
    bus_bandwidth_bytes_per_second,
)
from nbkit.statistics.comparison import (
    MINIMUM_RUNS,
    PRACTICAL_MARGIN,
    NoiseFloor,
    Ratio,
    Verdict,
    comparisons_at_once,
    holm,
    noise_floor,
    noise_floors_below,
    ratio,
)
from nbkit.statistics.latency import LatencyTiming, latency_timings, percentile
from nbkit.statistics.needed_runs import RunsNeeded, runs_needed
from nbkit.statistics.paired import (
    ACCURACY_MARGIN,
    PairedAccuracy,
    images_needed,
    paired_accuracy,
    share_interval,
)
from nbkit.statistics.steps import (
    accelerator_utilization,
    bursts_in_words,
    images_per_second,
    measured_steps,
    share,
    step_images_per_second,
)
from nbkit.statistics.student_t import student_t_quantile
from nbkit.statistics.summary import (
    Summary,
    all_known,
    has_groups,
    median_absolute_deviation,
    median_of,
    quartiles,
    summarise,
)
from nbkit.statistics.times import Times, olympic_mean, summarise_times
from nbkit.statistics.wording import (
    duration_in_words,
    interval_in_words,
    size_in_words,
)

__all__ = [
    "ACCURACY_MARGIN",
    "MINIMUM_RUNS",
    "PRACTICAL_MARGIN",
    "AllReduceTiming",
    "LatencyTiming",
    "NoiseFloor",
    "PairedAccuracy",
    "Ratio",
    "RunsNeeded",
    "Summary",
    "Times",
    "Verdict",
    "accelerator_utilization",
    "all_known",
    "allreduce_timing",
    "bursts_in_words",
    "bus_bandwidth_bytes_per_second",
    "comparisons_at_once",
    "duration_in_words",
    "has_groups",
    "holm",
    "images_needed",
    "images_per_second",
    "interval_in_words",
    "latency_timings",
    "measured_steps",
    "median_absolute_deviation",
    "median_of",
    "noise_floor",
    "noise_floors_below",
    "olympic_mean",
    "paired_accuracy",
    "percentile",
    "quartiles",
    "ratio",
    "runs_needed",
    "share",
    "share_interval",
    "size_in_words",
    "step_images_per_second",
    "student_t_quantile",
    "summarise",
    "summarise_times",
]
