"""Conditions of a study's measurement: method, place, time and images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from nbkit.datasets.skipped_files import in_words
from nbkit.errors import NotEnoughDataError
from nbkit.launch.run import Run
from nbkit.plural import plural
from nbkit.reports.parts import Source
from nbkit.statistics.quantities import RATE_INTERVAL, RATE_STATISTIC

WELCH = Source(
    "B. L. Welch, The generalization of Student's problem when several different "
    "population variances are involved, Biometrika 34 (1947)",
    "https://doi.org/10.1093/biomet/34.1-2.28",
)
"""The interval of every ratio."""

_MOST_NODES = 8
_SOFTWARE = ("nbkit", "torch", "torchvision", "cuda", "nccl", "dali")


def conditions(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the common conditions of a study's runs, and the run ids."""
    if not runs:
        message = "The study has no finished run to report. Call study.run() first."
        raise NotEnoughDataError(message)
    config = runs[0].config
    largest = max(runs, key=lambda run: run.config.world_size)
    worker, record = largest.worker, largest.record
    packages = (record.get("environment") or {}).get("packages", {})
    machine = record.get("machine") or {}
    is_dali = config.loader == "dali" and config.data != "synthetic"
    dali = [version for name, version in packages.items() if "dali" in name and version]
    fields = (
        *("model", "batch_size_per_gpu", "image_size", "memory_format", "data"),
        *("loader", "steps", "seed"),
    )
    versions = ("torch", "cuda", "cudnn", "nccl", "backend")
    jobs = [(run.record.get("launch") or {}).get("job") or {} for run in runs]
    storages = [run.record.get("storage") or {} for run in runs]
    file_systems = {it["file_system"] for it in storages if it.get("file_system")}
    return {
        **{name: getattr(config, name) for name in fields},
        "warmup_steps": config.num_warmup_steps,
        "device_name": runs[0].summary.device_name,
        **{name: worker.get(name) for name in versions},
        **{name: packages.get(name) for name in ("nbkit", "torchvision")},
        "dali": dali[0] if is_dali and dali else None,
        "images": images_of(runs),
        "file_system": " and ".join(sorted(file_systems)) or None,
        **{name: machine.get(name) for name in ("hostname", "usable_cpus")},
        "nodes": sorted({n for job in jobs for n in job.get("nodes") or []}) or None,
        "started": record["time"]["started"],
        "oversubscribed": any(run.summary.oversubscribed for run in runs),
        "run_ids": [run.run_id for run in runs],
    }


def conditions_line(runs: Sequence[Run]) -> str:
    """Return GPU, software, batch, steps and n of a study's finished runs, in one line.

    Conditions that differ between runs are omitted; they are in a table.
    """
    configs = [run.config for run in runs]
    largest = max(runs, key=lambda run: run.config.world_size)
    worker = largest.worker
    device = runs[0].summary.device_name or "unknown device"
    sizes = {config.world_size for config in configs}
    if (largest_size := max(sizes)) > 1:
        up_to = "up to " if len(sizes) > 1 else ""
        device = f"{up_to}{largest_size} x {device}"
    versions = {
        "torch": worker.get("torch"),
        "CUDA": worker.get("cuda"),
        "driver": (largest.record.get("system") or {}).get("driver_version"),
    }
    formats = {
        "model": "{}",
        "batch_size_per_gpu": "batch {} per rank",
        "image_size": "{0}x{0}",
        "data": "{}",
        "steps": "{} step{s}",
        "epochs": "{} epoch{s}",
    }
    values = {name: {getattr(config, name) for config in configs} for name in formats}
    common = {name: each.pop() for name, each in values.items() if len(each) == 1}
    if all(config.has_time_window for config in configs):
        common["length"] = formats["length"] = configs[0].length
    if {config.task for config in configs} == {"load"}:
        common.pop("model", None)  # nothing computes
    if all(config.has_entry for config in configs):
        common.clear()  # fields that a script or function may not follow
    arms = Counter((run.record.get("tags") or {}).get("arm", "") for run in runs)
    fewest, largest_n = min(arms.values()), max(arms.values())
    parts = [
        device,
        ", ".join(f"{name} {value}" for name, value in versions.items() if value),
        ", ".join(
            formats[name].format(value, s="s" * (value != 1))
            for name, value in common.items()
            if value is not None
        ),
        f"n={fewest}" if fewest == largest_n else f"n={fewest} to {largest_n}",
    ]
    return " | ".join(part for part in parts if part)


HOW_MEASURED = (f"Images/s: {RATE_STATISTIC}.", f"Intervals: {RATE_INTERVAL}.")
"""Statistic and interval of rates; the plan's notes have order and repeats."""


def where_and_when(facts: Mapping[str, Any]) -> str:
    """Return a sentence with the facts of `conditions` and ``study_id``."""
    software = ", ".join(f"{key} {facts[key]}" for key in _SOFTWARE if facts.get(key))
    cpus = facts.get("usable_cpus")
    where = f"host {facts.get('hostname') or 'unknown'}"
    if nodes := facts.get("nodes"):
        more = len(nodes) - _MOST_NODES
        where = f"node{'s' * (len(nodes) > 1)} {', '.join(nodes[:_MOST_NODES])}"
        where += f" and {more} more" if more > 0 else ""
    on_first = " on the first node" if nodes and len(nodes) > 1 else ""
    parts = [
        f"{facts.get('device_name') or 'unknown device'} on {where}",
        "unknown CPUs"
        if cpus is None
        else f"{cpus:g} usable CPU{'s' * (cpus != 1)}{on_first}",
    ]
    if facts.get("file_system"):
        parts.append(f"data on {facts['file_system']}")
    return (
        f"Environment: {', '.join(parts)}; "
        f"{facts.get('started') or 'unknown time'}; "
        f"{software or 'unknown software'}; study {facts.get('study_id')}."
    )


def describe_images(facts: Mapping[str, Any]) -> list[str]:
    """Return a description of the images; empty for synthetic data."""
    images = facts.get("images")
    if images is None:
        return []
    used = " and ".join(
        f"{count:,} on {plural(ranks, 'rank')}"
        for ranks, count in images["train"].items()
    )
    classes = plural(images["classes"], "class", "classes")
    left_out = images["unreadable"]
    unreadable = f", {plural(left_out, 'unreadable image')} skipped" if left_out else ""
    lines = [
        f"Images: {images['files']:,} in {classes}{unreadable}"
        f"{f'; per epoch {used} (incomplete last batch dropped)' if used else ''}."
    ]
    if empty := images.get("classes_without_training_images"):
        have = "has" if empty == 1 else "have"
        lines[0] += f" {empty:,} of {classes} {have} no training image."
    if high_bit_depth := images.get("high_bit_depth"):
        coarse = high_bit_depth["coarse"]
        few = f" ({coarse:,} of them to 16 gray levels or fewer)" if coarse else ""
        reduced = plural(high_bit_depth["count"], "grayscale image")
        lines[0] += f" {reduced} reduced from more than 8 bits to 8 bits{few}."
    notes = [note.removesuffix(".") for note in images.get("notes", ())]
    lines += [f"{note[:1].upper()}{note[1:]}." for note in notes]
    if skipped_files := images.get("skipped_files"):
        kinds = in_words(skipped_files["kinds"])
        files = plural(skipped_files["count"], "file")
        lines.append(f"Skipped: {files} ({kinds}).")
    return lines


def images_of(runs: Sequence[Run]) -> dict[str, Any] | None:
    """Return how many images there were, and how many an epoch had at each size.

    None unless all runs have the same ones; no size at which epochs differ.
    """
    datasets = [run.worker.get("data") or {} for run in runs]
    dataset = datasets[0]
    if not all(
        other.get("unreadable") and other["fingerprint"] == dataset["fingerprint"]
        for other in datasets
    ):
        return None
    high_bit_depth = {
        key: (dataset.get("high_bit_depth") or {}).get(key)
        for key in ("count", "coarse")
    }
    train: dict[int, set[int]] = {}
    for run, of_run in zip(runs, datasets, strict=True):
        train.setdefault(run.config.world_size, set()).add(of_run["train_images"])
    skipped_files = dataset.get("skipped_files") or {"count": 0}
    empty = dataset.get("classes_without_training_images")
    return {
        "files": dataset["fingerprint"]["files"],
        "classes": dataset["num_classes"],
        "unreadable": dataset["unreadable"]["count"],
        **({"classes_without_training_images": empty} if empty else {}),
        **({"notes": dataset["notes"]} if dataset.get("notes") else {}),
        **({"high_bit_depth": high_bit_depth} if high_bit_depth.get("count") else {}),
        "train": {size: min(of) for size, of in sorted(train.items()) if len(of) == 1},
        **({"skipped_files": skipped_files} if skipped_files["count"] else {}),
    }
