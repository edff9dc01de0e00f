"""Somebody who has nothing yet: a home of their own, and a shell to type into."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.jupyter_process import wait_until_it_answers
from tests.ports import free_port
from tests.server.jupyter import TOKEN, Jupyter

__all__ = ["Newcomer"]

# The way to packages, which is the machine's; and what tests know their processes by.
_KEPT = re.compile(
    r"LANG|LC_\w+|PATH|TERM|TZ|SSL_\w+|NODE_\w+|PIP_\w+|\w+_proxy|TEST_\w+", re.I
)

_END_SECONDS = 60.0


class Newcomer:
    """Types one command after the other, each in the folder where the last one ended.

    Parameters
    ----------
    home
        Of theirs alone; made here. Only pip's cache is that of this machine.
    """

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True)
        self.home = home
        self.folder = home
        """Where the next command is typed."""
        self.variables = {
            name: value for name, value in os.environ.items() if _KEPT.fullmatch(name)
        }
        own = str(Path(sys.executable).parent)
        folders = os.environ["PATH"].split(os.pathsep)
        cache = [sys.executable, "-m", "pip", "cache", "dir"]
        self.variables |= {
            "HOME": str(home),
            "PATH": os.pathsep.join(one for one in folders if one != own),
            "PIP_CACHE_DIR": subprocess.check_output(cache, text=True).strip(),
        }

    def types(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; variables and folder stay for the next one."""
        folder, variables = self.home / ".folder", self.home / ".variables"
        # No `set -e`: it would not see what fails before an `&&`.
        script = (
            f"set -o pipefail\n{command}\nstatus=$?\n"
            f"pwd >{shlex.quote(str(folder))}\nenv -0 >{shlex.quote(str(variables))}\n"
            "exit $status\n"
        )
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode == 0:
            self.folder = Path(folder.read_text().rstrip("\n"))
            pairs = variables.read_text().rstrip("\0").split("\0")
            self.variables = dict(pair.split("=", 1) for pair in pairs)
        return done

    def succeeds(self, command: str) -> str:
        """Run a command that has to succeed; return what it prints."""
        done = self.types(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout

    @contextmanager
    def opens(self, command: str) -> Iterator[Jupyter]:
        """Start a command that is a Jupyter server; end it when it was looked at."""
        port = free_port()
        options = (
            f"--no-browser --allow-root --ServerApp.port={port} "
            f"--ServerApp.port_retries=0 --IdentityProvider.token={TOKEN}"
        )
        log = self.home / "log"
        with log.open("ab") as written:
            process = subprocess.Popen(
                ["bash", "-c", f"exec env {command} {options}"],
                cwd=self.folder,
                env=self.variables,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
            )
        found = re.search(r"base_url=(\S+)", command)
        base_url = found[1] if found else "/"
        server = Jupyter(process, f"http://127.0.0.1:{port}{base_url}", self.home)
        try:
            wait_until_it_answers(process, server.url, TOKEN, log)
            yield server
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_END_SECONDS)
            finally:
                process.kill()

    def memory_bytes(self) -> int:
        """Return the memory of all that has this home; shared pages are shared out."""
        home = f"HOME={self.home}".encode()
        total = 0
        for process in psutil.process_iter():
            folder = Path(f"/proc/{process.pid}")
            try:
                if home in (folder / "environ").read_bytes().split(b"\0"):
                    total += process.memory_full_info().pss
            except (OSError, psutil.Error):
                continue  # it ended, or belongs to another user
        return total
