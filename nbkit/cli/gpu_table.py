"""GPUs with their holders as lines of text, of one sample of the feed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from nbkit.cli.text import aligned
from nbkit.plural import plural
from nbkit.statistics.quantities import UNKNOWN, elapsed

_HEADING = ("GPU", "Name", "Util", "Memory GiB", "Power W", "Temp", "SM MHz")
_MARKS = "><>>>>>"
_MIB_PER_GIB = 1024

Values = Mapping[str, Any]


def gpu_table(inventory: Values, sample: Values) -> list[str]:
    """Return what the sidebar shows of this machine's GPUs, as lines."""
    lines = [_title(inventory, sample)]
    if inventory["source"] == "replay":
        lines.append(f"REPLAY of {inventory['replay']}: not this machine's GPUs")
    if inventory["gpus_unavailable"]:
        lines.append(inventory["gpus_unavailable"]["message"])
    rows: list[tuple[str, ...]] = [_HEADING]
    below: list[list[str]] = []
    for place, gpu in enumerate(inventory["gpus"]):
        columns, row = inventory["gpu_columns"], sample["gpus"][place]
        readings = dict(zip(columns, row or [None] * len(columns), strict=True))
        rows.append(_cells(gpu, readings))
        warnings = _warnings(inventory, gpu, readings)
        below.append([*warnings, *_memory_lines(gpu, sample, place)])
    if inventory["gpus"]:
        heading, *cells = aligned(rows, _MARKS)
        lines += ["", heading]
        for line, more in zip(cells, below, strict=True):
            lines += [line, *(f"       {text}" for text in more)]
    return [*lines, "", _host(inventory, sample)]


def gpu_values(inventory: Values, sample: Values) -> dict[str, Any]:
    """Return the same as JSON values, each under its name with its unit."""
    columns = inventory["gpu_columns"]
    gpus: list[dict[str, Any]] = []
    for place, gpu in enumerate(inventory["gpus"]):
        row = sample["gpus"][place] or [None] * len(columns)
        held = zip(gpu["holders"] or (), sample["holders"][place] or (), strict=True)
        holders = [{**holder, "memory_used_mib": mib} for holder, mib in held]
        readings = dict(zip(columns, row, strict=True))
        is_known = gpu["holders"] is not None
        instances = gpu["mig_instances"]
        used = sample["mig"][place] or [None] * len(instances or ())
        migs = [
            {**mig, "memory_used_mib": mib}
            for mig, mib in zip(instances or (), used, strict=True)
        ]
        parts = {
            "holders": holders if is_known else None,
            "mig_instances": instances and migs,
        }
        gpus.append({**gpu, **readings, **parts})
    names = ("host", "source", "replay", "driver_version", "gpus_unavailable")
    return {**{name: inventory[name] for name in names}, "t": sample["t"], "gpus": gpus}


def _title(inventory: Values, sample: Values) -> str:
    parts = [inventory["host"]]
    if inventory["driver_version"]:
        parts.append(f"driver {inventory['driver_version']}")
        parts.append(f"CUDA {inventory['cuda_driver_version'] or UNKNOWN}")
    moment = time.strftime("%H:%M:%S", time.localtime(sample["t"]))
    return "  ".join([*parts, moment])


def _cells(gpu: Values, row: Values) -> tuple[str, ...]:
    used, total = row["memory_used_mib"], gpu["memory_total_mib"]
    unified = " unified" if gpu["memory_unified"] else ""
    return (
        str(gpu["index"]),
        gpu["name"] or UNKNOWN,
        _number(row["utilization_percent"], "%"),
        f"{_gib(used)} / {_gib(total)}{unified}",
        f"{_number(row['power_watts'])} / {_number(gpu['power_limit_watts'])}",
        _number(row["temperature_celsius"], " C"),
        _number(row["sm_clock_mhz"]),
    )


def _warnings(inventory: Values, gpu: Values, row: Values) -> Iterator[str]:
    """Yield what is wrong or slow; nothing if all is well."""
    if gpu["error"]:
        yield f"! {gpu['error']}"
    if gpu["xid"]:
        yield f"! XID {gpu['xid']['code']}"
    if count := gpu["ecc_uncorrected_count"]:
        yield f"! {plural(count, 'uncorrected ECC error')}"
    bits = int(row["clock_events"] or 0)
    for place, word in enumerate(inventory["clock_event_words"]):
        if bits >> place & 1 and word in inventory["slowdown_words"]:
            yield f"! slowed: {word}"


def _memory_lines(gpu: Values, sample: Values, place: int) -> Iterator[str]:
    """Yield the MIG instances of a GPU, and who holds its memory."""
    instances = gpu["mig_instances"] or ()
    used = sample["mig"][place] or [None] * len(instances)
    for number, (mig, mib) in enumerate(zip(instances, used, strict=True)):
        total = _gib(mig["memory_total_mib"])
        yield f"MIG {number}: {_gib(mib)} / {total} GiB"
    if gpu["holders"] is None:
        reason = gpu["unavailable"].get("processes")
        yield f"processes unknown ({reason})" if reason else "processes unknown"
        return
    labels = {mig["uuid"]: f"MIG {number}" for number, mig in enumerate(instances)}
    memory = sample["holders"][place]
    for holder, mib in zip(gpu["holders"], memory, strict=True):
        where = labels.get(holder["mig_uuid"], "")
        parts = [f"{_gib(mib):>6} GiB", where, _holder(holder, sample["t"])]
        yield "  ".join(filter(None, parts))


def _holder(holder: Values, now: float) -> str:
    """Return who it is: run or kernel, user, process, command, and since when idle."""
    words = []
    if holder["kind"] == "run":
        words.append(f"run {holder['name'] or holder['run_id'] or UNKNOWN}")
    elif holder["kind"] == "kernel":
        words.append(f"kernel {holder['path'] or holder['name'] or UNKNOWN}")
    if holder["user"]:
        words.append(holder["user"])
    if holder["pid"] is not None:
        words.append(f"pid {holder['pid']}")
    if holder["idle_since"] is not None:
        words.append(f"idle for {elapsed(now - holder['idle_since'])}")
    who = ", ".join(words) or UNKNOWN
    # The command of a run or a kernel adds nothing.
    is_outside = holder["kind"] == "outside" and holder["command"]
    text = f"{who}: {holder['command']}" if is_outside else who
    # Another user's command line may hold what moves or colours this terminal.
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _host(inventory: Values, sample: Values) -> str:
    row = dict(zip(inventory["host_columns"], sample["host_values"], strict=True))
    used, total = row["memory_used_mib"], inventory["memory_total_mib"]
    usable, limit = inventory["usable_cpus"], inventory["memory_limit_mib"]
    of_cpus = "" if usable is None else f" ({usable:g} usable)"
    of_memory = "" if limit is None else f" ({_gib(limit)} usable)"
    return (
        f"{plural(inventory['cpus'], 'CPU')}{of_cpus} "
        f"{_number(row['cpu_percent'], '%')}, load {row['load_average_1_minute']}, "
        f"memory {_gib(used)} / {_gib(total)} GiB{of_memory}"
    )


def _gib(mib: float | None) -> str:
    return UNKNOWN if mib is None else f"{mib / _MIB_PER_GIB:.1f}"


def _number(value: float | None, unit: str = "") -> str:
    return UNKNOWN if value is None else f"{value:.0f}{unit}"
