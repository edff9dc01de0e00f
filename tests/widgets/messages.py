"""What a page says to its widget."""

from __future__ import annotations

from typing import Any

import anywidget


def hear(widget: anywidget.AnyWidget, **message: Any) -> None:
    """Hand a widget a message of its page, as the kernel does."""
    data = {"method": "custom", "content": message}
    widget.comm.handle_msg({"content": {"data": data}, "buffers": []})
