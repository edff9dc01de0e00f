"""Checks for the bottlenecks of a run, from its files.

A cause is named from a tenth of the measured time on. Where the time of a part is
known, leaving it out wins at most ``1 / (1 - share)``; that is an upper end, since
what the part hid may become visible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median

from nbkit.plural import plural
from nbkit.review.causes import WORTH_A_WORD, Cause, Gain, at_most
from nbkit.review.cpu_checks import (
    SATURATED,
    busy_share,
    few_cpus,
    filled_share,
    no_cpu,
    other_processes,
)
from nbkit.review.facts import Facts, RankTimes

_FREE = 0.5
"""Share of the CPUs that it may use below which a run has too few loading processes."""

BottleneckCheck = Callable[[Facts], Iterator[Cause]]


def run_causes(facts: Facts) -> Iterator[Cause]:
    """Yield the bottlenecks that rank times and host CPUs show."""
    if facts.ranks:
        # What bounds the passes of an inference is not asked.
        for check in _OTHERS if facts.is_inference else _CHECKS:
            yield from check(facts)


def _input(facts: Facts) -> Iterator[Cause]:
    share = facts.lost_to_input
    if share < WORTH_A_WORD:
        return
    who, first = _everyone(facts), facts.ranks[0]
    waited = share * first.total_seconds / first.steps
    busy = busy_share(facts)
    excess = share - facts.least_data_wait
    slowest = ""
    if excess > 0:
        slowest = f", including {excess:.0%} of the time for the slowest rank's images"
    cpus = "" if busy is None else f" The host's CPUs were {busy * 100:.0f}% busy."
    idle = [gpu.idle_share for gpu in facts.load.gpus] if facts.load else []
    known = [part for part in idle if part is not None]
    # A GPU that is emulated does nothing anyway.
    if known and max(known) > 0 and not facts.is_load:
        cpus += f" A GPU was idle in {max(known) * 100:.0f}% of its readings."
    yield Cause.of(
        "input",
        share,
        f"{who} waited for images {share * 100:.0f}% of the measured time"
        f" ({waited * 1e3:,.3g} ms per step){slowest}.{cpus}",
        _input_fix(facts),
        at_most(share, "no data wait"),
    )


def _input_fix(facts: Facts) -> str:
    config = facts.config
    workers = (config.get("loader_config") or {}).get("num_workers")
    if config.get("data", "synthetic") == "synthetic":
        return "check for other load on this host: synthetic data need no loading."
    if config.get("loader") == "naive":
        return "use loader='torch', which prefetches in separate processes."
    filled = filled_share(facts)
    if filled is not None and filled >= SATURATED:
        other = ", or use loader='dali' on GPUs" * (config.get("loader") != "dali")
        return f"reduce decoding on CPUs: store images at training size{other}."
    if workers is not None and (filled is None or filled < _FREE):
        more = max(2 * workers, 2)
        return f"loader_config={{'num_workers': {more}}} instead of {workers}."
    if filled is None:
        return "measure storage throughput; CPU utilization is unknown."
    known = max(filled, _FREE) * 100
    busy = f"{'less than ' * (filled < _FREE)}{known:.0f}%"
    return f"measure storage throughput: the run's CPUs were {busy} busy."


def _slow_rank(facts: Facts) -> Iterator[Cause]:
    """Find a rank that the others wait for.

    Usually they wait for it in the exchange. A rank 0 whose input is late makes them
    wait earlier: they get its buffers at the beginning of the forward pass.
    """
    if not facts.all_ranks or len(facts.ranks) < 2:
        return
    slow, excess = _latest(facts, lambda rank: rank.own_share)
    hungry, wait_excess = _latest(
        facts, lambda rank: rank.share(rank.data_wait_seconds) or 0.0
    )
    if wait_excess > max(excess, WORTH_A_WORD):
        slow, excess = hungry, wait_excess
    if excess < WORTH_A_WORD:
        return
    reason, change = _why_slow(facts, slow, excess)
    num_others = len(facts.ranks) - 1
    others = f"the median of the other {num_others} ranks"
    others = "the other rank" if num_others == 1 else others
    yield Cause.of(
        "slow-rank",
        excess,
        f"Rank {_where(slow)} is slower than {others} by {excess * 100:.0f}% of the "
        f"step time{reason}.",
        change,
        at_most(excess, "no slow rank"),
    )


def _latest(
    facts: Facts, value: Callable[[RankTimes], float]
) -> tuple[RankTimes, float]:
    """Return the rank with the highest value, and by how much it is the highest."""
    highest = max(facts.ranks, key=value)
    others = [value(rank) for rank in facts.ranks if rank is not highest]
    return highest, value(highest) - median(others)


def _why_slow(facts: Facts, slow: RankTimes, excess: float) -> tuple[str, str]:
    """Return why a rank is slow and what to try, by what it has more of."""

    def more(part: str) -> float:
        mine = slow.share(getattr(slow, part))
        others = [
            share
            for rank in facts.ranks
            if rank is not slow
            and (share := rank.share(getattr(rank, part))) is not None
        ]
        return 0.0 if mine is None or not others else mine - median(others)

    if more("data_wait_seconds") > excess / 2:
        return (
            ": it waits for images",
            f"check which files rank {_where(slow)} reads, and assign its loader "
            "workers as many CPUs as those of other ranks.",
        )
    if (queued := more("cpu_queue_seconds")) > excess / 3:
        cpus = _cpus_in_words(slow)
        return (
            f": it was runnable but off-CPU {queued * 100:.0f}% more of the time, so "
            f"another process runs on {cpus}",
            f"stop other processes on {cpus}, or move them to other CPUs.",
        )
    if clocks := _lower_clock(facts, slow):
        return (
            ": its GPU clock was lower than that of the others by "
            f"{clocks * 100:.0f}% of the maximum",
            "check why the GPU's clock is lower (run nvidia-smi -q -d "
            "PERFORMANCE,TEMPERATURE,POWER), or exclude the GPU (devices=...).",
        )
    used = slow.share(slow.cpu_seconds)
    spent = "" if used is None else f", using {used:.2f} CPUs"
    return (
        f": it computes longer{spent}",
        f"run rank {_where(slow)} on another device or other CPUs; if it is still "
        "slow, it has more work than the others.",
    )


def _lower_clock(facts: Facts, slow: RankTimes) -> float | None:
    """Return how much more of its clock a rank's GPU has lost; None if it has not."""
    gpus = facts.load.gpus if facts.load else ()
    own = [
        device.get("uuid")
        for device in facts.devices
        if device.get("rank") == slow.rank
    ]
    mine = next((gpu.clock_lost for gpu in gpus if gpu.uuid in own), None)
    others = [
        gpu.clock_lost
        for gpu in gpus
        if gpu.uuid not in own and gpu.clock_lost is not None
    ]
    if mine is None or not others or mine - median(others) < WORTH_A_WORD / 2:
        return None
    return mine - median(others)


def _communication(facts: Facts) -> Iterator[Cause]:
    share = facts.least_communication
    # Without gradients, ranks wait for images of each other: that is `_input`.
    if share < WORTH_A_WORD or facts.is_load:
        return
    unsure = (
        ""
        if facts.all_ranks
        else " Until the run ends, rank 0 cannot distinguish slow all-reduce from a "
        "slow rank."
    )
    yield Cause.of(
        "communication",
        share,
        f"{_everyone(facts)} waited for gradient all-reduce {share * 100:.0f}% of the "
        f"measured time (not overlapped with computation).{unsure}",
        "double batch_size_per_gpu, or (without CUDA graphs) double "
        "gradient_accumulation_steps.",
        Gain(
            high=1 / (1 - min(share, 0.99)),
            low=1 / (1 - share / 2),
            how="half as many all-reduces per image",
        ),
    )


def _batch(facts: Facts) -> Iterator[Cause]:
    update = facts.update_share or 0.0
    idle = _idle_for_no_reason(facts)
    if update < WORTH_A_WORD and idle < 2 * WORTH_A_WORD:
        return
    batch = facts.worker.get("batch_size_per_gpu")
    size = "" if batch is None else f" with {plural(batch, 'image')} per rank"
    evidence = []
    if update >= WORTH_A_WORD:
        evidence.append(
            f"The optimizer step is {update * 100:.0f}% of step time{size} (median)."
        )
    if idle >= 2 * WORTH_A_WORD:
        evidence.append(
            f"In {idle * 100:.0f}% of the time{size}, no kernel ran, although the "
            f"ranks waited less than {WORTH_A_WORD * 100:.0f}% of the time for input "
            "and for all-reduce: the host launches kernels too slowly."
        )
    share = max(update, idle)
    fused = facts.config.get("compile") or facts.config.get("cuda_graphs")
    yield Cause.of(
        "batch",
        share,
        " ".join(evidence),
        "double batch_size_per_gpu and scale the learning rate"
        + (", or use compile=True." if facts.on_gpus and not fused else "."),
        Gain(
            high=2.0,
            low=1 / (1 - share / 2),
            how="fixed cost per image halves",
        ),
    )


def _idle_for_no_reason(facts: Facts) -> float:
    """Return in which part of the time GPUs ran no kernel and nothing was waited for.

    A utilization is a share of 1/6 to 1 s in which any kernel ran: pauses of
    microseconds show in it, a GPU that is filled badly does not. A GPU that is
    emulated sleeps, and that tells nothing.
    """
    busy = [gpu.busy_share for gpu in facts.load.gpus] if facts.load else []
    known = [share for share in busy if share is not None]
    if not facts.on_gpus or not known or facts.is_load:
        return 0.0
    waits = facts.least_data_wait, facts.least_communication
    return 0.0 if max(waits) >= WORTH_A_WORD else max(0.0, 1 - max(known))


def _everyone(facts: Facts) -> str:
    if len(facts.ranks) > 1:
        return "Every rank"
    return "Rank 0" if facts.world_size > 1 else "The run"


def _where(rank: RankTimes) -> str:
    return f"{rank.rank} on {rank.node}" if rank.node else f"{rank.rank}"


def _cpus_in_words(rank: RankTimes) -> str:
    numbers = list(rank.cpus or ())
    where = f" of {rank.node}" if rank.node else ""
    if not 0 < len(numbers) <= 8:
        return f"its CPUs{where}"
    return f"CPU{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}{where}"


_OTHERS: tuple[BottleneckCheck, ...] = (other_processes, no_cpu)
_CHECKS: tuple[BottleneckCheck, ...] = (
    # Before the input, which it explains: of equals, the first stays the first.
    few_cpus,
    _input,
    _slow_rank,
    _communication,
    _batch,
    *_OTHERS,
)
