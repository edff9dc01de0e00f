"""What a kind of study does before each start, by the kind's name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

__all__ = ["before_start"]

_BEFORE = {"storage": "nbkit.study.storage_data"}
"""By kind, the module whose ``before_start(plan, data)`` is called. Names, not what an
imported file asks for."""


def before_start(
    kind: str | None, plan: Mapping[str, Any], arm: Mapping[str, Any]
) -> dict[str, str]:
    """Do what has to be done before a start; return tags for its record.

    Parameters
    ----------
    kind, plan
        The study's.
    arm
        Fields of the configuration that is started next.
    """
    module = _BEFORE.get(kind or "")
    # On another machine nothing can be done, and its page cache is unknown.
    if module is None or arm.get("engine", "local") != "local":
        return {}
    return importlib.import_module(module).before_start(plan, arm["data"])
