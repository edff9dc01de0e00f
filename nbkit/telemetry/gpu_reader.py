"""GPU reader for viewers, with retries and without hidden GPUs.

`GpuReader` does the work, and may hang in the driver; `GpuThread` lets it hang without
blocking any other thread.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from nbkit.errors import NvmlUnavailableError
from nbkit.telemetry.gpu_source import GpuSource, SourceSetting
from nbkit.telemetry.sample import GpuDevice, GpuSample, Xid
from nbkit.telemetry.visible_devices import visible_devices

_Gpu = TypeVar("_Gpu", GpuSample, GpuDevice)

_RETRY_SECONDS = 30.0
"""How often GPUs are looked for where there are none; a failed try takes 0.03 ms."""

_LONGEST_RETRY_SECONDS = 600.0
"""A GPU that stays lost is looked for less and less often: drivers have hung after many
initialisations.
"""

DRIVER_GPUS = Path("/proc/driver/nvidia/gpus")
"""A folder for each GPU that the driver knows: NVML itself sees a GPU that was plugged
in only when it is opened again.
"""


@dataclass(frozen=True)
class GpuReading:
    """One reading of all GPUs."""

    gpus: tuple[GpuSample, ...] = ()
    """GPUs in NVML's order, without those that CUDA_VISIBLE_DEVICES hides."""
    devices: dict[int, GpuDevice] = field(default_factory=dict)
    """Constant properties of each GPU, by NVML's index."""
    driver_version: str | None = None
    cuda_driver_version: str | None = None
    pids_are_here: bool = True
    """Whether pids may be those of processes of this machine."""
    reported_holders: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Facts of the source on a process, by pid: parts of a holder."""
    reason: str | None = None
    """Why GPUs cannot be read; None if they can."""
    message: str | None = None
    """The reason in a sentence, with the fix."""


class GpuReader:
    """Reads GPUs; any call may hang."""

    def __init__(self, setting: SourceSetting, gpus: Sequence[str] = ()) -> None:
        self._setting = setting
        self._visible = ",".join(gpus) or os.environ.get("CUDA_VISIBLE_DEVICES")
        self._source: GpuSource | None = None
        self._opened = GpuReading()
        self._wanted: list[GpuDevice] = []
        self._names: dict[int, tuple[str, str | None]] = {}
        self._xids: dict[str | None, Xid] = {}
        self._is_whole = True
        self._next_try = 0.0
        self._retry_seconds = _RETRY_SECONDS
        self._next_look = 0.0
        self._known_to_driver: set[str] = set()

    def read(self) -> GpuReading:
        """Return one reading; one without GPUs contains the reason."""
        try:
            if self._source is not None and self._should_reopen():
                self.close()
            if self._source is None:
                self._open_when_due()
            if self._source is None:
                return self._opened
            return self._read(self._source)
        except NvmlUnavailableError as error:
            self.close()
            self._next_try = time.monotonic() + _RETRY_SECONDS
            self._opened = GpuReading(reason=error.reason, message=str(error))
            return self._opened

    def close(self) -> None:
        """Close the GPUs; the next reading opens them again."""
        source, self._source = self._source, None
        self._next_try = 0.0
        if source is not None:
            source.close()

    def _open_when_due(self) -> None:
        if time.monotonic() < self._next_try:
            return
        self._known_to_driver = _known_to_driver()
        self._source = source = self._setting.open()
        devices = self._restore_names(source.devices())
        parents = {
            instance.uuid: gpu.uuid
            for gpu in source.read()
            for instance in gpu.mig_instances or ()
            if gpu.uuid is not None
        }
        self._wanted = sorted(
            visible_devices(devices, self._visible, parents), key=_index
        )
        self._opened = GpuReading(
            devices={device.index: device for device in devices},
            driver_version=source.driver_version,
            cuda_driver_version=source.cuda_driver_version,
            pids_are_here=source.pids_are_here,
            reported_holders=dict(source.reported_holders),
        )
        self._next_look = time.monotonic() + self._retry_seconds

    def _read(self, source: GpuSource) -> GpuReading:
        opened = self._opened
        selected = self._wanted
        if len(selected) == len(opened.devices):
            gpus = list(source.read())
        else:
            gpus = list(source.read({gpu.uuid for gpu in selected if gpu.uuid}))
            # The source cannot find one that was lost before its UUID was read.
            indices = {gpu.index for gpu in gpus}
            gpus += [
                GpuSample(gpu.index, gpu.uuid, gpu.name, gpu.error)
                for gpu in selected
                if gpu.index not in indices
            ]
        gpus = self._with_xids(self._restore_names(sorted(gpus, key=_index)))
        self._is_whole = all(gpu.error is None for gpu in gpus)
        reason, message = self._absence(gpus)
        return replace(opened, gpus=tuple(gpus), reason=reason, message=message)

    def _restore_names(self, gpus: Iterable[_Gpu]) -> list[_Gpu]:
        """Return GPUs with their names from before the source was opened again."""
        # One that was lost does not tell its UUID any more. It keeps its place among
        # the others, which are known by theirs.
        gpus = list(gpus)
        uuids = {gpu.uuid for gpu in gpus}
        recognised: list[_Gpu] = []
        for gpu in gpus:
            if gpu.uuid is not None:
                self._names[gpu.index] = (gpu.uuid, gpu.name)
            elif gpu.index in self._names:
                uuid, name = self._names[gpu.index]
                gpu = gpu if uuid in uuids else replace(gpu, uuid=uuid, name=name)
            recognised.append(gpu)
        return recognised

    def _with_xids(self, gpus: list[GpuSample]) -> list[GpuSample]:
        """Return GPUs with the errors heard before the source was opened again."""
        for gpu in gpus:
            if gpu.xid is not None:
                self._xids[gpu.uuid] = gpu.xid
        return [replace(gpu, xid=self._xids.get(gpu.uuid)) for gpu in gpus]

    def _absence(self, gpus: Sequence[GpuSample]) -> tuple[str | None, str | None]:
        if gpus:
            return None, None
        if self._opened.devices:
            count = len(self._opened.devices)
            hidden = "the only GPU" if count == 1 else f"all {count} GPUs"
            message = (
                f"CUDA_VISIBLE_DEVICES={self._visible!r} hides {hidden} of this "
                "machine. Change or unset it, then restart Jupyter or nbkit monitor."
            )
            return "hidden", message
        from nbkit.telemetry.nvml import unavailable

        return "no gpu", str(unavailable("no gpu"))

    def _should_reopen(self) -> bool:
        """Tell whether to open the source again: a GPU is lost, or others are there."""
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + _RETRY_SECONDS
        if _known_to_driver() != self._known_to_driver:
            self._retry_seconds = _RETRY_SECONDS
            return True
        if self._is_whole and self._opened.devices:
            self._retry_seconds = _RETRY_SECONDS
            return False
        self._retry_seconds = min(2 * self._retry_seconds, _LONGEST_RETRY_SECONDS)
        return True


def _index(gpu: GpuSample | GpuDevice) -> int:
    return gpu.index


def _known_to_driver() -> set[str]:
    try:
        return set(os.listdir(DRIVER_GPUS))  # noqa: PTH208  (names alone)
    except OSError:
        return set()  # No driver, or a container that hides it.


class GpuThread(threading.Thread):
    """Reads GPUs when asked, in a thread that may hang."""

    def __init__(self, reader: GpuReader, wake_fd: int) -> None:
        super().__init__(name="gpus", daemon=True)
        self._reader = reader
        self._wake_fd = wake_fd
        self._wanted = threading.Event()
        self._reading: GpuReading | None = None
        self.asked_at: float | None = None
        """When the reading that is under way was asked for, `time.monotonic`; None
        while there is none.
        """
        self.failed = False
        """Whether it ended by an error, which is a defect of nbkit's."""

    def ask(self) -> None:
        """Request a reading; none may be in progress."""
        self.asked_at = time.monotonic()
        self._wanted.set()

    def take(self) -> GpuReading | None:
        """Return the requested reading once; None if it is not ready yet."""
        reading, self._reading = self._reading, None
        if reading is not None:
            self.asked_at = None
        return reading

    def run(self) -> None:
        """Read on each request, endlessly."""
        try:
            while True:
                self._wanted.wait()
                self._wanted.clear()
                self._reading = self._reader.read()
                os.write(self._wake_fd, b"\0")
        except BaseException:  # noqa: BLE001  (the process ends by it)
            # Said here, since the process ends as soon as it hears of it.
            traceback.print_exc()
            self.failed = True
            os.write(self._wake_fd, b"\0")
