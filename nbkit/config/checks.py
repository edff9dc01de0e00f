"""Valid values of an experiment's fields, alone and in combination.

A rule of several fields stands at the one that is declared last, since only the values
of those before it are known then; the error names that one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from pydantic import ValidationInfo, field_validator

from nbkit.config.determinism import not_deterministic
from nbkit.config.image_sizes import image_size_problem
from nbkit.config.model import Model, reads_store
from nbkit.config.slurm import SIGNAL_DELAY_LIMIT, SlurmConfig
from nbkit.errors import LaunchError
from nbkit.packages import not_installed
from nbkit.registry import Kind, names, suggest

WINDOW_SECONDS, WINDOW_SECONDS_MAX, WINDOW_STEPS = 6.0, 30.0, 20
"""Least and greatest duration, and fewest steps, of what a run without a given length
measures. Medians of starts repeat to 0.1 % by then, and energy needs five readings of a
counter that is read once a second."""
PROFILED_STEPS = 5
"""Steps after the warm-up that ``profile`` takes out of what is measured."""
_START_SECONDS = 120
"""A job of Slurm's needs so long at least to start its ranks and to do a step: Slurm
looks at time limits twice a minute, and may be a minute early."""
_END_SECONDS = 30
"""After the grace, for ending ranks by force and for the last word."""


class _Known(dict[str, Any]):
    """Values of the fields before, and what follows from them."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        steps = math.inf if self["steps"] is None else self["steps"]
        warmup_steps = self["warmup_steps"] or 0
        self["needed_steps"] = warmup_steps + PROFILED_STEPS + 1
        leading_steps = warmup_steps if warmup_steps < steps else steps // 2
        self["has_too_few_steps"] = leading_steps + PROFILED_STEPS >= steps
        self["num_devices"] = len(self["devices"] or ())

    def __missing__(self, name: str) -> None:
        """Return None for a field that comes later, or whose value is refused."""


class _Rule(NamedTuple):
    """What is wrong with a field's value, and what to do then."""

    field: str
    is_broken: Callable[[Any, _Known], object]
    text: str
    is_for_new: bool = False
    """Whether stored runs may violate the rule."""


_RULES = (
    _Rule(
        "emulated_step_seconds",
        lambda v, of: v and of["task"] != "load",
        "requires task='load', not task={task!r}. Set task='load', or use 0",
    ),
    _Rule(
        "weights",
        lambda v, _: not v,
        "is empty. Use 'random', 'pretrained', a run's id or a checkpoint's path",
    ),
    _Rule(
        "weights",
        lambda v, of: v != "random" and of["task"] not in ("train", "inference"),
        "requires a model, but task={task!r} has none. Use 'random'",
    ),
    _Rule(
        "precision",
        lambda v, of: v == "int8" and of["task"] != "inference",
        "is only supported by task='inference'. Use 'fp16' or 'bf16'",
    ),
    _Rule(
        "cuda_graphs",
        lambda v, of: v and of["task"] == "inference",
        "requires training steps, but task={task!r} has none. Set "
        "cuda_graphs=False; compile=True is supported",
        is_for_new=True,
    ),
    _Rule(
        "cuda_graphs",
        lambda v, of: v and of["compile"],
        "cannot be combined with compile=True. Set only one of them: compile=True "
        "fuses kernels, cuda_graphs=True reduces launch overhead",
    ),
    _Rule(
        "batch_size_per_gpu",
        lambda v, of: v == "max" and of["task"] in ("load", "inference"),
        "is determined with training steps, but task={task!r} has none. Use a number",
    ),
    # The next replay overwrites the gradients that are being summed:
    # https://github.com/pytorch/pytorch/issues/181723
    _Rule(
        "gradient_accumulation_steps",
        lambda v, of: v > 1 and of["cuda_graphs"],
        "cannot be combined with cuda_graphs=True. Use 1, or cuda_graphs=False",
    ),
    _Rule(
        "steps",
        lambda v, of: v is not None and of["epochs"] is not None,
        "cannot be combined with epochs={epochs}. Set only one of them",
    ),
    _Rule(
        "deterministic",
        lambda v, of: v and of["cudnn_benchmark"] not in (None, "off"),
        "cannot be combined with cudnn_benchmark={cudnn_benchmark!r}, which selects "
        "algorithms by timing. Use cudnn_benchmark='off'",
    ),
    _Rule(
        "crop_area_max",
        lambda v, of: v < (of["crop_area_min"] or 0),
        "is below crop_area_min={crop_area_min}. Use {crop_area_min} to 1",
    ),
    _Rule(
        "target_accuracy",
        lambda v, of: v is not None and of["evaluation_period_epochs"] is None,
        "has no effect without evaluation. Set evaluation_period_epochs",
    ),
    _Rule(
        "profile",
        lambda v, of: v and of["task"] != "train",
        "is only supported by task='train', not {task!r}. Set profile=False (a "
        "function or script can call torch.profiler itself)",
    ),
    _Rule(
        "profile",
        lambda v, of: v and of["has_too_few_steps"],
        f"leaves no measured step after the warm-up and {PROFILED_STEPS} profiled "
        "steps (steps={steps}). Use steps={needed_steps} or more with "
        "warmup_steps={warmup_steps}",
    ),
    *(
        _Rule(
            field,
            lambda v, of: v > 1 and of["task"] == "inference",
            "task='inference' supports one device. Use 1, and launch one run per "
            "device",
        )
        for field in ("gpus", "nnodes")
    ),
    _Rule(
        "device",
        lambda v, of: v in ("cpu", "replay") and of["cuda_graphs"],
        "CUDA graphs require a GPU. Set cuda_graphs=False or device='cuda'",
    ),
    _Rule(
        "device",
        lambda v, of: v in ("cpu", "replay") and of["precision"] == "tf32",
        "TF32 requires a GPU. Use precision='fp32' or 'bf16'",
    ),
    _Rule(
        "device",
        lambda v, of: v in ("cpu", "replay") and of["batch_size_per_gpu"] == "max",
        "batch_size_per_gpu='max' requires a GPU. Use a number",
    ),
    _Rule(
        "device",
        lambda v, of: v == "cuda" and of["precision"] == "int8" and not of["compile"],
        "precision='int8' is slower than fp16 on a GPU if compile=False. Set "
        "compile=True",
        is_for_new=True,
    ),
    _Rule(
        "devices",
        lambda v, of: v is not None and of["device"] == "cpu",
        "lists GPUs, but device='cpu'. Remove devices, or set device='cuda'",
    ),
    *(
        _Rule(
            field,
            lambda v, _: v is not None and not v,
            f"is empty. List at least one {what}, or use None",
        )
        for field, what in (("devices", "device"), ("cpus", "CPU"))
    ),
    _Rule(
        "devices",
        lambda v, _: len(set(map(str, v or ()))) != len(v or ()),
        "lists a device twice. List each device once; oversubscribe=True shares "
        "devices among ranks",
    ),
    _Rule(
        "oversubscribe",
        lambda _, of: of["gpus"] and of["num_devices"] > of["gpus"],
        "devices lists {num_devices} devices, but gpus={gpus} uses only {gpus}. Use "
        "gpus={num_devices} or list fewer devices",
    ),
    _Rule(
        "oversubscribe",
        lambda v, of: not v and 0 < of["num_devices"] < (of["gpus"] or 0),
        "gpus={gpus} requires {gpus} devices, but devices lists {num_devices}. Use "
        "gpus={num_devices} or oversubscribe=True",
    ),
    _Rule(
        "cpus",
        lambda v, _: len(set(v or ())) != len(v or ()),
        "lists a CPU twice. List each CPU once",
    ),
)


class ExperimentChecks(Model):
    """Checks of the fields that `ExperimentConfig` declares."""

    _REGISTERED: ClassVar[dict[str, Kind]] = {
        "model": "models",
        "loader": "loaders",
        "engine": "engines",
    }

    @field_validator(*{rule.field for rule in _RULES}, check_fields=False)
    @classmethod
    def _keeps_the_rules(cls, value: Any, info: ValidationInfo) -> Any:
        values = _Known(info.data)
        for rule in _RULES:
            is_excused = rule.is_for_new and reads_store.get()
            is_asked = rule.field == info.field_name and not is_excused
            if is_asked and rule.is_broken(value, values):
                raise ValueError(rule.text.format_map(values))
        return value

    @field_validator("model", "loader", "engine", check_fields=False)
    @classmethod
    def _is_registered(cls, value: str, info: ValidationInfo) -> str:
        registered = names(cls._REGISTERED[str(info.field_name)])
        if value not in registered and not reads_store.get():
            if not registered:
                # No error of this field: pydantic would collect one for each.
                raise LaunchError(not_installed())
            shown = ", ".join(registered if len(registered) < 12 else registered[:10])
            if len(registered) >= 12:
                shown += f" and {len(registered) - 10} others"
            message = f"is not registered. Use {shown}"
            if near := suggest(value, registered):
                message += f".{near}"
            raise ValueError(message)
        return value

    @field_validator("data", mode="before", check_fields=False)
    @classmethod
    def _data_may_be_a_path(cls, value: Any) -> Any:
        text = os.fspath(value) if isinstance(value, os.PathLike) else value
        if text == "":
            message = "is empty. Use the path or name of a data set, such as 'photos'"
            raise ValueError(message)
        return text

    @field_validator("steps", "cudnn_benchmark", mode="before", check_fields=False)
    @classmethod
    def _is_no_switch(cls, value: Any) -> Any:
        if isinstance(value, bool):
            message = "is not a number. Use a number, or omit the field"
            raise ValueError(message)
        return value

    @field_validator("image_size", "device", check_fields=False)
    @classmethod
    def _model_takes_it(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse what a rank would refuse too, once it has started."""
        task, model = info.data.get("task"), info.data.get("model", "")
        problem = None
        if reads_store.get():
            return value
        if info.field_name == "image_size" and task in ("train", "inference"):
            problem = image_size_problem(model, value)
        elif value == "cuda" and task == "train" and info.data.get("deterministic"):
            problem = not_deterministic(model)
        if problem:
            raise ValueError(problem)
        return value

    @field_validator("slurm", check_fields=False)
    @classmethod
    def _time_limit_leaves_time(
        cls, value: SlurmConfig, info: ValidationInfo
    ) -> SlurmConfig:
        grace = info.data.get("stop_grace_seconds")
        if info.data.get("engine") != "slurm" or grace is None or reads_store.get():
            return value
        delay = value.signal_delay_seconds(grace)
        needed = min(math.ceil(grace) + _END_SECONDS, SIGNAL_DELAY_LIMIT)
        if delay < needed:
            message = (
                f"slurm_signal_delay_s={delay} is less than "
                f"stop_grace_seconds={grace:g} plus {_END_SECONDS} s for shutdown. Set "
                f"slurm_signal_delay_s={needed} or more, or lower stop_grace_seconds"
            )
            raise ValueError(message)
        minutes = math.ceil((delay + _START_SECONDS) / 60)
        if value.timeout_min is not None and value.timeout_min < minutes:
            enough = math.ceil((needed + _START_SECONDS) / 60) <= value.timeout_min
            less = f", or slurm_signal_delay_s={needed}" if enough else ""
            message = (
                f"timeout_min={value.timeout_min} is too short: the start needs "
                f"{_START_SECONDS} s, and the run stops {delay} s before the limit. "
                f"Set timeout_min={minutes} or more{less}"
            )
            raise ValueError(message)
        return value
