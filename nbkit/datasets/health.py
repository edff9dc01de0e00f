"""The checks of `nbkit doctor` for images: built-in sets, and their folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

from nbkit.datasets.cache import NAMED, cache_path
from nbkit.findings import Finding
from nbkit.health import check, check_package, stream
from nbkit.packages import pip_install


def checks() -> Iterator[Finding]:
    """Yield the results; nothing is created or downloaded."""
    missing = 'not installed; only data="photos" needs it'
    command = pip_install("scikit-image")
    yield check_package("scikit-image", "scikit-image", missing, command, "warning")
    yield _cache()


def _cache() -> Finding:
    what = "Built-in images"
    action = "set XDG_CACHE_HOME to a writable folder"
    try:
        folder = cache_path("photos").parent
    except RuntimeError:
        return Finding(what, "warning", "this user has no home folder", action)
    # A folder below one that this user may not enter raises a different error.
    seen = (path for path in (folder, *folder.parents) if os.access(path, os.F_OK))
    nearest = next(path for path in seen if path.is_dir())
    made = [name for name in NAMED if os.access(cache_path(name), os.F_OK)]
    is_writable = os.access(nearest, os.W_OK | os.X_OK)
    evidence = f"{folder}: {', '.join(made) if made else 'none created yet'}"
    evidence = evidence if is_writable else f"{nearest} is not writable"
    return check(what, is_writable, evidence, action)


if __name__ == "__main__":
    stream(checks())
