"""What `nbkit doctor` says of images: the built-in sets, and where they are kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from nbkit.datasets.cache import NAMED, cache_path
from nbkit.health import Finding, installed, tell

__all__ = ["findings"]


def findings() -> Iterator[Finding]:
    """Yield what is found; nothing is made or downloaded."""
    version = installed("scikit-image")
    if version is None:
        found = 'not installed; data="photos" needs its photographs'
        remedy = 'pip install "nbkit[train]"'
        yield Finding("scikit-image", "warning", found, remedy)
    else:
        yield Finding("scikit-image", "ok", version)
    yield _cache(cache_path("photos").parent)


def _cache(folder: Path) -> Finding:
    what = "Built-in images"
    there = next(path for path in (folder, *folder.parents) if path.is_dir())
    if not os.access(there, os.W_OK | os.X_OK):
        remedy = "set XDG_CACHE_HOME to a folder that you may write"
        return Finding(what, "warning", f"{there} may not be written", remedy)
    made = [name for name in NAMED if cache_path(name).is_dir()]
    words = f"{', '.join(made)} made" if made else "none made yet"
    return Finding(what, "ok", f"{folder}: {words}")


if __name__ == "__main__":
    tell(findings())
