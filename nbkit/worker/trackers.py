"""Metrics that a script writes to TensorBoard or prints, recorded as by `nbkit.log`.

This gives an unchanged script curves, and a loss in the lists of runs. Once code or a
known trainer logs to nbkit, no new names are recorded from the other sources.
"""

from __future__ import annotations

import builtins
import functools
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

from nbkit.errors import ConfigError, RunError
from nbkit.store.printed import NUMBER, number
from nbkit.worker.rank_context import Source, context

_LOSSES = (
    *("train_loss", "train/loss", "loss/train", "training_loss", "train_loss_step"),
    "loss_metrics/global_avg_loss",  # torchtitan's
)
"""Tags of a training's loss, in lower case, which lists of runs show as ``loss``."""

_BEGIN = re.compile(r"\s*(?:iter|step)", re.IGNORECASE)
_STEP = re.compile(
    r"\s*(?:iter(?:ation)?|step)\s*[:=]?\s*(\d{1,3}(?:,\d{3})+|\d{1,18})\b(?!\.|,\d)"
    r"(?:\s*(?:/|of)\s*[\d,]+)?",
    re.IGNORECASE,
)
"""How a training's line begins: ``iter 10: loss 2.31``, ``step 9/99: val loss 2.4``."""
_VALUE = re.compile(
    rf"(?<![\w./-])([a-z][\w/-]*(?: [a-z][\w/-]*)?)\s*[:=]?\s*({NUMBER})(?!%)",
    re.IGNORECASE,
)
"""A name of one or two words, and a number without a unit."""


def follow_writers(tensorboard: ModuleType) -> None:
    """Record what the ``SummaryWriter`` of this module is given."""
    add = tensorboard.SummaryWriter.add_scalar

    @functools.wraps(add)
    def add_and_record(
        self: Any,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        add(self, tag, scalar_value, global_step, *args, **kwargs)
        name = "loss" if tag.lower() in _LOSSES else tag
        _record(Source.TRACKER, {name: scalar_value}, global_step)

    tensorboard.SummaryWriter.add_scalar = add_and_record


def follow_prints() -> None:
    """Record the numbers of lines that begin with a step."""
    write = builtins.print

    @functools.wraps(write)
    def print_and_record(*printed: Any, **options: Any) -> None:
        write(*printed, **options)
        is_printed = options.get("file") in (None, sys.stdout)
        first = printed[0] if is_printed and printed else None
        if not (isinstance(first, str) and _BEGIN.match(first)):
            return
        between = options.get("sep")
        text = (" " if between is None else between).join(map(str, printed))
        if step := _STEP.match(text):
            rest = _VALUE.findall(text[step.end() :])
            if values := {name: number(value) for name, value in rest}:
                _record(Source.PRINT, values, int(step[1].replace(",", "")))

    builtins.print = print_and_record


_failed: set[Source] = set()
"""Sources that are no longer recorded."""


def _record(source: Source, values: Mapping[str, Any], step: int | None) -> None:
    if source in _failed:
        return
    try:
        # TensorBoard takes more than numbers, and steps of any kind.
        with suppress(ConfigError, RunError):
            run = context()
            run.follow(source, values, run.step if step is None else int(step))
    except Exception as error:  # noqa: BLE001 - the user's code asked for none of this
        _failed.add(source)
        where = "" if step is None else f" from step {step} on"
        sys.stderr.write(
            f"nbkit: {source.name.lower()} values are not recorded{where} "
            f"({type(error).__name__}: {error}). The script continues.\n"
        )
