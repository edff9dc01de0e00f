"""Where the ranks of a run find each other."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass

# Where the ranks of a run on one machine meet.
LOOPBACK = "127.0.0.1"
_LIMIT_SECONDS = 5.0
_NO_NETWORK = {errno.EADDRNOTAVAIL, errno.ENETDOWN, errno.ENETUNREACH}


@dataclass(frozen=True)
class Meeting:
    """An address at which rank 0 listens."""

    address: str
    port: int
    listener: socket.socket | None
    """Bound to it, for rank 0 to inherit; None on the nodes without rank 0."""

    @classmethod
    def here(cls, address: str) -> Meeting:
        """Return a meeting at a free port of this machine."""
        listener = socket.create_server((address, 0), backlog=4096)
        return cls(address, listener.getsockname()[1], listener)


def loopback_problem() -> str | None:
    """Return why no ranks can meet here, and what to do; None if they can."""
    # Without the interface torch tries to connect for ten minutes, without a word.
    try:
        with (
            socket.create_server((LOOPBACK, 0)) as server,
            socket.create_connection(server.getsockname(), _LIMIT_SECONDS),
        ):
            return None
    except OSError as error:
        if error.errno not in _NO_NETWORK:
            return None  # such as too many open files: the launch says so
        return (
            f"{LOOPBACK} does not answer ({error}), and the ranks of a run meet there: "
            "start the loopback interface (ip link set lo up), or give the container "
            "one."
        )
