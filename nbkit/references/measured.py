"""Rows of results measured with nbkit on GPUs.

``python -m nbkit.references.measured STUDY`` (or RUN ...) prints the lines that a
measurement adds to `measured.csv`: one for each configuration, over its process starts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from statistics import median
from typing import Any

from nbkit.errors import ConfigError, NotEnoughDataError
from nbkit.plural import plural
from nbkit.references.gpu_names import canonical_gpu_name, may_be_the_same_gpu
from nbkit.references.rows import PublishedRow, PublishedRows, published
from nbkit.statistics import quantities as wording
from nbkit.store.paths import StudyPaths, is_study, the_study_folder
from nbkit.store.record import RunState, read_json
from nbkit.store.stored_runs import StoredRun, find_run_folder

PUBLISHER = "nbkit"

_SETTINGS = (
    *("image_size", "optimizer", "gradient_accumulation_steps", "cuda_graphs"),
    *("deterministic", "oversubscribe", "cpu_binding", "profile"),
)
"""Fields without a column that change the speed of a training: at their defaults."""
_PHASES = {"train": "train", "inference": "infer"}


def row_of(runs: StoredRun | Sequence[StoredRun]) -> PublishedRow:
    """Return the reference row for finished trainings of one configuration.

    Parameters
    ----------
    runs
        A run, or several runs of one configuration, on synthetic data. The rate is the
        median over the runs.

    Raises
    ------
    NotEnoughDataError
        If there is no run, or one has not finished, diverged or has no measured step.
    ConfigError
        If runs differ in a field of the row, or measured conditions that a row cannot
        express: an unknown GPU, image files, or a setting that is not at its default.

    Examples
    --------
    >>> arms = study.runs_by_arm().values()  # doctest: +SKIP
    >>> print(PublishedRows(map(row_of, arms)).to_csv())  # doctest: +SKIP
    """
    runs = [runs] if isinstance(runs, StoredRun) else list(runs)
    rates = [_rate(run) for run in runs]
    if not rates:
        message = "No runs for a reference row. Pass one or more finished runs."
        raise NotEnoughDataError(message)
    rows = {_unmeasured(run) for run in runs}
    if len(rows) > 1:
        first, second, *_ = map(asdict, rows)
        names = ", ".join(
            f"{name} ({first[name]!r}, {second[name]!r})"
            for name in first
            if first[name] != second[name]
        )
        message = f"The runs differ in {names}. Pass runs of one configuration."
        raise ConfigError(message)
    detail = "images / time of the measured steps"
    if len(rates) > 1:
        ends = f"{wording.rate(min(rates))} to {wording.rate(max(rates))}"
        detail = f"{detail}; median over runs, range {ends}"
    return replace(
        rows.pop(),
        images_per_second=round(median(rates), 1),
        runs=len(rates),
        statistic_detail=detail,
    )


def rows_of(runs: Iterable[StoredRun]) -> PublishedRows:
    """Return a row for each configuration among finished trainings; see `row_of`."""
    groups: dict[PublishedRow, list[StoredRun]] = {}
    for run in runs:
        groups.setdefault(_unmeasured(run), []).append(run)
    return PublishedRows(map(row_of, groups.values()))


def reference_of(run: StoredRun) -> PublishedRow | None:
    """Return what nbkit measured under the same conditions, on the same GPU model.

    Of several rows that of most process starts; None where nothing was measured.
    """
    if run.config.data != "synthetic":
        return None
    rows = [
        row
        for row in published(publisher=PUBLISHER)
        if not different_conditions(run, row)
    ]
    return max(rows, key=lambda row: row.runs or 0, default=None)


def reference_sentence(runs: Sequence[StoredRun], arm: str = "") -> str:
    """Return an arm's finished runs beside what nbkit measured; empty if it has not."""
    if any(run.summary.nonfinite or not run.summary.images_per_second for run in runs):
        return ""
    row = reference_of(runs[0]) if runs else None
    if row is None:
        return ""
    return f"{arm}: {row_sentence(runs, row)}" if arm else row_sentence(runs, row)


def row_sentence(
    runs: Sequence[StoredRun], row: PublishedRow, *, alike: bool = True
) -> str:
    """Return the rate of runs beside that of a row; in percent if they are alike."""
    rate, theirs = median(map(_rate, runs)), row.images_per_second
    if theirs is None:
        message = f"{row.label} has no images/s. Use a row with images/s."
        raise NotEnoughDataError(message)
    verb = "measured" if row.origin == "measured" else "published"
    text = f"{wording.rate(rate)} images/s (n={len(runs)}); {row.publisher} {verb} "
    text += wording.rate(theirs)
    details = (f"n={row.runs}" if row.runs else "", _cudnn_benchmark(row))
    shown = ", ".join(filter(None, details))
    text += f" ({shown})" if shown else ""
    if not alike:
        return f"{text} under other conditions."
    share = wording.percent(rate / theirs)
    return f"{text} on the same GPU model; these runs reach {share} of that rate."


def different_conditions(
    run: StoredRun, row: PublishedRow
) -> dict[str, tuple[object, object]]:
    """Return what is known to differ between a run and a row: theirs, by name."""
    # One that does not say whether it was compiled counts as not compiled.
    theirs = {**asdict(row), "compile": bool(row.compile)}
    columns: dict[str, tuple[object, object]] = {
        name: (value, theirs[name])
        for name, value in _columns(run).items()
        if theirs[name] is not None and value != theirs[name]
    }
    name = _gpu_name(run)
    if not (name and row.gpu_name and may_be_the_same_gpu(name, row.gpu_name)):
        columns["gpu_name"] = (run.summary.device_name, row.gpu_name or "CPU")
    if row.own_image_size:
        columns["image_size"] = (run.config.image_size, row.own_image_size)
    ours, other = _cudnn_of(run), _cudnn_benchmark(row)
    if ours and other and ours != other:
        columns["cudnn.benchmark"] = (ours.split()[-1], other.split()[-1])
    return columns | {name: (value, None) for name, value in _settings(run).items()}


def _unmeasured(run: StoredRun) -> PublishedRow:
    """Return a run's row without its rate: equal of equal conditions."""
    name = _gpu_name(run)
    columns = _columns(run)
    unsuitable = _settings(run)
    if name is None:
        unsuitable["GPU"] = run.summary.device_name
    if columns["data"] != "synthetic":
        unsuitable["data"] = run.config.data
    if columns["phase"] != "train":
        unsuitable["task"] = run.config.task
    if unsuitable:
        listed = ", ".join(f"{field}={value!r}" for field, value in unsuitable.items())
        message = (
            f"Run {run.run_id} is not a GPU reference: {listed}. Use a training "
            "run with synthetic data on a known GPU, and defaults for other settings."
        )
        raise ConfigError(message)
    record, worker = run.record, run.worker
    system = record.get("system") or {}
    packages = (record.get("environment") or {}).get("packages") or {}
    used = {str(device.get("uuid")) for device in worker.get("devices") or []}
    limits = {
        gpu["power_limit_watts"]
        for gpu in system.get("devices") or []
        if gpu.get("uuid") in used and gpu.get("power_limit_watts")
    }
    versions = {"nbkit": packages.get("nbkit"), "torch": worker.get("torch")}
    known = {
        "driver": system.get("driver_version"),
        **{name: worker.get(name) for name in ("cuda", "cudnn", "nccl")},
    }
    conditions = [
        _cudnn_of(run),
        *(f"{label} {value}" for label, value in known.items() if value),
        *(f"power limit {limit:.0f} W" for limit in sorted(limits)),
    ]
    return PublishedRow(
        series=None,
        software=", ".join(
            f"{name} {version}" for name, version in versions.items() if version
        ),
        gpu_name=name,
        **columns,
        images_per_second=None,
        speedup=None,
        time_to_target_minutes=None,
        runs=None,
        statistic="images / time",
        window="warm-up dropped",
        statistic_detail=None,
        origin="measured",
        data_wait_share=None,
        conditions="; ".join(filter(None, conditions)) or None,
        publisher=PUBLISHER,
        source=f"measured by nbkit on {columns['world_size']} x {name}",
        url=None,
        year=int(str(record["time"]["started"])[:4]),
    )


def _columns(run: StoredRun) -> dict[str, Any]:
    """Return the columns of a row that are fields of the configuration."""
    config = run.config
    fields = ("model", "nnodes", "world_size", "precision", "memory_format", "compile")
    return {
        **{name: getattr(config, name) for name in fields},
        "framework": "pytorch",
        "batch_size_per_gpu": run.summary.batch_size_per_gpu,
        "data": "synthetic" if config.data == "synthetic" else "real",
        "phase": _PHASES.get(config.task, config.task),
    }


def _settings(run: StoredRun) -> dict[str, Any]:
    """Return the settings without a column that are not at their defaults."""
    fields = type(run.config).model_fields
    values = {name: getattr(run.config, name) for name in _SETTINGS}
    return {
        name: value for name, value in values.items() if value != fields[name].default
    }


def _gpu_name(run: StoredRun) -> str | None:
    # A replay says the names of GPUs that it does not have.
    if (run.record.get("launch") or {}).get("replayed"):
        return None
    return canonical_gpu_name(run.summary.device_name or "")


def _cudnn_of(run: StoredRun) -> str:
    """Return whether cuDNN chose its algorithms by time; empty if unknown."""
    value = run.worker.get("cudnn_benchmark")
    return "" if value is None else f"cudnn.benchmark {'on' if value else 'off'}"


def _cudnn_benchmark(row: PublishedRow) -> str:
    words = ("cudnn.benchmark on", "cudnn.benchmark off")
    return next((word for word in words if word in (row.conditions or "")), "")


def _rate(run: StoredRun) -> float:
    rate, diverged = run.summary.images_per_second, run.summary.nonfinite is not None
    if run.state is not RunState.FINISHED or diverged or not rate:
        message = (
            f"Run {run.run_id} is {run.state}{', diverged (NaN/Inf)' * diverged}, with "
            f"{plural(run.summary.n_steps, 'measured step')}. Use a finished, finite "
            "run with more steps than warmup_steps."
        )
        raise NotEnoughDataError(message)
    return rate


def _finished(names: Sequence[str]) -> list[StoredRun]:
    """Return the finished trainings of runs and studies, by id."""
    ids: list[str] = []
    for name in names:
        if is_study(name):
            content = read_json(StudyPaths(the_study_folder(name)).study) or {}
            once = content.get("unrepeated") or []
            ids += [e["run_id"] for e in content["runs"] if e["arm"] not in once]
        else:
            ids.append(name)
    runs = [StoredRun(find_run_folder(run_id)) for run_id in ids]
    return [run for run in runs if run.state is RunState.FINISHED]


if __name__ == "__main__":
    sys.stdout.write(rows_of(_finished(sys.argv[1:])).to_csv())
