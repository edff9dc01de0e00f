"""What `nbkit doctor` says of the notebooks and what executes them."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_core.paths import jupyter_data_dir

from nbkit.health import Finding, installed, tell
from nbkit.packages import pip_install
from nbkit.reading import parse_object, read_file
from nbkit.studies.notebooks import notebooks

_KERNEL = "python3"
"""Named by every notebook of nbkit's."""
_HERE = Path(sys.executable).parent
_LIMIT_SECONDS = 20.0
"""For another interpreter to start."""


def findings() -> Iterator[Finding]:
    """Yield what is found."""
    version = installed("papermill")
    if version is None:
        remedy = pip_install("papermill")
        yield Finding("papermill", "failure", "not installed", remedy)
    else:
        yield Finding("papermill", "ok", version)
    count = len(notebooks())
    if count:
        yield Finding("Notebooks", "ok", f"{count} come with nbkit")
    else:
        remedy = "install nbkit again, from a wheel or a whole checkout"
        yield Finding("Notebooks", "failure", "none are here", remedy)
    # What is found in a folder, not made up: Jupyter offers its own kernel always.
    try:
        folder = KernelSpecManager().find_kernel_specs().get(_KERNEL)
    except RuntimeError:
        return  # this user has no home folder, as the check of JupyterLab says
    yield _kernel(None if folder is None else Path(folder))


def _kernel(folder: Path | None) -> Finding:
    """Return what is found of the kernel that notebooks name."""
    remedy = f"{shlex.quote(sys.executable)} -m ipykernel install --sys-prefix"
    if folder is None:
        return Finding("Kernel", "failure", f"no kernel is called {_KERNEL}", remedy)
    if Path(jupyter_data_dir()) in folder.parents:
        remedy = remedy.replace("--sys-prefix", "--user")
    python = _python_of(folder)
    if python is not None and not _has_nbkit(python):
        found = f"{_KERNEL} ({folder}) starts {python}, which has no nbkit"
        return Finding("Kernel", "failure", found, remedy)
    return Finding("Kernel", "ok", f"{_KERNEL} ({folder})")


def _python_of(folder: Path) -> str | None:
    """Return the interpreter that a kernel starts; None if it is this one."""
    try:
        python = str(parse_object(read_file(folder / "kernel.json"))["argv"][0])
    except (LookupError, OSError, TypeError, ValueError):
        return None  # Jupyter itself says what is wrong with it
    # Of a bare name Jupyter makes its own interpreter.
    same = not Path(python).is_absolute() or Path(python).parent == _HERE
    return None if same else python


def _has_nbkit(python: str) -> bool:
    look = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('nbkit'))"
    try:
        asked = subprocess.run(
            [python, "-c", look],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_LIMIT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


if __name__ == "__main__":
    tell(findings())
