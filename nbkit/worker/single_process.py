"""A rank of user code without peers and GPU; imports no torch.

As under plain Python, torch is imported when the code asks for it: after the variables
that the code sets for it, or never.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from nbkit.config import ExperimentConfig
from nbkit.worker.rank import Rank


def prepare_rendezvous(
    rank: Rank, config: ExperimentConfig
) -> tuple[None, Callable[[], None]]:
    """Leave the rendezvous port to `init_process_group`, but to no other program."""
    port_socket = socket.socket()
    port_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if listener := os.environ.get("NBKIT_LISTEN_FD"):
        os.close(int(listener))
        # Two sockets may share a port as long as none of them listens; torch asks so.
        port_socket.bind((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
    return None, port_socket.close
