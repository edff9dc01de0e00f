"""MLPerf Training log of a run, from its run folder alone.

Each line is ``:::MLLOG`` and an object with ``namespace``, ``time_ms``, ``event_type``,
``key``, ``value`` and ``metadata``. Only what the run's files record is written;
unknown is null: a run that is not ImageNet ResNet-50 by MLPerf's rules gives a log that
MLPerf's compliance checker refuses.

References
----------
https://github.com/mlcommons/logging
https://github.com/mlcommons/training_policies/blob/master/training_rules.adoc
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import Any, Literal

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, NotEnoughDataError
from nbkit.reading import expanded
from nbkit.review.milestones import (
    started_at,
    startup_seconds,
    time_to_target,
)
from nbkit.store.metrics import store_error
from nbkit.store.record import replace_file
from nbkit.store.stored_runs import StoredRun

_IMAGENET = (1_281_167, 50_000)
"""Training and evaluation images of ILSVRC2012."""

_DIVISIONS = ("closed", "open")
_STATUSES = ("cloud", "onprem", "preview", "research")

_CLOSED = {
    "image_size": (224,),
    "optimizer": ("sgd", "lars"),
    "schedule": ("polynomial",),
    "polynomial_power": (2.0,),
    "polynomial_end": (0.0001,),
    "target_accuracy": (0.759,),
    "evaluation_period_epochs": (4,),
    "evaluation_offset_epochs": (0, 1, 2, 3),
    "label_smoothing": (0.0, 0.1),
    "weights": ("random",),
    "label_weighting": ("none",),
}
"""What MLPerf's closed division fixes of ResNet-50, by field."""

_ORDER = (
    *("epoch_stop", "eval_start", "eval_accuracy", "eval_stop", "block_stop"),
    *("block_start", "epoch_start"),
)
"""In which order things stand that happen in the same millisecond."""

Line = dict[str, Any]


def mllog(
    run: StoredRun,
    file: str | os.PathLike[str] | None = None,
    *,
    division: Literal["closed", "open"] = "open",
    org: str | None = None,
    platform: str | None = None,
    status: Literal["cloud", "onprem", "preview", "research"] = "research",
    cache_cleared: bool | None = None,
) -> str:
    """Return a run's MLPerf Training log, and write it to a file if one is given.

    Parameters
    ----------
    run
        A training run with a target accuracy and evaluations, for example from
        `nbkit.attach`.
    file
        Path of the log; None writes no file.
    division
        MLPerf division: ``closed`` for runs that follow all rules of the reference,
        ``open`` for other runs.
    org, platform
        Submitter and system. With None, the submitter is unknown, and the system has
        the name in the run's record.
    status
        Status of the system, as defined by MLPerf.
    cache_cleared
        Whether caches were cleared before the run, as MLPerf requires; None if unknown.

    Raises
    ------
    ConfigError
        If the run has no target accuracy or does not follow the rules of
        ``division="closed"``, or ``file`` is in the home of an unknown user.
    NotEnoughDataError
        If the run has not ended, has no step or evaluation, or its record has no start
        time.
    StoreError
        If the file cannot be written; an existing file is unchanged.

    Examples
    --------
    >>> nbkit.mllog(run, "result_0.txt", org="example")  # doctest: +SKIP
    """
    for name, value, known in (
        ("division", division, _DIVISIONS),
        ("status", status, _STATUSES),
    ):
        if value not in known:
            message = (
                f"{name}={value!r} is not defined by the MLPerf rules. Use one of "
                f"{', '.join(known)}."
            )
            raise ConfigError(message)
    obstacles = closed_obstacles(run) if division == "closed" else []
    if obstacles:
        message = (
            f"Run {run.run_id} does not meet division='closed': "
            f"{'; '.join(obstacles)}. Use division='open'."
        )
        raise ConfigError(message)
    if not run.state.is_final:
        message = (
            f"Run {run.run_id} is {run.state}, but an MLPerf log requires a run "
            "that has ended. Call wait()."
        )
        raise NotEnoughDataError(message)
    machine = run.record.get("machine") or {}
    submission = {
        "submission_benchmark": _benchmark(run),
        "submission_division": division,
        "submission_org": org,
        "submission_platform": platform or machine.get("system_product"),
        "submission_status": status,
        "cache_clear": cache_cleared,
    }
    text = "".join(
        f":::MLLOG {json.dumps(line)}\n" for line in _log_lines(run, submission)
    )
    if file is not None:
        path = expanded(file, "file")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, text.encode())
        except OSError as error:
            raise store_error(path, error, "name a file") from error
    return text


def closed_obstacles(run: StoredRun) -> list[str]:
    """Return why a run does not meet MLPerf's closed division; may be empty.

    References
    ----------
    https://github.com/mlcommons/training_policies/blob/master/training_rules.adoc
    """
    is_resnet = _benchmark(run) == "resnet"
    what = f"model={run.config.model}, data={run.config.data}"
    rule = "(the rules require resnet50 on all images of ImageNet-1k)"
    obstacles = [] if is_resnet else [f"{what} {rule}"]
    for name, allowed in _CLOSED.items():
        value = getattr(run.config, name)
        if value not in allowed:
            rules = " or ".join(map(str, allowed))
            obstacles.append(f"{name}={value} (the rules require {rules})")
    return obstacles


def _benchmark(run: StoredRun) -> str:
    """Return MLPerf's name of the benchmark; otherwise that of the model."""
    data = run.worker.get("data") or {}
    # An epoch leaves out what does not fill a last batch.
    num_images = data.get("train_images", 0) + data.get("dropped_images", 0)
    sizes = (num_images, data.get("evaluation_images"))
    is_imagenet = sizes == _IMAGENET and data.get("loader") != "synthetic"
    config = run.config
    return "resnet" if config.model == "resnet50" and is_imagenet else config.model


def _log_lines(run: StoredRun, submission: Line) -> Iterator[Line]:
    """Yield every line, in the order of time."""
    lines = run.metrics(None)
    result = time_to_target(run)
    begin = started_at(lines)
    first = begin - _startup(run)
    begins = ("submission_benchmark", "submission_org", "submission_division")
    yield _line("POINT_IN_TIME", "cache_clear", first, submission["cache_clear"])
    yield _line("INTERVAL_START", "init_start", first)
    for name in (*begins, "submission_platform", "submission_status"):
        yield _line("POINT_IN_TIME", name, first, submission[name])
    for name, value in _settings(run).items():
        yield _line("POINT_IN_TIME", name, begin, value)
    yield _line("INTERVAL_END", "init_stop", begin)
    yield _line("INTERVAL_START", "run_start", begin)
    evaluations = [line for line in lines if line["kind"] == "evaluation"]
    events = [*_epochs(lines), *_evaluations(evaluations)]
    events += _blocks(begin, evaluations)
    yield from sorted(events, key=lambda e: (e["time_ms"], _ORDER.index(e["key"])))
    if result.seconds is None:
        # It trained on after its last evaluation, and the stop is the last event.
        last = max(event["time_ms"] for event in events) / 1000
        end = max(begin + result.watched_seconds + result.paused_seconds, last)
    else:
        end = begin + result.seconds + result.paused_seconds
    how = {"status": "success" if result.reached else "aborted"}
    yield _line("INTERVAL_END", "run_stop", end, **how)


def _startup(run: StoredRun) -> float:
    seconds = startup_seconds(run)
    if seconds is None:
        message = (
            f"Run {run.run_id} has no start time (time.started=None), but an MLPerf "
            "log requires one. Use a run launched by nbkit."
        )
        raise NotEnoughDataError(message)
    return seconds


def _settings(run: StoredRun) -> dict[str, Any]:
    """Return the run's sizes and hyperparameters by MLPerf's keys."""
    config, worker = run.config, run.worker
    data = worker.get("data") or {}
    per_epoch = worker.get("steps_per_epoch")
    steps = config.steps or (per_epoch and config.epochs and per_epoch * config.epochs)
    common = {
        "seed": config.seed,
        "global_batch_size": worker.get("global_batch_size"),
        "gradient_accumulation_steps": config.gradient_accumulation_steps,
        "train_samples": data.get("train_images"),
        "eval_samples": data.get("evaluation_images"),
        "opt_name": config.optimizer,
        "model_bn_span": worker.get("batch_size_per_gpu"),
        "label_smoothing": config.label_smoothing,
        "opt_learning_rate_warmup_epochs": _whole(config.learning_rate_warmup_epochs),
    }
    return {**common, **_optimizer(config, steps)}


def _optimizer(config: ExperimentConfig, steps: int | None) -> dict[str, Any]:
    """Return an optimizer's own keys; of ``adamw``, which MLPerf has not, none."""
    if config.optimizer not in ("sgd", "lars"):
        return {}
    is_polynomial = config.schedule == "polynomial"
    values = {
        "base_learning_rate": config.learning_rate,
        "end_learning_rate": config.polynomial_end if is_polynomial else None,
        "learning_rate_decay_poly_power": (
            _whole(config.polynomial_power) if is_polynomial else None
        ),
        # As in MLPerf's reference points: all steps, those of the warm-up among them.
        "learning_rate_decay_steps": steps,
        "momentum": config.momentum,
        "weight_decay": config.weight_decay,
    }
    settings = {
        f"{config.optimizer}_opt_{name}": value for name, value in values.items()
    }
    if config.optimizer == "lars":
        settings["lars_epsilon"] = 0.0  # nbkit's LARS adds nothing to a norm
        settings["lars_opt_learning_rate_warmup_epochs"] = _whole(
            config.learning_rate_warmup_epochs
        )
    return settings


def _epochs(lines: Sequence[Line]) -> Iterator[Line]:
    """Yield where each epoch starts and stops, as its steps tell."""
    steps = [line for line in lines if line["kind"] == "step"]
    epochs = [
        (epoch + 1, list(members))
        for epoch, members in groupby(steps, key=lambda line: line["epoch"])
    ]
    saved = {line["step"] for line in lines if line["kind"] == "checkpoint"}
    starts = [started_at(inside) for _, inside in epochs]
    for (number, inside), start, following in zip(
        epochs, starts, [*starts[1:], None], strict=True
    ):
        stop = _ended_at(inside, saved)
        # The end of a step is noticed late on a GPU, at times in the next epoch.
        stop = stop if following is None else min(stop, following)
        yield _line("INTERVAL_START", "epoch_start", start, epoch_num=number)
        yield _line("INTERVAL_END", "epoch_stop", stop, epoch_num=number)


def _ended_at(steps: Sequence[Line], saved: Collection[int]) -> float:
    """Return the Unix time at which the last step ended, see `started_at`."""
    # Between two steps with a checkpoint or a resume between them is time of neither.
    left, ends = 0.0, []
    for line in reversed(steps):
        apart = line["step"] in saved or line["attempt"] != steps[-1]["attempt"]
        if ends and apart:
            break
        ends.append(line["t"] + left)
        left += line["step_time_seconds"]
    return min(ends)


def _evaluations(evaluations: Sequence[Line]) -> Iterator[Line]:
    for line in evaluations:
        meta = {"epoch_num": line["epoch"]}
        start = line["t"] - line["duration_seconds"]
        yield _line("INTERVAL_START", "eval_start", start, **meta)
        accuracy = line.get("top1_accuracy")
        yield _line("POINT_IN_TIME", "eval_accuracy", line["t"], accuracy, **meta)
        yield _line("INTERVAL_END", "eval_stop", line["t"], **meta)


def _blocks(begin: float, evaluations: Sequence[Line]) -> list[Line]:
    """Return the blocks: what is trained up to an evaluation, with it."""
    blocks, done = [], 0
    for line in evaluations:
        meta = {
            "first_epoch_num": done + 1,
            "epoch_count": max(1, line["epoch"] - done),
        }
        blocks.append(_line("INTERVAL_START", "block_start", begin, **meta))
        blocks.append(_line("INTERVAL_END", "block_stop", line["t"], **meta))
        begin, done = line["t"], line["epoch"]
    return blocks


def _line(kind: str, key: str, t: float, value: Any = None, **metadata: Any) -> Line:
    return {
        "namespace": "",
        "time_ms": round(1000 * t),
        "event_type": kind,
        "key": key,
        "value": value,
        "metadata": metadata,
    }


def _whole(value: float) -> float | int:
    """Return a whole number without its decimal point, as MLPerf's logs have it."""
    return int(value) if value == int(value) else value
