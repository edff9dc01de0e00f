"""Rendezvous address of the ranks of a run."""

from __future__ import annotations

import errno
import socket

# Where the ranks of a run on one machine meet.
LOOPBACK = "127.0.0.1"
_LIMIT_SECONDS = 5.0
_NO_NETWORK = {errno.EADDRNOTAVAIL, errno.ENETDOWN, errno.ENETUNREACH}


def listen() -> socket.socket:
    """Return a socket at a free port of this machine, at which rank 0 will listen."""
    return socket.create_server((LOOPBACK, 0), backlog=4096)


def free_port() -> int:
    """Return a port of this host that is free now."""
    with socket.create_server(("", 0)) as server:
        return server.getsockname()[1]


def is_free(port: int) -> bool:
    """Return whether a port of this host is free now."""
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        return error.errno != errno.EADDRINUSE
    return True


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
            f"{LOOPBACK}, used for rendezvous, does not respond ({error}). Start the "
            "loopback interface (ip link set lo up), or enable it in the container."
        )
