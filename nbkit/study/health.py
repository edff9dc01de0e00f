"""What `nbkit doctor` says of the notebooks and what executes them."""

from __future__ import annotations

from collections.abc import Iterator

from jupyter_client.kernelspec import KernelSpecManager

from nbkit.health import Finding, installed, tell
from nbkit.packages import pip_install
from nbkit.study.notebooks import notebooks

__all__ = ["findings"]

_KERNEL = "python3"
"""Named by every notebook of nbkit's."""


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
        remedy = "install nbkit anew, from a wheel or a whole checkout"
        yield Finding("Notebooks", "failure", "none are here", remedy)
    # What is found in a folder, not made up: Jupyter offers its own kernel always.
    try:
        folder = KernelSpecManager().find_kernel_specs().get(_KERNEL)
    except RuntimeError:
        return  # this user has no home folder, as the check of JupyterLab says
    if folder is None:
        remedy = "python -m ipykernel install --sys-prefix"
        yield Finding("Kernel", "failure", f"no kernel is called {_KERNEL}", remedy)
    else:
        yield Finding("Kernel", "ok", f"{_KERNEL} ({folder})")


if __name__ == "__main__":
    tell(findings())
