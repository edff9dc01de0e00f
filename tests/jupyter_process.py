"""What every Jupyter server of a test needs: a port, folders of its own, an answer."""

from __future__ import annotations

import os
import socket
import subprocess
import urllib.request
from pathlib import Path

from tests.waiting import wait_until

__all__ = ["environment_below", "free_port", "wait_until_it_answers"]

# A server of this machine is asked without a proxy.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def free_port() -> int:
    """Return a port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


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
    process: subprocess.Popen[bytes], url: str, token: str, log: Path
) -> None:
    """Wait for a server that was started; one that ended fails with its log."""
    headers = {"Authorization": f"token {token}"}
    request = urllib.request.Request(f"{url}api", headers=headers)

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            with _opener.open(request, timeout=60):
                return True
        except OSError:
            return False

    wait_until(answers, f"the server; {log.read_text()[-2000:]}")
