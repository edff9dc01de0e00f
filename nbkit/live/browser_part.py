"""The live view's browser part, which a notebook's widget and a tab of Lab share."""

from __future__ import annotations

import json
from importlib import resources

from nbkit.live.rows import IMAGES_PER_SECOND
from nbkit.live.running_time import RUNNING_TIME

WORDS = (
    f"const RUNNING_TIME = trans.__({json.dumps(RUNNING_TIME)});\n"
    f"const IMAGES_PER_SECOND = trans.__({json.dumps(IMAGES_PER_SECOND)});\n"
)
"""What numbers mean, for the browser part."""


def static_text(*names: str, package: str = "nbkit.live") -> str:
    """Return files of a browser part, concatenated.

    It is one module: its parts cannot import each other.
    """
    folder = resources.files(package) / "static"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def page_module(*names: str) -> str:
    """Return the beginning of a widget's module: what all share, then these files."""
    return static_text("page.js") + WORDS + static_text(*names)


def view_module() -> str:
    """Return the JavaScript module of the live view, as anywidget wants it."""
    return page_module(
        "view_numbers.js",
        "view_charts.js",
        "view_log.js",
        "view_parts.js",
        "view_config.js",
        "view_curves.js",
        "view_choices.js",
        "view_feed.js",
        "view.js",
    )


def view_style() -> str:
    """Return the style sheet of the live view."""
    return static_text("view.css")
