"""What values of an experiment must be, each by itself and beside the others.

A check of several fields stands at the one that is declared last, since it sees the
values of those before it; the error then names that one.
"""

from __future__ import annotations

import math
import os
from typing import Any, ClassVar

from pydantic import ValidationInfo, field_validator

from nbkit.config.determinism import not_deterministic
from nbkit.config.image_sizes import image_size_problem, single_image_problem
from nbkit.config.model import Model, reads_store
from nbkit.config.slurm import SIGNAL_DELAY_LIMIT, SlurmConfig
from nbkit.errors import LaunchError
from nbkit.packages import not_installed
from nbkit.registry import Kind, names, suggest

DEFAULT_STEPS = 100
PROFILED_STEPS = 5
"""Steps after the warm-up that ``profile`` takes out of what is measured."""
_START_SECONDS = 120
"""A job of Slurm's needs so long at least to start its ranks and to do a step: Slurm
looks at time limits twice a minute, and may be a minute early."""
_END_SECONDS = 30
"""After the grace, for ending ranks by force and for the last word."""


class ExperimentChecks(Model):
    """Checks of the fields that `ExperimentConfig` declares."""

    _REGISTERED: ClassVar[dict[str, Kind]] = {
        "model": "models",
        "loader": "loaders",
        "engine": "engines",
    }

    @field_validator("model", "loader", "engine", check_fields=False)
    @classmethod
    def _is_registered(cls, value: str, info: ValidationInfo) -> str:
        known = names(cls._REGISTERED[str(info.field_name)])
        if value not in known and not reads_store.get():
            if not known:
                # No error of this field: pydantic would collect one for each.
                raise LaunchError(not_installed())
            shown = ", ".join(known if len(known) < 12 else known[:10])
            if len(known) >= 12:
                shown += f" and {len(known) - 10} others"
            message = f"not registered; known: {shown}"
            if near := suggest(value, known):
                message += f".{near}"
            raise ValueError(message)
        return value

    @field_validator("emulated_step_seconds", check_fields=False)
    @classmethod
    def _emulation_needs_a_load(cls, value: float, info: ValidationInfo) -> float:
        if value and info.data.get("task") != "load":
            message = (
                f"replaces computing, but task={info.data.get('task')!r} computes "
                "itself; set task='load', or use 0"
            )
            raise ValueError(message)
        return value

    @field_validator("weights", check_fields=False)
    @classmethod
    def _weights_need_a_model(cls, value: str, info: ValidationInfo) -> str:
        if not value:
            message = "is empty; use 'random', 'pretrained', a run or a checkpoint"
            raise ValueError(message)
        if value != "random" and info.data.get("task") not in ("train", "inference"):
            message = (
                f"belong to a model, but task={info.data.get('task')!r} builds none; "
                "use 'random'"
            )
            raise ValueError(message)
        return value

    @field_validator("precision", check_fields=False)
    @classmethod
    def _int8_does_not_train(cls, value: str, info: ValidationInfo) -> str:
        if value == "int8" and info.data.get("task") != "inference":
            message = "is for task='inference'; use 'fp16' or 'bf16'"
            raise ValueError(message)
        return value

    @field_validator("batch_size_per_gpu", check_fields=False)
    @classmethod
    def _max_is_for_training(cls, value: int | str, info: ValidationInfo) -> Any:
        if value == "max" and info.data.get("task") in ("load", "inference"):
            message = (
                "'max' is probed with training steps, which "
                f"task={info.data.get('task')!r} does not have; use a number"
            )
            raise ValueError(message)
        return value

    @field_validator("cuda_graphs", check_fields=False)
    @classmethod
    def _graphs_need_steps_of_a_fixed_shape(
        cls, value: bool, info: ValidationInfo
    ) -> bool:
        is_inference = info.data.get("task") == "inference"
        if value and is_inference and not reads_store.get():
            message = (
                "is for training steps, task='inference' has none; set "
                "cuda_graphs=False, or compile=True"
            )
            raise ValueError(message)
        if value and info.data.get("compile"):
            message = (
                "cannot be combined with compile=True; choose one: compile=True fuses "
                "kernels, cuda_graphs=True removes their launch cost"
            )
            raise ValueError(message)
        return value

    @field_validator("data", mode="before", check_fields=False)
    @classmethod
    def _data_may_be_a_path(cls, value: Any) -> Any:
        text = os.fspath(value) if isinstance(value, os.PathLike) else value
        if text == "":
            message = "is empty; name a folder of images, or use 'synthetic'"
            raise ValueError(message)
        return text

    @field_validator("gradient_accumulation_steps", check_fields=False)
    @classmethod
    def _graphs_do_not_accumulate(cls, value: int, info: ValidationInfo) -> int:
        if value > 1 and info.data.get("cuda_graphs"):
            # The next replay overwrites the gradients that are being summed:
            # https://github.com/pytorch/pytorch/issues/181723
            message = "cannot be combined with cuda_graphs=True; choose one"
            raise ValueError(message)
        return value

    @field_validator("steps", mode="before", check_fields=False)
    @classmethod
    def _steps_is_no_switch(cls, value: Any) -> Any:
        if isinstance(value, bool):
            message = "true and false are not numbers of steps; use a number"
            raise ValueError(message)
        return value

    @field_validator("steps", check_fields=False)
    @classmethod
    def _one_length(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("epochs") is not None:
            message = f"set together with epochs={info.data['epochs']}; set one"
            raise ValueError(message)
        return value

    @field_validator("warmup_steps", check_fields=False)
    @classmethod
    def _leaves_steps_to_measure(cls, value: int, info: ValidationInfo) -> int:
        steps = info.data.get("steps")
        if steps is None and info.data.get("epochs") is None:
            steps = DEFAULT_STEPS
        has_steps = info.data.get("task") in ("train", "load")
        if has_steps and steps is not None and value >= steps:
            message = (
                f"leaves none of steps={steps} to measure; use {steps - 1} or less"
            )
            raise ValueError(message)
        return value

    @field_validator("profile", check_fields=False)
    @classmethod
    def _profile_leaves_steps_to_measure(
        cls, value: bool, info: ValidationInfo
    ) -> bool:
        if not value:
            return value
        if info.data.get("task") != "train":
            message = (
                f"traces task='train', not {info.data.get('task')!r}; leave it out: "
                "your own code can call torch.profiler"
            )
            raise ValueError(message)
        steps = info.data.get("steps")
        if steps is None and info.data.get("epochs") is None:
            steps = DEFAULT_STEPS
        needed = info.data.get("warmup_steps", 0) + PROFILED_STEPS + 1
        if steps is not None and steps < needed:
            message = (
                f"leaves none of steps={steps} to measure after the warm-up and "
                f"{PROFILED_STEPS} profiled steps; use steps={needed} or more"
            )
            raise ValueError(message)
        return value

    @field_validator("image_size", check_fields=False)
    @classmethod
    def _model_takes_the_size(cls, value: int, info: ValidationInfo) -> int:
        has_model = info.data.get("task") in ("train", "inference")
        if not has_model or reads_store.get():
            return value
        model = info.data.get("model", "")
        why = image_size_problem(model, value)
        if info.data["task"] == "train" and info.data.get("batch_size_per_gpu") == 1:
            why = why or single_image_problem(model, value)
        if why:
            raise ValueError(why)
        return value

    @field_validator("crop_area_max", check_fields=False)
    @classmethod
    def _crop_range(cls, value: float, info: ValidationInfo) -> float:
        low = info.data.get("crop_area_min")
        if low is not None and value < low:
            message = f"below crop_area_min={low}; use {low} to 1"
            raise ValueError(message)
        return value

    @field_validator("target_accuracy", check_fields=False)
    @classmethod
    def _target_needs_evaluation(
        cls, value: float | None, info: ValidationInfo
    ) -> float | None:
        period = info.data.get("evaluation_period_epochs")
        if value is not None and period is None:
            message = "has no effect without evaluation; set evaluation_period_epochs"
            raise ValueError(message)
        return value

    @field_validator("gpus", "nnodes", check_fields=False)
    @classmethod
    def _inference_is_of_one_device(cls, value: int, info: ValidationInfo) -> int:
        if value > 1 and info.data.get("task") == "inference":
            message = "task='inference' times one device; use 1, and a run for each"
            raise ValueError(message)
        return value

    @field_validator("device", check_fields=False)
    @classmethod
    def _device_fits(cls, value: str, info: ValidationInfo) -> str:
        on_cpus = value in ("cpu", "replay")
        if on_cpus and info.data.get("cuda_graphs"):
            message = "CUDA graphs need a GPU; set cuda_graphs=False or device='cuda'"
            raise ValueError(message)
        if on_cpus and info.data.get("precision") == "tf32":
            message = "TF32 is a format of GPUs; use precision='fp32' or 'bf16'"
            raise ValueError(message)
        if on_cpus and info.data.get("batch_size_per_gpu") == "max":
            message = "batch_size_per_gpu='max' is probed in GPU memory; use a number"
            raise ValueError(message)
        if value == "cuda" and not reads_store.get():
            cls._fits_a_gpu(info.data)
        return value

    @classmethod
    def _fits_a_gpu(cls, values: dict[str, Any]) -> None:
        """Refuse what a rank on a GPU would refuse too, once it has started."""
        trains = values.get("task") == "train"
        if trains and values.get("deterministic"):
            why = not_deterministic(values.get("model", ""))
            if why is not None:
                raise ValueError(why)
        if values.get("precision") == "int8" and values.get("compile") is False:
            message = (
                "precision='int8' is slower than fp16 on a GPU unless it is compiled; "
                "set compile=True"
            )
            raise ValueError(message)

    @field_validator("devices", check_fields=False)
    @classmethod
    def _devices_fit(
        cls, value: tuple[int | str, ...] | None, info: ValidationInfo
    ) -> tuple[int | str, ...] | None:
        if value is None:
            return None
        if info.data.get("device") == "cpu":
            message = "names GPUs, but device='cpu'; remove one of the two"
            raise ValueError(message)
        if len(set(map(str, value))) != len(value):
            message = "names a device twice; name each once (oversubscribe=True shares)"
            raise ValueError(message)
        return value

    @field_validator("oversubscribe", check_fields=False)
    @classmethod
    def _enough_devices(cls, value: bool, info: ValidationInfo) -> bool:
        devices, gpus = info.data.get("devices"), info.data.get("gpus")
        if devices is not None and gpus and len(devices) > gpus:
            message = (
                f"devices names {len(devices)}, but gpus={gpus} ranks use only {gpus}; "
                f"use gpus={len(devices)} or name fewer"
            )
            raise ValueError(message)
        if devices is not None and gpus and len(devices) < gpus and not value:
            message = (
                f"gpus={gpus} ranks need {gpus} devices, but devices names "
                f"{len(devices)}; use gpus={len(devices)} or oversubscribe=True"
            )
            raise ValueError(message)
        return value

    @field_validator("cpus", check_fields=False)
    @classmethod
    def _cpus_fit(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if value is not None and not value:
            message = "names no CPU; name one or more, or leave it at None"
            raise ValueError(message)
        if value is not None and len(set(value)) != len(value):
            message = "names a CPU twice; name each once"
            raise ValueError(message)
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
                f"slurm_signal_delay_s={delay} is too short for stop_grace_seconds="
                f"{grace:g} and {_END_SECONDS} s to end; set slurm_signal_delay_s="
                f"{needed} or more, or stop_grace_seconds lower"
            )
            raise ValueError(message)
        minutes = math.ceil((delay + _START_SECONDS) / 60)
        if value.timeout_min is not None and value.timeout_min < minutes:
            enough = math.ceil((needed + _START_SECONDS) / 60) <= value.timeout_min
            delayed = f"slurm_signal_delay_s={needed}"
            less = delayed if enough else "stop_grace_seconds lower"
            message = (
                f"timeout_min={value.timeout_min} is too short: a run may need "
                f"{_START_SECONDS} s to start, and saves and ends {delay} s before its "
                f"limit; set timeout_min={minutes} or more, or {less}"
            )
            raise ValueError(message)
        return value
