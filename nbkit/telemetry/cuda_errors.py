"""CUDA errors, with causes and fixes: the table is ``gpu_errors.json``.

CUDA itself tells the error's number and name; what to do is not in it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class CudaAdvice:
    """Meaning of a CUDA error, and its fix."""

    text: str
    """One sentence without a full stop."""
    may_pass: bool = False
    """Whether a new attempt on the same GPU may succeed."""


_TABLES = resources.files("nbkit.telemetry") / "gpu_errors.json"
_HINTS = re.compile(r"Did you run some cuda functions .*?\? | Please .*$")


@cache
def gpu_errors() -> dict[str, Any]:
    """Return the table of errors: ``cuda`` by pattern, ``xids`` by code."""
    return json.loads(_TABLES.read_text(encoding="utf-8"))


def cuda_advice(message: str) -> CudaAdvice | None:
    """Return advice on a CUDA, torch or NVML error; None if it is not about a GPU."""
    for row in gpu_errors()["cuda"]:
        if re.search(row["pattern"], message, re.IGNORECASE):
            return CudaAdvice(row["advice"], row.get("may_pass", False))
    return None


_OUT_OF_MEMORY = (
    "out of memory",
    "alloc_failed",
    "unable to find an engine to execute",
)


def is_out_of_memory(message: str) -> bool:
    """Return whether CUDA, cuBLAS, cuDNN or NCCL say that the GPU's memory is full."""
    # Outside its own allocator torch passes on what they say. Where cuDNN tries its
    # plans out, those that get no workspace are passed over until none is left.
    text = message.lower()
    return any(words in text for words in _OUT_OF_MEMORY)


def first_line(message: str) -> str:
    """Return the text of an error without the general hints that torch adds."""
    line = message.strip().partition("\n")[0]
    return _HINTS.sub("", line).strip().rstrip(".;")
