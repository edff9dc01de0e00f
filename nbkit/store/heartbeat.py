"""Position of each rank, in memory shared with its supervisor.

The supervisor makes an anonymous file (memfd) that the ranks inherit; a rank writes
its step and phase into its own 32 bytes of it. Writing is a memory store, so the
training loop may do it several times a step.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
from enum import IntEnum
from typing import NamedTuple

COLLECTIVES_SIGNAL = signal.SIGRTMIN + 2
"""Asks a rank to write down its last collective operations. Every rank blocks it from
its start on: one that has none to write is not ended by it."""

STACKS_SIGNAL = signal.SIGRTMIN + 3
"""Asks a rank to print its stacks. A script may handle SIGUSR2 itself."""

_SLOT = struct.Struct("<QQQQ")


class Phase(IntEnum):
    """What a rank does, in the order of a step."""

    STARTING = 0
    DATA = 1
    COMPUTE = 2
    COLLECTIVE = 3
    EVALUATION = 4
    CHECKPOINT = 5
    DONE = 6


class Beat(NamedTuple):
    """One rank's position."""

    step: int
    phase: Phase
    beats: int
    """Beats so far; it grows even where step and phase repeat."""
    finished_step: int = 0
    """Last step whose work is known to be over on the device; a host runs ahead of
    its GPU."""


class HeartbeatBoard:
    """One slot for every local rank."""

    def __init__(self, fd: int, num_ranks: int) -> None:
        self.fd = fd
        self._num_ranks = num_ranks
        self._map = mmap.mmap(fd, num_ranks * _SLOT.size)
        self._count = 0

    @classmethod
    def create(cls, num_ranks: int) -> HeartbeatBoard:
        """Return a new board whose descriptor can be inherited by name."""
        fd = os.memfd_create("nbkit-heartbeat", os.MFD_CLOEXEC)
        os.ftruncate(fd, num_ranks * _SLOT.size)
        return cls(fd, num_ranks)

    def beat(
        self, local_rank: int, step: int, phase: Phase, finished_step: int = 0
    ) -> None:
        """Write where a rank is; only that rank calls this."""
        self._count += 1
        values = step, phase, self._count, finished_step
        _SLOT.pack_into(self._map, local_rank * _SLOT.size, *values)

    def read(self) -> list[Beat]:
        """Return every rank's position, by local rank."""
        slots = (
            _SLOT.unpack_from(self._map, index * _SLOT.size)
            for index in range(self._num_ranks)
        )
        return [Beat(step, Phase(phase), *counters) for step, phase, *counters in slots]

    def close(self) -> None:
        """Unmap and close."""
        self._map.close()
        os.close(self.fd)
