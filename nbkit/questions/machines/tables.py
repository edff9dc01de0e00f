"""The tables of the machines notebook: text made of what was computed elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from nbkit import statistics
from nbkit.questions.machines.bundles import Machine
from nbkit.questions.machines.facts import BATCH_NORM
from nbkit.questions.machines.literature import (
    UNSTATED,
    MachinePair,
    Mismatch,
)
from nbkit.questions.machines.ratios import (
    MachineRun,
    MatchedArm,
)
from nbkit.references.rows import PublishedRow
from nbkit.reports.arm_tables import each_run, held_together, ratio_interval
from nbkit.reports.batch_norms import batch_norm_sentence
from nbkit.reports.parts import Note, Table
from nbkit.reproduction.differences import Difference, differences, shortened
from nbkit.review.row_checks import INPUT_BOUND_SHARE
from nbkit.statistics import MINIMUM_RUNS
from nbkit.statistics import quantities as wording

_LISTED_PARTS = ("configuration", "environment", "storage", "code")
"""Parts of a record whose differences are listed; the others stand side by side."""

_PATHS = ("data", "path", "mount_point", "source")
"""Names of places, which differ between any two machines and change no speed."""


_LINKS = (
    "Links: GPU pairs by type, named as in nvidia-smi topo -m (topology) and -p2p "
    "(peer access)."
)


def ratio_table(matched: Sequence[MatchedArm], a: Machine, b: Machine) -> Table:
    """Return every arm that both machines have; there must be one."""
    return Table(
        f"Measured, like for like: {a.name} / {b.name}",
        [
            "arm",
            *(f"{side.name}, images/s (95% CI, n)" for side in (a, b)),
            "ratio",
            "95% CI",
            "verdict",
        ],
        [_ratio_cells(arm) for arm in matched],
        [
            *_input_bound(matched, a, b),
            *_more_runs(matched),
            *held_together([arm.ratio for arm in matched]),
            *each_run(
                {
                    f"{arm.name} on {machine.name}": [r.images_per_second for r in runs]
                    for arm in matched
                    for machine, runs in ((a, arm.a), (b, arm.b))
                }
            ),
        ],
        {
            name: [getattr(arm.ratio, name) for arm in matched]
            for name in ("estimate", "ci_low", "ci_high", "n_a", "n_b")
        },
    )


def costs_table(matched: Sequence[MatchedArm], a: Machine, b: Machine) -> Table:
    """Return what an image costs on each machine, beside its speed."""
    rows = [
        _cost_cells(arm.name, machine.name, runs)
        for arm in matched
        for machine, runs in ((a, arm.a), (b, arm.b))
    ]
    return Table(
        "Cost per image: median over runs",
        ["arm", "machine", "data wait", "memory", "GPU energy", "CPU time"],
        rows,
        ["GPU energy and CPU time are per image, peak memory is per device."],
    )


def side_by_side_table(a: Machine, b: Machine) -> Table:
    """Return two machines: virtualization, GPUs, links, network, software."""
    rows = []
    for name in dict.fromkeys([*a.facts, *b.facts]):
        value, other = a.facts.get(name), b.facts.get(name)
        if value is not None or other is not None:
            mark = "" if value == other else "differs"
            rows.append([name, _cut(value), _cut(other), mark])
    has_links = a.facts.get("topology") or b.facts.get("topology")
    return Table(
        "The two machines",
        ["fact", a.name, b.name, "same?"],
        rows,
        [*([_LINKS] if has_links else []), *_batch_norms(a, b)],
    )


def bandwidth_table(a: Machine, b: Machine) -> Table | Note:
    """Return how fast each machine exchanges gradients, where both measured it."""
    rows: list[list[str | None]] = []
    for ranks in dict.fromkeys(run.ranks for run in a.bandwidths):
        of_a, of_b = (
            [
                run.bus_bandwidths_bytes_per_second
                for run in machine.bandwidths
                if run.ranks == ranks
            ]
            for machine in (a, b)
        )
        shared = set.intersection(*map(set, [*of_a, *of_b])) if of_b else set()
        if shared:
            size = max(shared)
            speeds = [[sizes[size] for sizes in runs] for runs in (of_a, of_b)]
            rows.append([ranks, wording.size(size), *_speed_cells(*speeds)])
    if not rows:
        return Note(["All-reduce: no common rank count."])
    return Table(
        "Measured all-reduce (bus bandwidth as nccl-tests defines it)",
        [
            "ranks",
            "message",
            *(f"{side.name}, GB/s (n)" for side in (a, b)),
            "ratio",
            "95% CI",
        ],
        rows,
        ["Largest common message size; median over its all-reduces."],
    )


def left_out_table(
    caption: str, left_out: Sequence[Mismatch], columns: Sequence[str]
) -> Table:
    """Return what was not compared, with the value on each side."""
    return Table(
        caption,
        ["what", "condition", *columns],
        [
            [mismatch.what, mismatch.condition, _cut(mismatch.a), _cut(mismatch.b)]
            for mismatch in left_out
        ],
    )


def differences_table(
    matched: Sequence[MatchedArm], a: Machine, b: Machine
) -> Table | Note:
    """Return what else is different: it is part of what the ratio compares."""
    rows = list(_differences(matched, a, b))
    if not matched:
        return Note([])
    if not rows:
        return Note(["No other recorded difference between the compared runs."])
    return Table(
        "Other differences between the compared runs",
        ["part", "name", a.name, b.name],
        [
            [difference.part, difference.name, _cut(difference.a), _cut(difference.b)]
            for difference in rows
        ],
    )


def published_table(
    pairs: Sequence[MachinePair], gpus: tuple[str, str], model: str
) -> Table:
    """Return published results of two GPUs; there must be a pair."""
    return Table(
        f"Published, {model}: {gpus[0]} / {gpus[1]}, images/s",
        [
            "source",
            "precision, layout",
            "GPUs",
            *gpus,
            "ratio",
            "batch, data",
            "statistic",
        ],
        [_published_cells(pair) for pair in pairs],
        [
            "One published number each, no CI. A condition that neither source states "
            "counts as equal.",
            *_layout_warning(pairs),
            *_published_input_bound(pairs),
        ],
        {
            "a_images_per_second": [pair.a.images_per_second for pair in pairs],
            "b_images_per_second": [pair.b.images_per_second for pair in pairs],
            "published_ratio": [pair.ratio for pair in pairs],
            "source": [pair.a.url or pair.a.source for pair in pairs],
        },
    )


def _batch_norms(a: Machine, b: Machine) -> list[str]:
    """Return who computes batch normalisation, where formats or machines differ."""
    found = {
        f"{precision} on {machine.name}": backend
        for machine in (a, b)
        for known in (machine.facts.get(BATCH_NORM) or "").split(" | ")
        for precision, _, backend in (known.partition(": "),)
        if backend
    }
    sentence = batch_norm_sentence(found)
    return [sentence] if sentence else []


def _ratio_cells(arm: MatchedArm) -> list[str | None]:
    ratio = arm.ratio
    return [
        arm.name,
        _rate([run.images_per_second for run in arm.a]),
        _rate([run.images_per_second for run in arm.b]),
        f"{ratio.estimate:.3f}",
        ratio_interval(ratio.ci_low, ratio.ci_high),
        ratio.verdict,
    ]


def _rate(rates: Sequence[float]) -> str:
    """Return the median rate, its interval and the number of runs."""
    summary = statistics.summarise(rates)
    median = wording.rate(summary.median)
    if summary.ci_low is None or summary.ci_high is None:
        return f"{median} (n={summary.n})"
    ends = statistics.interval_in_words(summary.ci_low, summary.ci_high, wording.rate)
    return f"{median} ({ends}, n={summary.n})"


def _cost_cells(arm: str, machine: str, runs: Sequence[MachineRun]) -> list[str | None]:
    joules = statistics.median_of(runs, lambda run: run.joules_per_image)
    cpu = statistics.median_of(runs, lambda run: run.cpu_ms_per_image)
    return [
        arm,
        machine,
        wording.percent(statistics.median_of(runs, lambda run: run.data_wait_share)),
        wording.size(statistics.median_of(runs, lambda run: run.peak_memory_bytes)),
        None if joules is None else f"{joules:.3g} J",
        None if cpu is None else f"{cpu:.2f} ms",
    ]


def _input_bound(
    matched: Sequence[MatchedArm], a: Machine, b: Machine
) -> Iterator[str]:
    for arm in matched:
        for machine, runs in ((a, arm.a), (b, arm.b)):
            share = statistics.median_of(runs, lambda run: run.data_wait_share) or 0
            if share >= INPUT_BOUND_SHARE:
                yield (
                    f"Input-bound: {arm.name} on {machine.name}, data wait "
                    f"{wording.percent(share)} of the time. Its images/s is the "
                    "input's, not the device's."
                )


def _more_runs(matched: Sequence[MatchedArm]) -> list[str]:
    fewest = min(min(arm.ratio.n_a, arm.ratio.n_b) for arm in matched)
    if fewest >= MINIMUM_RUNS:
        return []
    return [
        f"A verdict needs n={MINIMUM_RUNS} on both machines; the smallest n is "
        f"{fewest}. Repeat the study on both with repeats={MINIMUM_RUNS}."
    ]


def _speed_cells(of_a: Sequence[float], of_b: Sequence[float]) -> list[str | None]:
    found = statistics.ratio(of_a, of_b)
    medians = [
        f"{wording.gigabytes(median(speeds))} ({len(speeds)})"
        for speeds in (of_a, of_b)
    ]
    return [
        *medians,
        f"{found.estimate:.3f}",
        ratio_interval(found.ci_low, found.ci_high),
    ]


def _differences(
    matched: Sequence[MatchedArm], a: Machine, b: Machine
) -> Iterator[Difference]:
    """Yield what is different between the runs that are compared."""
    sides = []
    for machine, runs in (
        (a, [run for arm in matched for run in arm.a]),
        (b, [run for arm in matched for run in arm.b]),
    ):
        ids = {run.run_id for run in runs}
        sides.append([record for record in machine.records if record.run_id in ids])
    for difference in differences(*sides):
        if difference.part in _LISTED_PARTS and difference.name not in _PATHS:
            yield difference


def _published_cells(pair: MachinePair) -> list[str | None]:
    a = pair.a
    batch = a.batch_size_per_gpu
    return [
        _published_source(a),
        ", ".join(word for word in (a.precision, a.memory_format) if word) or UNSTATED,
        str(a.world_size),
        *map(_gpu_and_rate, (a, pair.b)),
        f"{pair.ratio:.2f}",
        f"{batch or UNSTATED}, {a.data or UNSTATED}",
        ", ".join(word for word in (a.statistic, a.window) if word) or UNSTATED,
    ]


def _published_source(row: PublishedRow) -> str:
    return ", ".join(word for word in (row.publisher, row.software) if word)


def _published_input_bound(pairs: Sequence[MachinePair]) -> list[str]:
    """Say which published numbers are those of an input, as far as it is known."""
    rows = [row for pair in pairs for row in (pair.a, pair.b)]
    waits = [
        f"{_published_source(row)} on {row.world_size} x {row.gpu_name} "
        f"{wording.percent(row.data_wait_share)}"
        for row in rows
        if (row.data_wait_share or 0) >= INPUT_BOUND_SHARE
    ]
    listed = "; ".join(dict.fromkeys(waits))
    return [f"Input-bound (data wait): {listed}."] if waits else []


def _gpu_and_rate(row: PublishedRow) -> str:
    return f"{row.gpu_name}: {wording.rate(row.images_per_second)}"


def _layout_warning(pairs: Sequence[MachinePair]) -> list[str]:
    """Say what a 16-bit result in channels_first is worth."""
    if not any(
        pair.a.precision in ("fp16", "bf16")
        and pair.a.memory_format == "channels_first"
        for pair in pairs
    ):
        return []
    return [
        "channels_first cancels much of the tensor-core gain of 16-bit precision: "
        "these rows compare the GPUs in that layout, not at their best."
    ]


def _cut(text: str | None) -> str | None:
    return None if text is None else shortened(text)
