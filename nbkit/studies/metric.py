"""The metric of a study: one number a run, and which direction is better."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal, Self, cast

from nbkit.errors import ConfigError, DivergedError, NotEnoughDataError
from nbkit.launch.run import Run
from nbkit.statistics import MINIMUM_RUNS, noise_floors_below
from nbkit.studies.durations import run_seconds

Better = Literal["higher", "lower"]

_TIMED = re.compile(
    r"sec|minute|(?<![a-z])hours?(?![a-z])|time|duration|elapsed|latency|throughput|bandwidth|speed|mfu|flops|"
    r"energy|joule|power|watt|[/_]s(?![a-z])|(?:steps|samples|tokens|images|it)/min(?![a-z_-])|(?<![a-z])(?:ms|dt|wall|[a-z]?ps|k?wh)(?![a-z])",
    re.IGNORECASE,
)
"""Names of times, rates and energies."""

_FORM = re.compile(r"(?:(mean|best|returned|step(\d+)):)?(.*)", re.DOTALL)
"""What stands before a name: ``best:val_loss``; the last value without it."""

SECONDS = "seconds"
"""The metric of a run that logs nothing: from its start to its end."""


@dataclass(frozen=True)
class Metric:
    """The metric by which a study compares its arms."""

    name: str
    better: Better
    margin: float
    """Smallest relative difference that gets a verdict; 0.02 is 2 %."""
    minimum_runs: int = MINIMUM_RUNS
    """Finished starts per arm that a verdict needs."""
    discard_floors: float | None = None
    """An arm that is worse than the base by more noise floors than this is not started
    again, unless the control differs by at least as much; None never discards one."""

    @classmethod
    def chosen(
        cls,
        name: str | None,
        better: str | None,
        margin: float,
        minimum_runs: int = MINIMUM_RUNS,
        discard_floors: float | None = None,
    ) -> Self | None:
        """Return the metric that a user chose; None for images per second."""
        if name is None:
            settings = {
                f"better={better!r}": better is not None,
                f"margin={margin:g}": margin,
                f"minimum_runs={minimum_runs}": minimum_runs != MINIMUM_RUNS,
                f"discard_floors={discard_floors}": discard_floors is not None,
            }
            if given := [text for text, is_set in settings.items() if is_set]:
                message = (
                    f"{', '.join(given)} without a metric is invalid. Set metric, for "
                    "example metric='val_loss'."
                )
                raise ConfigError(message)
            return None
        if better not in ("higher", "lower"):
            message = (
                f"better={better!r} is invalid for metric={name!r}. Use 'lower', for "
                "example for a loss or time, or 'higher', for example for an accuracy "
                "or rate."
            )
            raise ConfigError(message)
        if not 0 <= margin < 1:
            message = f"margin={margin:g} is not between 0 and 1. Use 0.02 for 2%."
            raise ConfigError(message)
        if not isinstance(minimum_runs, int) or minimum_runs < 2:
            message = (
                f"minimum_runs={minimum_runs!r} is not an integer of 2 or more. A CI "
                "requires at least 2 runs per arm."
            )
            raise ConfigError(message)
        if discard_floors is not None and not discard_floors >= 1:
            message = (
                f"discard_floors={discard_floors!r} would discard arms because of "
                "noise. Use 1 or more, such as 5."
            )
            raise ConfigError(message)
        return cls(name, better, float(margin), minimum_runs, discard_floors)

    @property
    def is_timed(self) -> bool:
        """Whether its name suggests a time or rate, which other load affects."""
        return bool(_TIMED.search(self.name))

    def floors_worse(
        self,
        values: Sequence[float],
        base_values: Sequence[float],
        control_values: Sequence[float] = (),
    ) -> float | None:
        """Return by how many noise floors an arm is to be discarded; None if not.

        It is not if the control differs from the base by as much.
        """
        if self.discard_floors is None or not (values and base_values):
            return None
        is_higher = self.better == "higher"
        ratio = median(values) / median(base_values)
        if (1 - ratio if is_higher else ratio - 1) <= self.margin:
            return None
        if control_values:
            control_ratio = median(control_values) / median(base_values)
            if abs(math.log(control_ratio)) >= abs(math.log(ratio)):
                return None
        floors = noise_floors_below(values, base_values, higher_is_better=is_higher)
        return None if floors is None or floors <= self.discard_floors else floors

    def value(self, run: Run) -> float:
        """Return the metric of a finished run.

        The first of these that exists: the last value logged under this name (if it is
        only printed, one in the last 50 lines replaces it); the field of
        ``run.summary`` with this name; for ``seconds``, the time from start to end; the
        last ``name: value`` or ``name=value`` in the last 50 lines that rank 0 printed,
        else that of the only name that ends in it (``final name: value``). Of
        logged values, ``mean:name`` is their mean, ``best:name`` the best,
        ``step100:name`` that of step 100. ``returned`` is the number that a function
        returned, ``returned:name`` a number of the dict that it returned.
        """
        lines = run.metrics(None)
        logs = [line for line in lines if line["kind"] == "log"]
        at_end = [line["values"] for line in logs if line.get("at_end")]
        printed = at_end[-1] if at_end else {}
        logs = [line for line in logs if not line.get("at_end")]
        logged = {name for line in logs for name in line["values"]}
        form, step, name = cast("re.Match[str]", _FORM.fullmatch(self.name)).groups()
        if self.name in logged:  # code may log a name such as "best:loss"
            form, step, name = None, None, self.name
        elif "returned" in (form, self.name):
            form, logs = (
                "returned",
                [line for line in lines if line["kind"] == "returned"],
            )
        of_name = [line for line in logs if name in line["values"]]
        values = [
            line["values"][name]
            for line in of_name
            if step in (None, str(line["step"]))
        ]
        value = self._one_of(values, form) if values else None
        # A line that it prints at the end is newer than those of its steps.
        is_printed = form is None and of_name and of_name[-1].get("printed")
        if is_printed and name in printed:
            value = _printed(printed, name)
        if value is None:
            value = getattr(run.summary, self.name, None)
        if value is None and hasattr(run.summary, self.name) and run.nonfinite:
            value = math.nan
        if value is None and self.name == SECONDS:
            value = run_seconds(run.record)
        if value is None:
            value = _printed(printed, self.name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            remedy = f"Call nbkit.log({{{name!r}: ...}})"
            if form is None:
                remedy += f", or print '{name}: 0.5'"
            elif step is not None:
                remedy += f" at step {step}"
            elif form == "returned":
                remedy = "Return a number, or {'loss': 0.5} for returned:loss"
            message = (
                f"run {run.run_id} has no metric {self.name!r}; it logged "
                f"{', '.join(sorted(logged)) or 'nothing'} and printed "
                f"{', '.join(sorted(printed)) or 'nothing'}. {remedy}."
            )
            raise NotEnoughDataError(message)
        if not math.isfinite(value):
            message = f"metric {self.name!r} of run {run.run_id} is not finite."
            raise DivergedError(message)
        if value <= 0:
            message = (
                f"metric {self.name!r} of run {run.run_id} is {value:g}, but must be "
                "above 0. Log a positive metric, such as a loss, an error "
                "rate or a time."
            )
            raise NotEnoughDataError(message)
        return float(value)

    def _one_of(self, values: Sequence[float | None], form: str | None) -> float:
        """Return one of values that were recorded; NaN for what is not finite."""
        finite = [value for value in values if value is not None]
        if form == "best":
            best = min if self.better == "lower" else max
            return best(finite, default=math.nan)
        if form == "mean":
            return fmean(finite) if len(finite) == len(values) else math.nan
        return math.nan if values[-1] is None else values[-1]


def _printed(values: Mapping[str, float | None], name: str) -> float | None:
    """Return the value of the name, else that of ``final loss`` for ``loss``."""
    names = [key for key in values if key.endswith(f" {name}")]
    if name not in values and len(names) != 1:
        return None
    value = values[name if name in values else names[0]]
    return math.nan if value is None else value
