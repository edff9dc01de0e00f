"""Tables of the machines notebook."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple

from nbkit import statistics
from nbkit.questions.machines.bundles import Machine
from nbkit.questions.machines.facts import BATCH_NORM
from nbkit.questions.machines.literature import UNSTATED, MachinePair
from nbkit.questions.machines.ratios import MachineRun, MatchedArm, Mismatch
from nbkit.references.rows import PublishedRow
from nbkit.reports.arm_tables import each_run, held_together
from nbkit.reports.batch_norms import batch_norm_sentence
from nbkit.reports.columns import Column, interval, number, ratio, table
from nbkit.reports.parts import Note, Table
from nbkit.reproduction.differences import differences, shortened
from nbkit.statistics import MINIMUM_RUNS, Ratio
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
    return table(
        f"Measured under equal conditions: {a.name} / {b.name}",
        [
            Column("arm", "name"),
            Column(f"{a.name}, images/s (95% CI, n)", "a", _rate),
            Column(f"{b.name}, images/s (95% CI, n)", "b", _rate),
            *ratio("ratio", "ratio", "estimate"),
            *(number(None, f"ratio.{n}") for n in ("ci_low", "ci_high", "n_a", "n_b")),
        ],
        matched,
        [
            *_more_runs(matched),
            *held_together([arm.ratio for arm in matched]),
            *each_run(
                {
                    f"{arm} on {machine.name}": [r.images_per_second for r in runs]
                    for arm, machine, runs in _sides(matched, a, b)
                }
            ),
        ],
    )


def _sides(
    matched: Sequence[MatchedArm], a: Machine, b: Machine
) -> list[tuple[str, Machine, Sequence[MachineRun]]]:
    """Return every arm's name with each machine and its runs."""
    return [
        (arm.name, machine, runs)
        for arm in matched
        for machine, runs in ((a, arm.a), (b, arm.b))
    ]


def costs_table(matched: Sequence[MatchedArm], a: Machine, b: Machine) -> Table:
    """Return what an image costs on each machine, beside its speed."""

    def cost(title: str, name: str, show: Callable[[Any], str | None]) -> Column:
        def middle(side: tuple[str, Machine, Sequence[MachineRun]]) -> float | None:
            return statistics.median_of(side[2], lambda run: getattr(run, name))

        return Column(title, middle, show)

    return table(
        "Cost per image: median over runs",
        [
            Column("arm", lambda side: side[0]),
            Column("machine", lambda side: side[1].name),
            cost("data wait", "data_wait_share", wording.percent),
            cost("memory", "peak_memory_bytes", wording.size),
            cost("GPU energy", "joules_per_image", "{:.3g} J".format),
            cost("CPU time", "cpu_ms_per_image", "{:.2f} ms".format),
        ],
        _sides(matched, a, b),
        ["GPU energy and CPU time: per image; peak memory: per device."],
    )


def side_by_side_table(a: Machine, b: Machine) -> Table:
    """Return two machines: virtualization, GPUs, links, network, software."""
    has_links = a.facts["topology"] or b.facts["topology"]
    return table(
        "The two machines",
        [
            Column("fact", lambda row: row[0]),
            Column(a.name, lambda row: row[1], shortened),
            Column(b.name, lambda row: row[2], shortened),
            Column("same?", lambda row: "" if row[1] == row[2] else "differs"),
        ],
        [
            (name, value, b.facts[name])
            for name, value in a.facts.items()
            if value is not None or b.facts[name] is not None
        ],
        [*([_LINKS] if has_links else []), *_batch_norms(a, b)],
    )


def bandwidth_table(a: Machine, b: Machine) -> Table | Note:
    """Return how fast each machine exchanges gradients, where both measured it."""
    rows = [
        row
        for ranks in dict.fromkeys(run.ranks for run in a.bandwidths)
        if (row := _speeds(ranks, a, b))
    ]
    if not rows:
        return Note(["All-reduce: no common measurement."])
    show = wording.gigabytes
    return table(
        "Measured all-reduce (bus bandwidth as nccl-tests defines it)",
        [
            Column("ranks", "ranks"),
            Column("message", "message_bytes", wording.size),
            *(
                Column(
                    f"{machine.name}, GB/s (n)",
                    name,
                    lambda speeds: f"{show(median(speeds))} ({len(speeds)})",
                )
                for machine, name in ((a, "a"), (b, "b"))
            ),
            *ratio("ratio", "ratio")[:2],
        ],
        rows,
        ["Largest common message size; median over runs."],
    )


class _Speeds(NamedTuple):
    ranks: str
    message_bytes: int
    a: list[float]
    b: list[float]
    ratio: Ratio


def _speeds(ranks: str, a: Machine, b: Machine) -> _Speeds | None:
    """Return both machines' bandwidths at their largest common message."""
    of_a, of_b = (
        [
            run.bus_bandwidths_bytes_per_second
            for run in machine.bandwidths
            if run.ranks == ranks
        ]
        for machine in (a, b)
    )
    shared = set.intersection(*map(set, [*of_a, *of_b])) if of_b else set()
    if not shared:
        return None
    size = max(shared)
    speeds_a, speeds_b = [each[size] for each in of_a], [each[size] for each in of_b]
    compared = statistics.ratio(speeds_a, speeds_b)
    return _Speeds(ranks, size, speeds_a, speeds_b, compared)


def left_out_table(left_out: Sequence[Mismatch], a: Machine, b: Machine) -> Table:
    """Return what was not compared, with the value on each side."""
    return table(
        "Measured, not compared: conditions differ",
        [
            Column("what", "what"),
            Column("condition", "condition"),
            Column(a.name, "a", shortened),
            Column(b.name, "b", shortened),
        ],
        left_out,
    )


def differences_table(
    matched: Sequence[MatchedArm], a: Machine, b: Machine
) -> Table | Note:
    """Return what else is different: it is part of what the ratio compares."""
    if not matched:
        return Note([])
    sides = []
    for machine, runs in (
        (a, [run for arm in matched for run in arm.a]),
        (b, [run for arm in matched for run in arm.b]),
    ):
        ids = {run.run_id for run in runs}
        sides.append([record for record in machine.records if record.run_id in ids])
    rows = [
        difference
        for difference in differences(*sides)
        if difference.part in _LISTED_PARTS and difference.name not in _PATHS
    ]
    if not rows:
        return Note(["No other recorded difference between the compared runs."])
    return table(
        "Other differences between the compared runs",
        [
            Column("part", "part"),
            Column("name", "name"),
            Column(a.name, "a", shortened),
            Column(b.name, "b", shortened),
        ],
        rows,
    )


def published_table(
    pairs: Sequence[MachinePair], gpus: tuple[str, str], model: str
) -> Table:
    """Return published results of two GPUs; there must be a pair."""

    def words(*names: str) -> Callable[[MachinePair], str]:
        return lambda pair: (
            ", ".join(word for name in names if (word := getattr(pair.a, name)))
            or UNSTATED
        )

    def stated(pair: MachinePair) -> str:
        return f"{pair.a.batch_size_per_gpu or UNSTATED}, {pair.a.data or UNSTATED}"

    return table(
        f"Published, {model}: {gpus[0]} / {gpus[1]}, images/s",
        [
            Column("source", words("publisher", "software")),
            Column("precision, layout", words("precision", "memory_format")),
            Column("GPUs", "a.world_size"),
            Column(gpus[0], "a", _gpu_and_rate),
            Column(gpus[1], "b", _gpu_and_rate),
            Column("ratio", "ratio", "{:.2f}".format),
            Column("batch, data", stated),
            Column("statistic", words("statistic", "window")),
            Column(None, "a.images_per_second", csv="a_images_per_second"),
            Column(None, "b.images_per_second", csv="b_images_per_second"),
            Column(None, "ratio", csv="published_ratio"),
            Column(None, lambda pair: pair.a.url or pair.a.source, csv="source"),
        ],
        pairs,
        [
            "Single published values without a CI. A condition that neither source "
            "states is treated as equal.",
        ],
    )


def _batch_norms(a: Machine, b: Machine) -> list[str]:
    """Return who computes batch normalisation, where formats or machines differ."""
    backends = {
        f"{precision} on {machine.name}": backend
        for machine in (a, b)
        for known in (machine.facts.get(BATCH_NORM) or "").split(" | ")
        for precision, _, backend in (known.partition(": "),)
        if backend
    }
    sentence = batch_norm_sentence(backends)
    return [sentence] if sentence else []


def _rate(runs: Sequence[MachineRun]) -> str:
    """Return the median rate, its interval and the number of runs."""
    summary = statistics.summarise([run.images_per_second for run in runs])
    ends = interval(wording.rate)(summary)
    n = f"{ends}, n={summary.n}" if ends else f"n={summary.n}"
    return f"{wording.rate(summary.median)} ({n})"


def _more_runs(matched: Sequence[MatchedArm]) -> list[str]:
    fewest = min(min(arm.ratio.n_a, arm.ratio.n_b) for arm in matched)
    if fewest >= MINIMUM_RUNS:
        return []
    return [
        f"A verdict requires n={MINIMUM_RUNS} on both machines; the smallest n is "
        f"{fewest}. Repeat the study with repeats={MINIMUM_RUNS}."
    ]


def _gpu_and_rate(row: PublishedRow) -> str:
    return f"{row.gpu_name}: {wording.rate(row.images_per_second)}"
