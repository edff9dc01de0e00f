"""How busy an emulated accelerator was kept, by MLPerf Storage's definition."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def accelerator_utilization(
    steps: Sequence[Mapping[str, Any]], emulated_step_seconds: float
) -> float | None:
    """Return the share of the time in which the accelerators would have computed.

    The time to compute is that of all steps but the first, which has nothing to be
    fetched in the background; the rest of the time they waited for data or for each
    other. MLPerf Storage asks for 0.90 with ResNet-50.

    Parameters
    ----------
    steps
        Every step of a run of ``task="load"``, warm-up included, in their order.
    emulated_step_seconds
        Of the run's configuration.

    Returns
    -------
    float or None
        Between 0 and 1; None with fewer than two steps, or nothing emulated.

    References
    ----------
    https://github.com/mlcommons/storage/blob/main/Submission_guidelines.md
    """
    counted = steps[1:]
    total = math.fsum(step["step_time_seconds"] for step in counted)
    if total <= 0 or emulated_step_seconds <= 0:
        return None
    return len(counted) * emulated_step_seconds / total
