"""The Jupyter server extension: GPUs, host and runs, live for every viewer."""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """Tell Jupyter where the extension is; importing it waits until it is asked for."""
    from nbkit.server.app import NbkitServer

    return [{"module": "nbkit.server", "app": NbkitServer}]
