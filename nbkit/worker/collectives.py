"""NCCL's flight recorder: the last collective operations of a hanging run.

Hosts run ahead of their GPUs, so that where each host waits does not say which GPU
keeps the others waiting. The recorder does: the rank whose last operation is an earlier
one than the others'.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import torch
from torch._C import _distributed_c10d as distributed_c10d

from nbkit.errors import StoreError
from nbkit.store.heartbeat import COLLECTIVES_SIGNAL
from nbkit.store.record import parse_json, write_json
from nbkit.worker.rank import Rank

_RECORDED_OPERATIONS = "2000"
_NAMES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_RENAMED_IN = (2, 9)
"""The older name makes this torch and newer ones warn."""


def record_collectives(rank: Rank) -> None:
    """Let NCCL keep its last operations; write them down when the supervisor asks."""
    # Called before the process group is made.
    prepare_environment()
    file = rank.paths.rank(rank.attempt, rank.rank).collectives
    threading.Thread(target=_write_when_asked, args=(file,), daemon=True).start()


def prepare_environment() -> None:
    """Ask torch and NCCL to record and to warn; what the user has set stays."""
    # https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html
    newer = tuple(map(int, torch.__version__.split(".")[:2])) >= _RENAMED_IN
    if not any(name in os.environ for name in _NAMES):
        os.environ[_NAMES[0] if newer else _NAMES[1]] = _RECORDED_OPERATIONS
    os.environ.setdefault("NCCL_DEBUG", "WARN")


def _write_when_asked(file: Path) -> None:
    """Write the operations as JSON; the thread that trains may be waiting for a GPU."""
    signal.sigwait({COLLECTIVES_SIGNAL})
    try:
        write_json(file, parse_json(recorded_operations(), file))
    except (AttributeError, StoreError, RuntimeError, TypeError) as error:
        sys.stderr.write(f"{file.name} cannot be written: {error}\n")


def recorded_operations() -> bytes:
    """Return the recorded operations as JSON, from whichever NCCL backend torch has."""
    recorders: Any = distributed_c10d
    trace: bytes = recorders._dump_nccl_trace_json(includeCollectives=True)
    if b'"entries"' in trace:
        return trace
    with contextlib.suppress(AttributeError, TypeError):
        # Newer versions have a backend "nccl2", and a recorder for each backend.
        return recorders._dump_fr_trace_json(includeCollectives=True, backend="nccl2")
    return trace
