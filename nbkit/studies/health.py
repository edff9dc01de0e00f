"""Checks of `nbkit doctor` on notebooks and papermill."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_core.paths import jupyter_data_dir

from nbkit.findings import Finding
from nbkit.health import check, check_package, stream
from nbkit.packages import pip_install
from nbkit.reading import parse_object, read_file
from nbkit.studies.notebooks import notebooks

_KERNEL = "python3"
"""Named by every notebook of nbkit's."""
_LIMIT_SECONDS = 20.0
"""For another interpreter to start."""


def checks() -> Iterator[Finding]:
    """Yield the results."""
    command = pip_install("papermill")
    yield check_package("papermill", "papermill", "not installed", command, "error")
    count = len(notebooks())
    status = f"{count} installed" if count else "none found"
    action = "reinstall nbkit from a wheel or a complete checkout"
    yield check("Notebooks", count > 0, status, action, "error")
    # What is found in a folder, not made up: Jupyter offers its own kernel always.
    try:
        folder = KernelSpecManager().find_kernel_specs().get(_KERNEL)
    except RuntimeError:
        return  # this user has no home folder, as the check of JupyterLab says
    yield _kernel(None if folder is None else Path(folder))


def _kernel(folder: Path | None) -> Finding:
    """Judge the kernel that notebooks name."""
    action = f"{shlex.quote(sys.executable)} -m ipykernel install --sys-prefix"
    if folder is None:
        status = f"no kernel named {_KERNEL}"
        return Finding("Kernel", "error", status, action)
    if Path(jupyter_data_dir()) in folder.parents:
        action = action.replace("--sys-prefix", "--user")
    python = _python_of(folder)
    is_usable = python is None or _has_nbkit(python)
    status = f"{_KERNEL} ({folder})"
    status += "" if is_usable else f" starts {python}, where nbkit was not found"
    return check("Kernel", is_usable, status, action, "error")


def _python_of(folder: Path) -> str | None:
    """Return the interpreter that a kernel starts; None if it is this one."""
    try:
        python = str(parse_object(read_file(folder / "kernel.json"))["argv"][0])
    except (LookupError, OSError, TypeError, ValueError):
        return None  # Jupyter itself says what is wrong with it
    # Of a bare name Jupyter makes its own interpreter.
    here = Path(sys.executable).parent
    same = not Path(python).is_absolute() or Path(python).parent == here
    return None if same else python


def _has_nbkit(python: str) -> bool:
    look = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('nbkit'))"
    try:
        done = subprocess.run(
            [python, "-c", look],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_LIMIT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


if __name__ == "__main__":
    stream(checks())
