"""CPU binding of the ranks of a run, in words."""

from __future__ import annotations

from typing import Any

from nbkit.plural import plural
from nbkit.store.stored_runs import StoredRun


def bound_to(run: StoredRun) -> str | None:
    """Return to what the ranks of a run were bound, and why not where they were not."""
    requested = run.config.cpu_binding
    if requested == "none":
        return requested
    ranks_of: dict[str, list[int]] = {}
    for binding in run.worker.get("bindings") or []:
        ranks_of.setdefault(_place(binding), []).append(binding["rank"])
    if not ranks_of:
        return None
    places = (f"{place} ({_ranks(ranks)})" for place, ranks in ranks_of.items())
    return f"{requested}: {', '.join(places)}"


def _place(binding: dict[str, Any]) -> str:
    count = len(binding["cpus"])
    text = plural(count, "CPU")
    units = (("socket", "sockets"), ("NUMA node", "numa_nodes"))
    word, name = units[binding["requested"] != "socket"]
    numbers = binding.get(name)
    if numbers:
        several = "s" * (len(numbers) > 1)
        text += f" of {word}{several} {' and '.join(map(str, numbers))}"
    reason = binding.get("reason")
    return f"{text}, {reason}" if reason else text


def _ranks(ranks: list[int]) -> str:
    """Return ranks in words, such as ``ranks 0-3,6``."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][-1] + 1:
            spans[-1][1:] = [rank]
        else:
            spans.append([rank])
    text = ",".join("-".join(map(str, span)) for span in spans)
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"
