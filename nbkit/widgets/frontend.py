"""State of the front end: whether a page shows widgets and receives messages."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

kernel_is_idle = threading.Event()
"""Set while no cell runs: then the kernel takes the messages of pages.

From ipykernel 7.4 on, it takes none of a widget while a cell runs.
"""


def has_widgets() -> bool:
    """Return whether this cell's output is shown in a page with widgets.

    JupyterLab, Notebook 7, VS Code and others that are built on JupyterLab's services
    name the cell in each request to execute (``cellId``), and leave the user's name
    empty. Papermill, nbclient and nbconvert execute through jupyter_client, which names
    no cell and always fills in a user; a widget that they save could never be shown. In
    a terminal there is no request at all. Voila, which does the same, shows widgets; in
    its kernels it is the server.
    """
    shell = _shell()
    if shell is None or not hasattr(shell, "kernel"):
        return False
    if os.environ.get("SERVER_SOFTWARE", "").startswith("voila/"):
        return True
    request = shell.get_parent() or {}
    names_cell = "cellId" in (request.get("metadata") or {})
    return names_cell or (request.get("header") or {}).get("username") == ""


@contextlib.contextmanager
def sending_without_activity() -> Iterator[None]:
    """Let what this thread displays count as no activity of an idle kernel.

    Jupyter takes all that a cell's output becomes for activity, also hours after the
    cell has ended; a status is none.
    """
    publisher: Any = getattr(_shell(), "display_pub", None)
    # The oldest releases of ipykernel 7 have none.
    if not kernel_is_idle.is_set() or not hasattr(publisher, "set_thread_parent"):
        yield
        return
    token = publisher.set_thread_parent(publisher.session.msg("status"))
    try:
        yield
    finally:
        publisher.reset_thread_parent(token)


def _shell() -> Any:
    module = sys.modules.get("IPython.core.getipython")
    return module.get_ipython() if module else None
