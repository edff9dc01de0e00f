"""Identity of this rank, and its duties to its supervisor; imports no torch.

A rank first writes down its pid and start time. It ends with its supervisor: a thread
waits for the supervisor's pipe to close. It prints its stacks when asked to, and notes
a request to stop (SIGTERM) for the next step boundary.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.reading import retry_io
from nbkit.store.heartbeat import (
    COLLECTIVES_SIGNAL,
    STACKS_SIGNAL,
    HeartbeatBoard,
    Phase,
)
from nbkit.store.ownership import make_folder
from nbkit.store.paths import RunPaths
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import write_json
from nbkit.telemetry.cpu_binding import CpuBinding
from nbkit.visible import encodable, visible


@dataclass
class Rank:
    """The process in its run, after torchrun's environment contract."""

    paths: RunPaths
    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    attempt: int
    board: HeartbeatBoard | None
    """Heartbeats shared with the supervisor; None under plain torchrun."""
    stop_requested: bool = False
    """Set by SIGTERM; ranks agree on it at the step boundary."""
    step: int = 0
    """Step of the last heartbeat."""
    finished_step: int = 0
    """Last step that is known to be finished on the device."""
    binding: CpuBinding | None = None
    """CPUs to which it was bound at its start, or why it was not."""

    @classmethod
    def enter(cls, root: Path) -> Rank:
        """Return this rank, after writing its process identity."""
        # A process that leaves the run must not take the leases of its devices along.
        for path in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # that of the listing
                os.set_inheritable(int(path.name), int(path.name) < 3)
        # Before any thread is started: each would have to block it by itself.
        signal.pthread_sigmask(signal.SIG_BLOCK, {COLLECTIVES_SIGNAL})
        try:
            rank, local_rank, world_size, local_world_size = (
                int(os.environ[name])
                for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
            )
        except KeyError as error:
            message = (
                f"environment variable {error} is not set. Start ranks with "
                "nbkit.launch() or torchrun -m nbkit.worker RUN_DIR."
            )
            raise ConfigError(message) from None
        paths = RunPaths(root.absolute())
        attempt = int(os.environ.get("NBKIT_ATTEMPT", "0"))
        if "NBKIT_ATTEMPT" not in os.environ and paths.submission.exists():
            message = (
                f"{root} is the folder of a run that nbkit launched. Copy its "
                "config.json into a new folder and use that folder."
            )
            raise ConfigError(message)
        process = paths.rank(attempt, rank).process
        make_folder(process.parent, paths.root)
        retry_io(lambda: write_json(process, ProcessIdentity.of().to_dict()))
        heartbeat = _open_inherited("NBKIT_HEARTBEAT_FD", os.O_RDWR)
        board = HeartbeatBoard(heartbeat, local_world_size) if heartbeat else None
        self = cls(
            paths, rank, local_rank, world_size, local_world_size, attempt, board
        )
        faulthandler.register(STACKS_SIGNAL, file=sys.stderr, all_threads=True)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        if "TORCHELASTIC_USE_AGENT_STORE" in os.environ:
            # torchrun passes on the signals of Ctrl-C, or of a terminal that closes.
            for number in (signal.SIGINT, signal.SIGHUP):
                signal.signal(number, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        if lifeline := _open_inherited("NBKIT_LIFELINE_FD", os.O_RDONLY):
            threading.Thread(
                target=_end_with_supervisor, args=(lifeline,), daemon=True
            ).start()
        return self

    @property
    def cpus_shared_by(self) -> int | None:
        """Number of ranks that share this rank's CPUs; None if unknown."""
        return None if self.binding is None else self.binding.shared_by

    def beat(self, step: int, phase: Phase) -> None:
        """Report the step and phase of this rank to the supervisor."""
        self.step = step
        if self.board is not None:
            self.board.beat(self.local_rank, step, phase, self.finished_step)

    def end_at_requests_to_stop(self) -> None:
        """Let a request to stop end this process, now or later."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self.stop_requested:
            os.kill(os.getpid(), signal.SIGTERM)

    def answer_requests_to_stop(self) -> None:
        """Note requests to stop again, for later questions to this rank."""
        on_main_thread = threading.current_thread() is threading.main_thread()
        if on_main_thread and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_sigterm)

    @property
    def answers_requests_itself(self) -> bool:
        """Whether the user's code has its own handler for requests to stop."""
        ours = (signal.SIG_DFL, self._on_sigterm)
        return signal.getsignal(signal.SIGTERM) not in ours

    @contextlib.contextmanager
    def ended_by_a_request_to_stop(self) -> Iterator[None]:
        """Let a request to stop end this process immediately, where no step is near."""
        before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            if self.stop_requested:
                os.kill(os.getpid(), signal.SIGTERM)
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def _on_sigterm(self, number: int, frame: object) -> None:
        self.stop_requested = True


def keep_to_cpus(cpus: Collection[int]) -> None:
    """Keep this process, and those that it will start, on particular CPUs."""
    usable = os.sched_getaffinity(0)
    if other := {*cpus} - usable:
        message = (
            f"cpus={tuple(cpus)} contains CPUs that this rank may not use "
            f"({', '.join(map(str, sorted(other)))}). Use a subset of "
            f"{', '.join(map(str, sorted(usable)))}."
        )
        raise ConfigError(message)
    os.sched_setaffinity(0, cpus)


def say(text: str) -> None:
    """Write a line of the log, whatever names it quotes."""
    sys.stdout.write(encodable(f"{visible(text)}\n", sys.stdout.encoding))
    sys.stdout.flush()


def device_kind(config: ExperimentConfig) -> str:
    """Return the device type of this rank: "cuda", "cpu" or "replay"."""
    # "auto" is left to torch, under plain torchrun.
    return os.environ.get("NBKIT_DEVICE_TYPE") or config.device


def _open_inherited(variable: str, flags: int) -> int | None:
    """Return a file that a variable names: inherited, or by its path under torchrun."""
    # torchrun lets its ranks inherit none.
    value = os.environ.get(variable)
    if not value:
        return None
    return int(value) if value.isdecimal() else os.open(value, flags)


def _end_with_supervisor(lifeline: int) -> None:
    """Kill this rank's session, loading processes included, when the pipe closes."""
    os.read(lifeline, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)
