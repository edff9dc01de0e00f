"""How each cause is found: arithmetic on what a run's files say, nothing else.

A cause is named from a tenth of the measured time on. Where the time of a part is
known, leaving it out wins at most ``1 / (1 - share)``; that is an upper end, since
what was hidden behind the part may come to light.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median

from nbkit.analysis.audit_rows import INPUT_BOUND_SHARE
from nbkit.analysis.diagnose_causes import Cause, Gain
from nbkit.analysis.diagnose_facts import Facts, RankTimes

__all__ = ["WORTH_A_WORD", "at_most", "run_causes"]

WORTH_A_WORD = INPUT_BOUND_SHARE
"""Below a tenth of the time, winning all of it back makes a run 1.11 times as fast:
little more than what two runs of one configuration differ by on a busy machine."""

_SATURATED = 0.9
"""CPUs that are busier than that leave no room: a sampled share never reaches 1."""

_KEPT_WAITING = 0.5
"""Share of the host's CPUs below which loading processes are what is too few."""

Check = Callable[[Facts], Iterator[Cause]]


def run_causes(facts: Facts) -> Iterator[Cause]:
    """Yield what the times of the ranks and the host's CPUs say."""
    if facts.ranks:
        for check in _CHECKS:
            yield from check(facts)


def at_most(share: float, how: str) -> Gain:
    """Return what leaving out a part of the time brings, at most."""
    return Gain(high=1 / (1 - min(share, 0.99)), low=None, how=how)


def _input(facts: Facts) -> Iterator[Cause]:
    config = facts.config
    if config.get("task") == "load" and not config.get("emulated_step_seconds"):
        return  # Waiting for input is all that such a run is for.
    share = facts.least_data_wait
    if share < WORTH_A_WORD:
        return
    who = _everyone(facts)
    waited = share * facts.ranks[0].total_seconds / facts.steps
    busy = _busy_share(facts)
    cpus = "" if busy is None else f" The host's CPUs were {busy:.0%} busy."
    idle = [gpu.idle_share for gpu in facts.load.gpus] if facts.load else []
    known = [part for part in idle if part is not None]
    if known and max(known) > 0:
        cpus += f" A GPU read 0 % utilization in {max(known):.0%} of the samples."
    yield Cause(
        "input",
        share,
        f"{who} waited for images in {share:.0%} of the measured time, "
        f"{waited * 1e3:,.3g} ms a step.{cpus}",
        _mend_input(facts, busy),
        at_most(share, "the waiting left out"),
    )


def _mend_input(facts: Facts, busy: float | None) -> str:
    config = facts.config
    workers = (config.get("loader_config") or {}).get("num_workers")
    if config.get("data", "synthetic") == "synthetic":
        return "look at what else this host computes; synthetic images cost nothing."
    if config.get("loader") == "naive":
        return "loader='torch', which decodes ahead, in processes of its own."
    if busy is not None and busy >= _SATURATED:
        return (
            "let the CPUs decode less: images stored in the size they are trained at "
            "(nbkit.datasets.pack), or loader='dali' on GPUs."
        )
    if workers is not None and (busy is None or busy < _KEPT_WAITING):
        more = max(2 * workers, 2)
        return f"loader_config={{'num_workers': {more}}} in the place of {workers}."
    return "measure the storage: CPUs were free while images were waited for."


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
    yield Cause(
        "slow-rank",
        excess,
        f"Rank {slow.rank} needs {excess:.0%} of the step longer than the median of "
        f"the other {len(facts.ranks) - 1}, which wait for it{reason}.",
        change,
        at_most(excess, "that rank as fast as the others"),
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
            ": it waits for its images",
            f"look at what rank {slow.rank} reads, and give its loading processes as "
            "many CPUs as those of the others.",
        )
    if (queued := more("cpu_queue_seconds")) > excess / 3:
        cpus = _cpus_in_words(slow.cpus)
        return (
            f": it was ready and had no CPU in {queued:.0%} more of the time, so that "
            f"something else runs on {cpus}",
            f"end what else runs on {cpus}, or move it to other CPUs.",
        )
    if clocks := _lower_clock(facts, slow):
        return (
            f": its GPU ran {clocks:.0%} of the highest clock below the others'",
            "look at that GPU's temperature and power limit (nvidia-smi -q -d "
            "PERFORMANCE), or leave it out (devices=...).",
        )
    used = slow.share(slow.cpu_seconds)
    spent = "" if used is None else f", with {used:.2f} CPUs busy"
    return (
        f": it computes longer{spent}",
        f"run rank {slow.rank} on another device or other CPUs: if the slowness stays "
        "with the rank, its work is what is larger.",
    )


def _lower_clock(facts: Facts, slow: RankTimes) -> float | None:
    """Return how much more of its clock a rank's GPU has lost; None if it has not."""
    gpus = facts.load.gpus if facts.load else ()
    own = [one.get("uuid") for one in facts.devices if one.get("rank") == slow.rank]
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
    if share < WORTH_A_WORD:
        return
    change = "twice the batch_size_per_gpu, or gradient_accumulation_steps=2"
    unsure = (
        ""
        if facts.all_ranks
        else " Rank 0 cannot tell that from a slower rank; the ranks' own times are "
        "known at the end of a run."
    )
    yield Cause(
        "communication",
        share,
        f"{_everyone(facts)} waited for the exchange of gradients in {share:.0%} of "
        f"the measured time, with nothing left to compute.{unsure}",
        f"{change}: half as many exchanges for the same images.",
        Gain(
            high=1 / (1 - share / 2),
            low=None,
            how="half of the waiting left out",
        ),
    )


def _batch(facts: Facts) -> Iterator[Cause]:
    shares = [rank.share(rank.update_seconds) for rank in facts.ranks]
    known = [share for share in shares if share is not None]
    update = min(known) if known else 0.0
    idle = _idle_for_no_reason(facts)
    if update < WORTH_A_WORD and idle < 2 * WORTH_A_WORD:
        return
    batch = facts.worker.get("batch_size_per_gpu")
    size = "the batch" if batch is None else f"{batch} images a rank"
    evidence = []
    if update >= WORTH_A_WORD:
        evidence.append(
            f"With {size}, updating the weights is {update:.0%} of the measured time."
        )
    if idle >= 2 * WORTH_A_WORD:
        evidence.append(
            f"No kernel ran in {idle:.0%} of the time with {size}, although neither "
            "input nor exchange was waited for: the host issues work too slowly."
        )
    share = max(update, idle)
    yield Cause(
        "batch",
        share,
        " ".join(evidence),
        "twice the batch_size_per_gpu (with the learning rate for it)"
        + (", or compile=True." if facts.on_gpus else "."),
        Gain(
            high=2.0,
            low=1 / (1 - share / 2),
            how="that time halved for an image, at the most all of the step",
        ),
    )


def _idle_for_no_reason(facts: Facts) -> float:
    """Return in which part of the time GPUs ran no kernel and nothing was waited for.

    A utilization is a share of 1/6 to 1 s in which any kernel ran: pauses of
    microseconds show in it, a GPU that is filled badly does not.
    """
    busy = [gpu.busy_share for gpu in facts.load.gpus] if facts.load else []
    known = [share for share in busy if share is not None]
    if not facts.on_gpus or not known:
        return 0.0
    waits = facts.least_data_wait, facts.least_communication
    return 0.0 if max(waits) >= WORTH_A_WORD else max(0.0, 1 - max(known))


def _few_cpus(facts: Facts) -> Iterator[Cause]:
    """Find a run that fills all CPUs that it may use, where the host has more."""
    allowed, total = _allowed_cpus(facts), facts.num_cpus
    demands = [
        rank.share((rank.cpu_seconds or 0.0) + (rank.cpu_queue_seconds or 0.0))
        for rank in facts.ranks
        if rank.cpu_seconds is not None
    ]
    if not allowed or not total or len(demands) < len(facts.ranks):
        return
    demand = sum(share for share in demands if share is not None)
    share = 1 - allowed / total
    waits = facts.least_data_wait
    if demand < _SATURATED * allowed or share < WORTH_A_WORD:
        return
    if facts.on_gpus and waits < WORTH_A_WORD:
        return  # Spinning beside a busy GPU costs nothing.
    gain = (
        at_most(waits, "the waiting for input left out")
        if facts.on_gpus
        else Gain(total / allowed, None, "all CPUs of the host, used as well")
    )
    plural = "s" if len(facts.ranks) > 1 else ""
    yield Cause(
        "few-cpus",
        waits if facts.on_gpus else None,
        f"{len(facts.ranks)} rank{plural} may use {allowed:g} of {total} CPUs, and "
        f"would fill {max(demand, allowed):.1f}.",
        "launch it where more CPUs are allowed (taskset, Slurm's --cpus-per-task, a "
        "container's limit, the run's own cpus=).",
        gain,
    )


def _allowed_cpus(facts: Facts) -> float | None:
    """Return how many CPUs all ranks together may use; None if nobody told."""
    own = [rank.cpus for rank in facts.ranks if rank.cpus]
    if not own or len(own) < len(facts.ranks):
        return None
    allowed = float(len(set().union(*own)))
    granted = (facts.record.get("machine") or {}).get("usable_cpus")
    return min(allowed, granted) if granted else allowed


def _other_processes(facts: Facts) -> Iterator[Cause]:
    """Find others on the host's CPUs that take time from this run."""
    busy = facts.load.busy_cpus if facts.load else None
    own, total = facts.run_cpus, facts.num_cpus
    if busy is None or not own or not total:
        return
    others = max(0.0, busy - own)
    # What others have elsewhere, it could not use anyway.
    within_reach = min(others + own, _allowed_cpus(facts) or total)
    share = 1 - own / within_reach
    queued = facts.queue_share
    # Without a word from the scheduler, only a full host shows that they compete.
    compete = busy >= _SATURATED * total if queued is None else queued >= WORTH_A_WORD
    waits = facts.least_data_wait
    matters = not facts.on_gpus or waits >= WORTH_A_WORD
    if not (compete and matters) or share < WORTH_A_WORD:
        return
    ready = (
        ""
        if queued is None
        else f"; a rank was ready and had none in {queued:.0%} of the time"
    )
    yield Cause(
        "other-processes",
        waits if facts.on_gpus else None,
        f"Others kept {others:.1f} of {total} CPUs busy, the run {own:.1f}{ready}.",
        "run it again when nobody else computes on this host.",
        at_most(waits, "the waiting for input left out")
        if facts.on_gpus
        else Gain(within_reach / own, None, "the others' CPU time in addition"),
    )


def _busy_share(facts: Facts) -> float | None:
    """Return how busy the host's CPUs were, of those that the run may use."""
    if facts.load is None or facts.load.busy_cpus is None or not facts.num_cpus:
        return None
    return min(1.0, facts.load.busy_cpus / facts.num_cpus)


def _everyone(facts: Facts) -> str:
    if len(facts.ranks) > 1:
        return "Every rank"
    return "Rank 0" if facts.world_size > 1 else "It"


def _cpus_in_words(cpus: object) -> str:
    numbers = list(cpus) if isinstance(cpus, list | tuple) else []
    if not 0 < len(numbers) <= 8:
        return "its CPUs"
    plural = "s" if len(numbers) > 1 else ""
    return f"CPU{plural} {', '.join(map(str, numbers))}"


_CHECKS: tuple[Check, ...] = (
    _input,
    _slow_rank,
    _communication,
    _batch,
    _few_cpus,
    _other_processes,
)
