"""GPUs that the form offers: free memory, and processes on each."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import psutil

from nbkit.errors import NbkitError
from nbkit.launch.devices.claims import leases
from nbkit.plural import plural
from nbkit.statistics.quantities import size
from nbkit.store.processes import RUN_ID_VARIABLE
from nbkit.telemetry.cpus import usable_cpus
from nbkit.telemetry.gpu_reader import GpuReader, GpuReading
from nbkit.telemetry.gpu_source import SourceSetting
from nbkit.telemetry.gpu_users import gpu_users
from nbkit.telemetry.holders import HolderFinder
from nbkit.telemetry.sample import GpuProcess, GpuSample, MigSample

LIMIT_SECONDS = 10.0
"""After this the driver is reported to hang; most drivers answer within 0.1 s."""

READING: dict[str, Any] = {"text": "Looking for GPUs …", "replayed": False, "gpus": []}
"""What is shown before the first answer."""


class GpuLook:
    """Reads the GPUs in separate threads: a call into the driver may hang."""

    def __init__(self, show: Callable[[dict[str, Any]], None]) -> None:
        self._show = show
        self._lock = threading.Lock()
        self._is_looking = False
        self._is_closed = False
        self._setting = SourceSetting.from_environment()
        self._reader: GpuReader | None = None

    def start(self) -> None:
        """Start a reading, unless one is in progress."""
        with self._lock:
            if self._is_looking or self._is_closed:
                return
            self._is_looking = True
            threading.Thread(target=self._look, name="form-gpus", daemon=True).start()

    def close(self) -> None:
        """Release the GPUs for good, after the reading in progress."""
        with self._lock:
            self._is_closed = True
            if not self._is_looking:
                self._close_reader()

    def _look(self) -> None:
        late = threading.Timer(LIMIT_SECONDS, self._show_timeout)
        late.daemon = True
        late.start()
        try:
            # It stays open: to open the driver takes long.
            self._reader = self._reader or GpuReader(self._setting)
            reading = self._reader.read()
            offer = describe_gpus(reading, replayed=self._setting.kind == "replay")
        except Exception as error:  # noqa: BLE001 - the form shows it
            what = traceback.format_exception_only(error)[-1].strip().rstrip(".")
            text = f"The GPUs could not be read: {what}. Enter devices manually."
            offer = {"text": text, "replayed": False, "gpus": []}
        late.cancel()
        with self._lock:
            self._is_looking = False
            if self._is_closed:
                self._close_reader()
        self._show(offer)

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _show_timeout(self) -> None:
        text = (
            f"The GPU driver has not responded for {LIMIT_SECONDS:.0f} s. "
            "Enter devices manually, or ask the administrator."
        )
        self._show({"text": text, "replayed": False, "gpus": []})


def describe_gpus(reading: GpuReading, *, replayed: bool) -> dict[str, Any]:
    """Return what the form shows of the GPUs."""
    if not reading.gpus:
        cpus = plural(max(1, int(usable_cpus())), "CPU")
        text = f"No usable GPU: ranks run on {cpus}. {reading.message or ''}"
        return {"text": text, "replayed": replayed, "gpus": []}
    held, trouble = _leases("replay" if replayed else "cuda")
    look = _Look(reading, held)
    gpus = [row for gpu in reading.gpus for row in look.rows(gpu)]
    free = sum(row["is_free"] is True for row in gpus)
    text = f"{free} of {len(gpus)} free"
    if replayed:
        text = f"Replay, not GPUs of this machine: {text}; ranks run on CPUs"
    return {"text": f"{text}.{trouble}", "replayed": replayed, "gpus": gpus}


def _leases(kind: str) -> tuple[Mapping[str, tuple[str, ...]], str]:
    """Return who holds leases, and a message if that is unknown."""
    try:
        return leases(kind), ""
    except NbkitError as error:
        return {}, f" Leases are unknown: {error}"


class _Look:
    """The holders of each GPU in one reading."""

    def __init__(
        self, reading: GpuReading, held: Mapping[str, tuple[str, ...]]
    ) -> None:
        self._reading = reading
        self._held = held
        self._finder = HolderFinder(RUN_ID_VARIABLE)
        parts = [part for gpu in reading.gpus for part in gpu.mig_instances or ()]
        names = {str(device.uuid) for device in (*reading.gpus, *parts)}
        # As in the pool: a process that only read a GPU leaves room for a run.
        children = psutil.Process().children(recursive=True)
        own = {os.getpid(), *(child.pid for child in children)}
        own = own if reading.pids_are_here else set()
        self._occupied = gpu_users(reading.gpus, names, own)

    def rows(self, gpu: GpuSample) -> list[dict[str, Any]]:
        """Return a GPU, or its MIG instances, since then only those can be used."""
        parts: list[MigSample | None] = [*(gpu.mig_instances or ())]
        trouble = gpu.error
        if gpu.mig_instances is not None and not parts:
            trouble = "MIG is enabled, but no instance exists"
        return [
            self._row(gpu, part, place, trouble)
            for place, part in enumerate(parts or [None])
        ]

    def _row(
        self, gpu: GpuSample, part: MigSample | None, place: int, trouble: str | None
    ) -> dict[str, Any]:
        holders, _ = self._finder.find(
            gpu.uuid,
            _processes_on(gpu.processes, part),
            pids_are_here=self._reading.pids_are_here,
            reported_holders=self._reading.reported_holders,
        )
        name = part.uuid if part is not None else gpu.uuid
        runs = [f"run {run}" for run in self._held.get(str(name), ())]
        others = [
            _text(row) for row in holders or () if f"run {row['run_id']}" not in runs
        ]
        is_taken = bool(runs or trouble) or str(name) in self._occupied
        unheld = None if holders is None else True
        return {
            "device": part.uuid if part is not None else str(gpu.index),
            "title": f"GPU {gpu.index}" + (f" MIG {place}" if part is not None else ""),
            "product": (part or gpu).name,
            "uuid": name,
            "load": trouble or _load(gpu, part),
            "holders": [*runs, *others],
            "is_free": False if is_taken else unheld,
        }


def _processes_on(
    processes: tuple[GpuProcess, ...] | None, part: MigSample | None
) -> tuple[GpuProcess, ...] | None:
    if part is None or processes is None:
        return processes
    return tuple(process for process in processes if process.mig_uuid == part.uuid)


def _load(gpu: GpuSample, part: MigSample | None) -> str:
    memory = part or gpu
    text = f"{size(memory.memory_used_bytes)} of {size(memory.memory_total_bytes)}"
    if part is not None:
        return text
    if gpu.memory_unified:
        text += " (unified)"
    busy = gpu.gpu_utilization_percent
    return text if busy is None else f"{text}, {busy}% busy"


def _text(holder: Mapping[str, Any]) -> str:
    """Return who a holder is, in a few words."""
    if holder["kind"] == "run":
        return f"run {holder['run_id'] or holder['name']}"
    user = holder["user"]
    who = f" of {user}" if user else ""
    if holder["kind"] == "kernel":
        return f"kernel {holder['path'] or holder['name'] or ''}{who}"
    command = holder["command"]
    what = f": {command[:60]}" if command else ""
    return f"process {holder['pid'] or 'with unknown PID'}{who}{what}"
