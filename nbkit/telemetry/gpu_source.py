"""Source of GPU readings: NVML, or a replayed trace."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

from nbkit.telemetry.sample import GpuDevice, GpuSample

SOURCE_VARIABLE = "NBKIT_GPU_SOURCE"
"""``nvml`` (as if unset) or ``replay:FILE_OR_NAME``; only viewers follow it, never the
record of a run.
"""


class GpuSource(Protocol):
    """What reads GPUs: `nbkit.telemetry.nvml.Nvml` or `nbkit.telemetry.replay.Replay`.

    Any call may hang, as one of NVML may.
    """

    @property
    def driver_version(self) -> str | None:
        """Version of the driver."""
        ...

    @property
    def cuda_driver_version(self) -> str | None:
        """Newest CUDA that the driver runs."""
        ...

    @property
    def pids_are_here(self) -> bool:
        """Whether its pids may be those of processes of this machine."""
        ...

    @property
    def reported_holders(self) -> Mapping[int, dict[str, Any]]:
        """What the source itself says of a process, by pid: parts of a holder."""
        ...

    def devices(self) -> tuple[GpuDevice, ...]:
        """Return what does not change about each GPU."""
        ...

    def read(self, uuids: Collection[str] | None = None) -> tuple[GpuSample, ...]:
        """Return one reading of each GPU, or of those with these UUIDs."""
        ...

    def close(self) -> None:
        """Let the GPUs go."""
        ...


@dataclass(frozen=True)
class SourceSetting:
    """The source that this process should read."""

    kind: str
    """``nvml`` or ``replay``; also another word, which `open` refuses."""
    name: str = ""
    """Of a replay: its file, or the name of a trace that comes with nbkit."""

    @classmethod
    def from_environment(cls) -> Self:
        """Return what the environment says; NVML unless it says otherwise."""
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
