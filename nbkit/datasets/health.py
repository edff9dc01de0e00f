"""What `nbkit doctor` says of images: the built-in sets, and where they are kept."""

from __future__ import annotations

import os
from collections.abc import Iterator

from nbkit.datasets.cache import NAMED, cache_path
from nbkit.health import Finding, installed, tell
from nbkit.packages import pip_install


def findings() -> Iterator[Finding]:
    """Yield what is found; nothing is made or downloaded."""
    version = installed("scikit-image")
    if version is None:
        found = 'not installed; data="photos" needs its photographs'
        remedy = pip_install("scikit-image")
        yield Finding("scikit-image", "warning", found, remedy)
    else:
        yield Finding("scikit-image", "ok", version)
    yield _cache()


def _cache() -> Finding:
    what = "Built-in images"
    remedy = "set XDG_CACHE_HOME to a folder that you may write"
    try:
        folder = cache_path("photos").parent
    except RuntimeError:
        return Finding(what, "warning", "this user has no home folder", remedy)
    # A folder below one that this user may not enter raises a different error.
    seen = (path for path in (folder, *folder.parents) if os.access(path, os.F_OK))
    there = next(path for path in seen if path.is_dir())
    if not os.access(there, os.W_OK | os.X_OK):
        return Finding(what, "warning", f"{there} may not be written", remedy)
    made = [name for name in NAMED if os.access(cache_path(name), os.F_OK)]
    words = f"{', '.join(made)} made" if made else "none made yet"
    return Finding(what, "ok", f"{folder}: {words}")


if __name__ == "__main__":
    tell(findings())
