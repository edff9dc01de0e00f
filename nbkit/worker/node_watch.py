"""Watcher of a host's ranks, inside the torchrun that users or Slurm started.

A thread, since torchrun's own has other things to do. It does for the supervisor, which
may be on another host, what that does for its own children: it tells by a file where
the ranks are and how they end, and does what the supervisor's orders say. It imports no
torch.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from nbkit.errors import NvmlUnavailableError, StoreError
from nbkit.reading import is_gone
from nbkit.store.heartbeat import HeartbeatBoard
from nbkit.store.network import refresh_nfs_cache
from nbkit.store.ownership import make_folder
from nbkit.store.paths import RunPaths
from nbkit.store.processes import ProcessIdentity, hostname, kill_session, print_stacks
from nbkit.store.record import read_json, write_json
from nbkit.telemetry.child import SamplerProcess, start_sampler
from nbkit.telemetry.oom import OomKills
from nbkit.telemetry.visible_devices import visible_devices

_TELL_SECONDS = 1.0
_SEARCH_SECONDS = 0.05
_FINISH_SECONDS = 10.0


@dataclass
class _WatchedChild:
    """One rank: a child of torchrun, which collects its exit code."""

    rank: int
    pid: int
    start_ticks: int
    has_ended: bool = False
    returncode: int | None = None
    """Exit code, or minus the signal; None while it runs."""
    killed_by_us: bool = False
    kernel_ran_out_of_memory: bool = False
    beat: tuple[int, ...] = (0, 0, 0, 0)


class NodeWatch:
    """What nbkit knows of this host in an attempt, and does there."""

    def __init__(self, paths: RunPaths, attempt: int) -> None:
        self._paths = paths
        self._attempt = attempt
        submission = read_json(paths.submission) or {}
        self._in_job = bool(submission.get("job"))
        self.file = paths.torchrun(attempt) / f"{hostname()}-{os.getpid()}.json"
        """What it tells."""
        self._status: dict[str, Any] = {
            "host": hostname(),
            "process": ProcessIdentity.of().to_dict(),
            "name": os.environ.get("SLURMD_NODENAME") if self._in_job else None,
            "group_rank": None,
            "signal": None,
            "obeyed": [],
            "is_over": False,
            "looks": 0,
            "ranks": [],
        }
        self._here = f"/proc/{os.getpid()}/fd/"
        self._expected = 0
        self._ranks: dict[int, _WatchedChild] = {}
        self._obeyed: set[str] = set()
        self._end_at = math.inf
        self._board: HeartbeatBoard | None = None
        self._lifeline, self._lifeline_end = os.pipe()
        self._sampler: SamplerProcess | None = None
        self._oom_kills = OomKills()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._is_forgotten = False
        self._selector = selectors.DefaultSelector()
        self._wake, self._wake_end = os.pipe()
        os.set_blocking(self._wake_end, False)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._is_on_gpus = submission["device_type"] == "cuda"
        # The supervisor of a job is the job's first process, on whichever node.
        record = read_json(paths.record) if self._in_job else submission
        self._supervisor = ProcessIdentity.from_dict((record or {})["supervisor"])

    def start(self) -> None:
        """Tell of this host, from now on until torchrun ends."""
        make_folder(self.file.parent, self._paths.root)
        write_json(self.file, self._status)
        threading.Thread(target=self._run, name="nbkit-node", daemon=True).start()

    def expect(self, count: int, name: str, group_rank: int) -> dict[str, str]:
        """Watch the ranks that torchrun starts now; called in its main thread."""
        self._status |= {"name": name, "group_rank": group_rank}
        self._board = HeartbeatBoard.create(count)
        # What torchrun passes on to the ranks was sent by a user at its terminal.
        signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
        self._expected = count
        os.write(self._wake_end, b"\0")
        return {
            "NBKIT_HEARTBEAT_FD": f"{self._here}{self._board.fd}",
            "NBKIT_LIFELINE_FD": f"{self._here}{self._lifeline}",
        }

    def finish(self) -> None:
        """Wait until everything is reported; called as torchrun ends."""
        if self._expected:
            self._over.wait(_FINISH_SECONDS)
            return
        with self._lock:
            self._is_forgotten = True  # it was not part of the run
            self.file.unlink(missing_ok=True)

    def _run(self) -> None:
        try:
            while True:
                self._find_ranks()
                self._collect()
                self._execute_orders()
                self._end_sampling()
                self._write_status()
                self._end_torchrun()
                self._wait()
        except Exception:  # noqa: BLE001 - ranks end with their lifeline
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    def _find_ranks(self) -> None:
        if len(self._ranks) == self._expected:
            return
        for child in psutil.Process().children():
            try:
                variables = child.environ()
                identity = ProcessIdentity.of(child.pid)
            except (psutil.Error, ProcessLookupError):
                continue
            # Not those that are about to become something else, as copies of this one.
            if variables.get("NBKIT_HEARTBEAT_FD", "").startswith(self._here):
                local_rank, rank = (
                    int(variables[name]) for name in ("LOCAL_RANK", "RANK")
                )
                if local_rank not in self._ranks:
                    self._watch(local_rank, rank, identity)
        if len(self._ranks) == self._expected:
            self._start_sampler()

    def _watch(self, local_rank: int, rank: int, process: ProcessIdentity) -> None:
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(process.pid)
            self._selector.register(pidfd, selectors.EVENT_READ, local_rank)
        child = _WatchedChild(rank, process.pid, process.start_ticks)
        self._ranks[local_rank] = child
        self._obeyed.clear()  # this one has heard of no order

    def _collect(self) -> None:
        """Note who has ended, and how; torchrun looks for itself after this."""
        for key in list(self._selector.get_map().values()):
            if key.data is None:
                continue
            rank = self._ranks[key.data]
            if not _has_ended(rank):
                continue
            rank.kernel_ran_out_of_memory = self._oom_kills.have_grown()
            self._selector.unregister(key.fd)
            os.close(key.fd)

    def _execute_orders(self) -> None:
        file = self._paths.orders(self._attempt)
        refresh_nfs_cache(file.parent)
        try:
            orders = (read_json(file) or {}).get("do", [])
        except StoreError as error:
            _print(str(error))  # such as a file server that is away for a moment
            return
        if self._supervisor.is_alive() is False or is_gone(self._paths.root):
            orders = [*orders, "kill"]
        for order in orders:
            if order not in self._obeyed:
                self._obeyed.add(order)
                self._execute(order)

    def _execute(self, order: str) -> None:
        if order == "kill":
            is_shown = self._expected and not self._in_job
            self._end_at = time.monotonic() + (_FINISH_SECONDS if is_shown else 0.0)
        running = [rank for rank in self._ranks.values() if not rank.has_ended]
        if order == "stacks":
            print_stacks([rank.pid for rank in running])
            return
        for rank in running:
            with contextlib.suppress(ProcessLookupError):
                if order == "terminate":
                    os.kill(rank.pid, signal.SIGTERM)
                elif order == "kill":
                    rank.killed_by_us = True
                    kill_session(rank.pid)  # loading processes go with it

    def _write_status(self) -> None:
        if self._board is not None:
            beats = self._board.read()
            for local_rank, rank in self._ranks.items():
                step, phase, *counters = beats[local_rank]
                rank.beat = (step, int(phase), *counters)
        self._status["looks"] += 1
        self._status["obeyed"] = sorted(self._obeyed)
        self._status["ranks"] = [asdict(rank) for rank in self._ranks.values()]
        with self._lock:
            if self._is_forgotten:
                return
            try:
                write_json(self.file, self._status)
            except StoreError as error:
                _print(str(error))

    def _wait(self) -> None:
        """Wait for a while, or until a rank ends or torchrun gets a signal."""
        is_searching = len(self._ranks) < self._expected
        seconds = _SEARCH_SECONDS if is_searching else _TELL_SECONDS
        if any(key.fd == self._wake for key, _ in self._selector.select(seconds)):
            for number in filter(None, os.read(self._wake, 64)):
                self._status["signal"] = signal.Signals(number).name
        if self._in_job and signal.sigtimedwait([signal.SIGTERM], 0):
            self._status["signal"] = "SIGTERM"  # blocked, see nbkit.launch.slurm.node

    def _start_sampler(self) -> None:
        self._sampler = start_sampler(
            self._paths.system(self._status["name"]),
            gpu_uuids=_first_gpus(self._expected) if self._is_on_gpus else (),
            process_roots=[rank.pid for rank in self._ranks.values()],
        )

    def _end_sampling(self) -> None:
        """End the sampler after the last rank, and say that nothing is left here."""
        ended = [rank.has_ended for rank in self._ranks.values()]
        if self._sampler is not None and all(ended):
            self._write_status()  # who waits for this waits for the ranks first
            self._sampler.stop()
            self._sampler = None
            self._status["is_over"] = True
            self._write_status()
            self._over.set()

    def _end_torchrun(self) -> None:
        """End this process if it waits for other hosts though the run has ended."""
        # A torchrun waits for all others at its end, five minutes for one that is gone.
        is_over = self._status["is_over"] or not self._expected
        if is_over and time.monotonic() > self._end_at:
            _print(f"run {self._paths.run_id} has ended.")
            codes = [rank.returncode for rank in self._ranks.values()]
            os._exit(0 if codes and not any(codes) else 1)


def _has_ended(rank: _WatchedChild) -> bool:
    """Return whether a rank has ended; note how, and leave it to torchrun."""
    try:
        how = os.WEXITED | os.WNOWAIT | os.WNOHANG
        ended = os.waitid(os.P_PID, rank.pid, how)
    except ChildProcessError:
        # torchrun was faster. Its object knows, or will do so in a moment.
        objects = (obj for obj in gc.get_objects() if isinstance(obj, subprocess.Popen))
        process = next((child for child in objects if child.pid == rank.pid), None)
        rank.returncode = process.returncode if process else None
        rank.has_ended = process is None or process.returncode is not None
        return rank.has_ended
    if ended is not None:
        by_itself = ended.si_code == os.CLD_EXITED
        rank.returncode = ended.si_status * (1 if by_itself else -1)
        rank.has_ended = True
    return rank.has_ended


def _first_gpus(count: int) -> list[str] | None:
    """Return the UUIDs of the GPUs of as many ranks; None if unknown."""
    from nbkit.telemetry.nvml import open_nvml

    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        with open_nvml() as nvml:
            gpus = visible_devices(nvml.devices(), setting)
    except NvmlUnavailableError:
        return None
    instances = [name for name in (setting or "").split(",") if name.startswith("MIG-")]
    return ([str(gpu.uuid) for gpu in gpus] or instances)[:count] or None


def _print(text: str) -> None:
    sys.stderr.write(f"nbkit: {text}\n")
    sys.stderr.flush()


def is_fresh(file: Path, now: Path) -> bool:
    """Return whether who tells by a file does so still."""
    try:
        return file.stat().st_mtime > now.stat().st_mtime - 30 * _TELL_SECONDS
    except OSError:
        return False
