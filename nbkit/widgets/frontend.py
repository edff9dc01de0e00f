"""State of the front end: whether a page shows widgets and receives messages."""

from __future__ import annotations

import sys
import threading

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
    a terminal there is no request at all.
    """
    module = sys.modules.get("IPython.core.getipython")
    shell = module.get_ipython() if module else None
    if shell is None or not hasattr(shell, "kernel"):
        return False
    request = shell.get_parent() or {}
    names_cell = "cellId" in (request.get("metadata") or {})
    return names_cell or (request.get("header") or {}).get("username") == ""
