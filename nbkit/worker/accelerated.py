"""Whether accelerate has taken what `notebook_launcher` was asked for.

It is told by environment variables, and one that it does not read changes nothing: it
computes without mixed precision, or each rank trains alone.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from nbkit.config.accelerate_variables import MIXED_PRECISION
from nbkit.errors import RunError
from nbkit.health import installed


def check_accelerate(environment: Mapping[str, str], world_size: int) -> None:
    """Compare what this process's `Accelerator` has with what the launch asked for."""
    asked = environment.get(MIXED_PRECISION)
    state = sys.modules.get("accelerate.state")
    if asked is None or state is None:
        return
    name = f"accelerate {installed('accelerate')}"
    try:
        if not state.is_initialized():
            return
        used = state.AcceleratorState()
        found, precision = used.num_processes, used.mixed_precision
    except AttributeError as error:
        sys.stderr.write(
            f"nbkit: {name} does not say what it has used ({error}); that it took "
            f"mixed_precision={asked!r} and knows {world_size} processes is unchecked: "
            "print both from the function.\n"
        )
        return
    if found != world_size:
        message = (
            f"the Accelerator of {name} knew {found} of {world_size} processes, so "
            "each trained alone; use the version of accelerate that was installed when "
            "this worked, or nbkit.launch with init_process_group()."
        )
        raise RunError(message)
    # The function may have chosen "no" itself; a result is not lost for that.
    if asked != "no" and precision == "no":
        sys.stderr.write(
            f"nbkit: notebook_launcher was called with mixed_precision={asked!r}, but "
            f"the Accelerator of {name} computed with 'no'; pass mixed_precision="
            f"{asked!r} to Accelerator(), or 'no' to notebook_launcher.\n"
        )
