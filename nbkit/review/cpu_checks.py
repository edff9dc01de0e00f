"""Bottlenecks of CPUs: too few, or other processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from nbkit.plural import plural
from nbkit.review.causes import WORTH_A_WORD, Cause, Gain, at_most
from nbkit.review.facts import Facts, RankTimes

NO_CPU_SHARE = 0.25
"""Less of that a run's own threads may do to each other."""

QUEUE_SECONDS = 0.1
"""Some time slices of others: in a run of a moment, one is a tenth of it."""

SATURATED = 0.9
"""CPUs that are busier than that leave no room: a sampled share never reaches 1."""


def few_cpus(facts: Facts) -> Iterator[Cause]:
    """Yield a cause if the run fills all its CPUs although the host has more.

    The limit is set by a Slurm allocation, a container quota or the run's ``cpus=``. It
    is a problem only if ranks wait for images or for a CPU.
    """
    allowed, demand, total = _allowed(facts), _demand(facts), facts.num_cpus
    if not allowed or demand is None or not total:
        return
    if demand < SATURATED * allowed or 1 - allowed / total < WORTH_A_WORD:
        return
    count, waits = len(facts.ranks), facts.lost_to_input
    evidence = (
        f"{plural(count, 'rank')} may use {allowed:g} of {total} CPUs; needed: at "
        f"least {max(demand, allowed):.1f}."
    )
    change = "allow more CPUs (cpus=, taskset, --cpus-per-task, container limit)."
    if waits >= WORTH_A_WORD:
        gain = at_most(waits, "no data wait")
        yield Cause.of("few-cpus", waits, evidence, change, gain)
    elif facts.on_gpus:
        return  # Spinning beside a busy GPU costs nothing.
    elif 1 - allowed / count >= WORTH_A_WORD:
        gain = Gain(min(count, total) / allowed, None, "one CPU per rank")
        yield Cause.of("few-cpus", None, evidence, change, gain)
    else:
        yield Cause.of("cpu-allocation", None, evidence, change, None)


def other_processes(facts: Facts, jobs: Sequence[Facts] = ()) -> Iterator[Cause]:
    """Yield a cause if other processes on the host's CPUs slow down this run.

    For concurrent jobs, the facts describe all jobs as one run.
    """
    busy, own, total = facts.busy_cpus, facts.run_cpus, facts.num_cpus
    if busy is None or not own or not total:
        return
    other_cpus = max(0.0, busy - own)
    # CPUs that other processes use elsewhere, it could not use anyway.
    within_reach = min(other_cpus + own, _allowed(facts) or total)
    share = 1 - own / within_reach
    queued = facts.queue_share
    # Without a word from the scheduler, only a full host shows that they compete.
    is_full = busy >= SATURATED * total
    compete = is_full if queued is None else queued >= WORTH_A_WORD
    if facts.load is None or facts.load.busy_cpus is None:
        # In a moment, its own processes take turns, too.
        compete = compete and is_full and _has_waited(facts.ranks)
    waits = max(job.least_data_wait for job in jobs or (facts,))
    lost = _lost_to_cpus(facts, waits)
    # They may have been on CPUs that this run may not use.
    is_near = other_cpus - _elsewhere(facts) >= WORTH_A_WORD * within_reach
    lost = lost if waits >= WORTH_A_WORD or is_near else None
    matters = not facts.on_gpus or lost is not None
    # The ranks of jobs also wait for CPUs that the other jobs have.
    certain = compete and matters and (is_near or not jobs)
    if not certain or share < WORTH_A_WORD:
        return
    waiting = ""
    if queued is not None:
        waiting = f"; a rank was runnable but off-CPU {queued * 100:.0f}% of the time"
    own_name = f"these {len(jobs)} jobs" if len(jobs) > 1 else "this run"
    sisters, change = "", "rerun when no other process uses this host's CPUs."
    if (facts.record.get("tags") or {}).get("concurrent"):
        sisters = " This includes the concurrent jobs of the same round."
        change = "assign separate CPUs to each concurrent job (cpus=...)."
    yield Cause.of(
        "other-cpu-processes",
        lost if facts.on_gpus else None,
        f"Other processes used {other_cpus:.1f} of {plural(total, 'CPU')}, {own_name} "
        f"{own:.1f}"
        f"{waiting}.{sisters}",
        change,
        at_most(lost or 0.0, "no waiting")
        if facts.on_gpus
        else Gain(
            _at_most(within_reach / own, queued, waits),
            None,
            "if other processes stop",
        ),
    )


def others_beside(jobs: Sequence[Facts]) -> Iterator[Cause]:
    """Yield a cause if other processes slow down jobs that were started together.

    The jobs count as one run, because their effect on each other is measured.
    """
    known = [(job.busy_cpus, job) for job in jobs if job.busy_cpus is not None]
    if len(known) < len(jobs) or not all(job.all_ranks and job.ranks for job in jobs):
        return
    # A job that measures before or after the others sees what they prepare or save.
    _, first = min(known, key=lambda pair: pair[0])
    siblings = [job for job in jobs if job is not first]
    ranks = [rank for job in (first, *siblings) for rank in job.ranks]
    if any(rank.cpu_seconds is None for rank in ranks):
        return
    combined = replace(first, ranks=ranks, record={**first.record, "tags": {}})
    yield from other_processes(combined, jobs)


def no_cpu(facts: Facts) -> Iterator[Cause]:
    """Yield a cause if a rank was off-CPU without a sample of the other process."""
    if (facts.config.get("nnodes") or 1) > 1:
        yield from _no_cpu_on_a_node(facts)
        return
    if facts.busy_cpus is not None:
        return  # `other_processes` knows more
    loads = facts.config.get("data", "synthetic") != "synthetic"
    if loads and not facts.is_inference:
        return  # its own loading processes take turns with it
    own, allowed, queued = facts.run_cpus, _allowed(facts), facts.queue_share
    waits = facts.least_data_wait
    if not own or not allowed or queued is None or queued < NO_CPU_SHARE:
        return
    if allowed != _reach(facts):
        return  # a quota, after which no process has a CPU
    if not _has_waited(facts.ranks):
        return
    if own >= SATURATED * allowed:
        return
    lost = _lost_to_cpus(facts, waits)
    yield Cause.of(
        "no-cpu",
        lost if facts.on_gpus else None,
        f"A rank was runnable but off-CPU {queued * 100:.0f}% of the time; the run "
        f"used {own:.1f} of {allowed:g} CPU{'s' * (allowed != 1)}.",
        "rerun when no other process uses this host's CPUs.",
        at_most(lost or 0.0, "no waiting")
        if facts.on_gpus
        else Gain(_at_most(allowed / own, queued, waits), None, "no waiting"),
    )


def _no_cpu_on_a_node(facts: Facts) -> Iterator[Cause]:
    """Find the rank that waited longest for a CPU which others of its node had."""
    nodes: list[tuple[float, str, float, float]] = []
    for name in sorted({rank.node for rank in facts.ranks if rank.node}):
        ranks = [rank for rank in facts.ranks if rank.node == name]
        used = [rank.share(rank.cpu_seconds) for rank in ranks]
        own = sum(share or 0.0 for share in used)
        busy = max(rank.host_busy_cpus or 0.0 for rank in ranks)
        queued = max(rank.share(rank.cpu_queue_seconds) or 0.0 for rank in ranks)
        total = ranks[0].num_cpus
        if None in used or not _has_waited(ranks) or queued < NO_CPU_SHARE or not total:
            continue
        reach = len(set().union(*(rank.cpus or () for rank in ranks)))
        granted = ranks[0].cpu_quota or reach
        # Of a run that fills its CPUs, or its quota, that may be its own doing; others
        # may be on CPUs that it may not use.
        is_own = own >= SATURATED * min(reach, granted)
        other_cpus = busy - own - max(0, total - reach)
        if not is_own and other_cpus > WORTH_A_WORD * busy:
            nodes.append((queued, name, busy - own, own))
    if nodes:
        queued, name, other_cpus, own = max(nodes)
        yield Cause.of(
            "no-cpu",
            queued,
            f"A rank on {name} was runnable but off-CPU {queued * 100:.0f}% of the "
            f"time; other processes used {other_cpus:.1f} CPUs there, this run "
            f"{own:.1f}.",
            "rerun when no other process uses the nodes' CPUs.",
            at_most(queued, "no waiting"),
        )


def _lost_to_cpus(facts: Facts, waits: float) -> float | None:
    """Return the part of a run's time that it waits where it lacks CPUs; None: none.

    A GPU computes on while its rank waits for a moment: only long waits count.
    """
    if waits >= WORTH_A_WORD:
        return waits
    queued = facts.queue_share or 0.0
    return queued if queued >= NO_CPU_SHARE else None


def _has_waited(ranks: Sequence[RankTimes]) -> bool:
    """Return whether a rank was without a CPU for more than some time slices."""
    waited = max(rank.cpu_queue_seconds or 0.0 for rank in ranks)
    return waited >= QUEUE_SECONDS


def _at_most(by_cpus: float, queued: float | None, waits: float) -> float:
    """Return the most that separate CPUs can bring a run.

    A rank that computes and never waits for input gains the time that it was ready and
    had no CPU. One that waits has loading processes, whose queues are not counted.
    """
    if queued is None or waits >= WORTH_A_WORD:
        return by_cpus
    return min(by_cpus, 1 / max(1 - queued, 1 / by_cpus))


def busy_share(facts: Facts) -> float | None:
    """Return the busy share of the host's CPUs; None if unknown."""
    if facts.busy_cpus is None or not facts.num_cpus:
        return None
    return min(1.0, facts.busy_cpus / facts.num_cpus)


def filled_share(facts: Facts) -> float | None:
    """Return the utilization of the CPUs that the run may use; None if unknown.

    It counts the run itself (1 or more is full utilization), or at least all processes
    of the host.
    """
    host, total = busy_share(facts), facts.num_cpus
    allowed, demand, reach = _allowed(facts), _demand(facts), _reach(facts)
    if not allowed or demand is None or not reach:
        # A full host has no free CPU; any other tells nothing of the run's.
        return host if host is not None and host >= SATURATED else None
    if host is None or not total:
        return demand / allowed
    return max(demand / allowed, (host * total - _elsewhere(facts)) / reach)


def _demand(facts: Facts) -> float | None:
    """Return how many CPUs the ranks wanted: had, or were ready for."""
    wanted = [
        rank.share(rank.cpu_seconds + (rank.cpu_queue_seconds or 0.0))
        for rank in facts.ranks
        if rank.cpu_seconds is not None
    ]
    known = [share for share in wanted if share is not None]
    return sum(known) if facts.ranks and len(known) == len(facts.ranks) else None


def _reach(facts: Facts) -> int | None:
    """Return on how many CPUs the ranks may run, all together."""
    own = [rank.cpus for rank in facts.ranks if rank.cpus]
    if not facts.num_cpus or not own or len(own) < len(facts.ranks):
        return None
    return len(set().union(*own))


def _elsewhere(facts: Facts) -> int:
    """Return the number of the host's CPUs that the ranks may not use."""
    total, reach = facts.num_cpus, _reach(facts)
    return max(0, total - reach) if total and reach else 0


def _allowed(facts: Facts) -> float | None:
    """Return how many of those they may keep busy; None if unknown."""
    reach = _reach(facts)
    granted = (facts.record.get("machine") or {}).get("usable_cpus")
    return min(reach, granted) if reach and granted else reach
