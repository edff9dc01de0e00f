"""What every Jupyter server of a test needs: folders of its own, an answer."""

from __future__ import annotations

import http.client
import os
import ssl
import subprocess
import urllib.request
from pathlib import Path

from tests.waiting import wait_until

__all__ = ["environment_below", "opener_of", "wait_until_it_answers"]


def opener_of(authority: Path | None = None) -> urllib.request.OpenerDirector:
    """Return what asks a server of this machine, without a proxy."""
    trust = ssl.create_default_context(cafile=authority)
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)
    )


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
