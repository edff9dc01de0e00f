"""Sets that torchvision can download, as folders of images in the user's cache."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from nbkit.datasets.cache import cache_path, cached_folder
from nbkit.errors import ConfigError
from nbkit.packages import pip_install

# torch is loaded in a separate process.
_CHILD = "nbkit.worker.data.download"

BETWEEN_CALLS_SECONDS = 1.0


def downloaded_folder(name: str, *, on_wait: Callable[[], None] | None = None) -> Path:
    """Return the folder of a set, downloaded if missing."""
    return cached_folder(name, lambda folder: _download(name, folder, on_wait))


def _download(name: str, folder: Path, on_wait: Callable[[], None] | None) -> None:
    if importlib.util.find_spec("torchvision") is None:
        message = (
            f"data={name!r} requires torchvision, which is not installed. Run "
            f"{pip_install('torch', 'torchvision')}."
        )
        raise ConfigError(message)
    command = [sys.executable, "-m", _CHILD, name, str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            problem = _wait(process, on_wait)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        problem = problem.strip() or f"exit status {process.returncode}"
        message = (
            f"data={name!r} cannot be downloaded ({problem}). Connect this machine to "
            f"the internet, copy {cache_path(name)} from a machine that has it, or use "
            "'photos', which is not downloaded."
        )
        raise ConfigError(message)


def _wait(process: subprocess.Popen[str], on_wait: Callable[[], None] | None) -> str:
    """Return what the process says on its standard output before it ends."""
    while True:
        try:
            return process.communicate(timeout=BETWEEN_CALLS_SECONDS)[0]
        except subprocess.TimeoutExpired:
            if on_wait is not None:
                on_wait()
