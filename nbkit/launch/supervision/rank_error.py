"""Classification of the exception that ended a rank.

A rank whose neighbour is gone fails too, and may do so before the supervisor notices
who was first. That is seen by what was raised, and by where; by words last of all,
which libraries change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from nbkit.store.heartbeat import Phase
from nbkit.telemetry.cuda_errors import is_out_of_memory

OF_COMMUNICATION = {"DistBackendError", "DistNetworkError", "DistStoreError"}
"""Classes of what `torch.distributed` raises where another process does not answer."""

_COMMUNICATES = ("torch.distributed", "torch.nn.parallel")
"""Modules from which errors of gloo come, as plain RuntimeErrors."""

_LOST_NEIGHBOUR = re.compile(
    r"connection (was )?(closed|reset|refused|aborted)|broken pipe|got 0 bytes|"
    r"remote (process|worker)|timed out waiting|watchdog caught collective|"
    r"ncclRemoteError|ncclSystemError|communicator was aborted",
    re.IGNORECASE,
)

_LOST_PROCESS = re.compile(
    r"DataLoader worker \(pid(?!.*signal: (?!Killed))|^BrokenProcessPool|"
    r"^TerminatedWorkerError"
)
"""A DataLoader's, of concurrent.futures, and of joblib; no other signal is memory's."""

_BY_ITSELF = re.compile(
    r"cuda|cudnn|cublas|gradient|in-?place|finished reduction", re.IGNORECASE
)
"""What torch raises as a plain RuntimeError in a backward pass, by the rank's fault."""

_KINDS = (
    ("OutOfMemoryError", "out_of_memory"),
    ("MemoryError", "out_of_memory"),
    ("StoreError", "store"),
    ("ConfigError", "config"),
    ("DeviceError", "device"),
    ("NonFiniteError", "nonfinite"),
)
_OF_TORCH = ("AcceleratorError", "DistBackendError", "RuntimeError")
"""What torch raises for an error of CUDA, its libraries and NCCL."""


@dataclass(frozen=True)
class RankError:
    """An exception, as `nbkit.worker.error_file` has written it down."""

    message: str
    """The exception's own line, which begins with its class."""
    classes: tuple[str, ...]
    """Its class, and those of which it is one too."""
    module: str
    """Where it was raised; empty if unknown."""
    traceback: str | None

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RankError:
        """Return what is in an error file; torchelastic's own tell less."""
        content = values["message"]
        if not isinstance(content, dict):
            content = {"message": content}
        message, extra = str(content["message"]), content.get("extraInfo", {})
        return cls(
            message,
            tuple(extra.get("classes") or [message.partition(":")[0]]),
            extra.get("module") or "",
            extra.get("py_callstack"),
        )

    @property
    def kind(self) -> str:
        """The kind of cause that it is."""
        for name, kind in _KINDS:
            if name in self.classes:
                return kind
        runs_out = self.classes[0] in _OF_TORCH and is_out_of_memory(self.message)
        return "out_of_memory" if runs_out else "exception"

    @property
    def has_lost_a_process(self) -> bool:
        """Whether it says that a process which worked for the rank has ended."""
        return _LOST_PROCESS.search(self.message) is not None

    def is_of_a_neighbour(self, phase: Phase | None) -> bool:
        """Return whether it looks like the echo of another rank's end."""
        if self.kind == "out_of_memory":
            return False
        if not OF_COMMUNICATION.isdisjoint(self.classes):
            return True
        communicated = self.module.startswith(_COMMUNICATES)
        if (
            self.classes[0] == "RuntimeError"
            and (communicated or phase is Phase.COLLECTIVE)
            and not _BY_ITSELF.search(self.message)
        ):
            return True
        return _LOST_NEIGHBOUR.search(self.message) is not None
