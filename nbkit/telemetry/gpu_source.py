"""Source of GPU readings: NVML, or a replayed trace."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeAlias

if TYPE_CHECKING:
    from nbkit.telemetry.nvml import Nvml
    from nbkit.telemetry.replay import Replay

SOURCE_VARIABLE = "NBKIT_GPU_SOURCE"
"""``nvml`` (as if unset) or ``replay:FILE_OR_NAME``; only viewers follow it, never the
record of a run.
"""


GpuSource: TypeAlias = "Nvml | Replay"
"""Reader of GPUs. Any call may hang, like those of NVML."""


@dataclass(frozen=True)
class SourceSetting:
    """The source that this process should read."""

    kind: str
    """``nvml`` or ``replay``; `open` raises for any other value."""
    name: str = ""
    """File of the replay, or the name of the trace that comes with nbkit."""

    @classmethod
    def from_environment(cls) -> Self:
        """Return the source set in the environment; the default is NVML."""
        kind, _, name = os.environ.get(SOURCE_VARIABLE, "").partition(":")
        return cls(kind or "nvml", name)

    def open(self) -> GpuSource:
        """Return the source, opened; close it when done."""
        # Each here, since importing pynvml takes longer than all the rest.
        if self.kind == "nvml":
            from nbkit.telemetry.nvml import open_nvml

            return open_nvml(detailed=True)
        from nbkit.telemetry.replay import open_replay, refuse

        if self.kind != "replay":
            text = f"{self.kind}:{self.name}".removesuffix(":")
            raise refuse(text, "no such source")
        return open_replay(self.name)
