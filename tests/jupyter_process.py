"""What every Jupyter server of a test needs: a port, folders of its own, an answer."""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import socket
import ssl
import subprocess
import urllib.request
from pathlib import Path

from tests.waiting import wait_until

__all__ = ["environment_below", "free_port", "opener_of", "wait_until_it_answers"]


def opener_of(authority: Path | None = None) -> urllib.request.OpenerDirector:
    """Return what asks a server of this machine, without a proxy.

    Parameters
    ----------
    authority
        Certificate of who signed the server's own; the system's where it is left out.
    """
    trust = ssl.create_default_context(cafile=authority)
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)
    )


def free_port() -> int:
    """Return a port at which nobody listens, and that the system gives to nobody.

    A server that is started anew at its port must find it free.
    """
    given = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    first, last = map(int, given)
    ports = [*range(10_000, first), *range(last + 1, 65_536)] or range(10_000, 65_536)
    # Other processes of pytest may have begun with the same seed.
    chance = random.SystemRandom()
    while True:
        port = chance.choice(ports)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def environment_below(folder: Path) -> dict[str, str]:
    """Return this process's variables, with Jupyter's and nbkit's files in a folder."""
    return {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "NBKIT_HOME": str(folder / "store"),
    }


def wait_until_it_answers(
    process: subprocess.Popen[bytes],
    url: str,
    token: str,
    log: Path,
    authority: Path | None = None,
) -> None:
    """Wait for a server that was started; one that ended fails with its log."""
    headers = {"Authorization": f"token {token}"}
    request = urllib.request.Request(f"{url}api", headers=headers)
    opener = opener_of(authority)

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            with opener.open(request, timeout=60):
                return True
        except (OSError, http.client.HTTPException):
            return False

    wait_until(answers, f"the server; {log.read_text()[-2000:]}")
