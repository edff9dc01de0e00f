"""Files in a user's cache folder: each may be deleted at any time, and be missing."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

import platformdirs

from nbkit.store.processes import hostname


def cache_file(kind: str, key: str) -> Path | None:
    """Return the file of a key on this host; None if this user has no folder for it."""
    # A path in it may have any bytes.
    digest = hashlib.sha256(os.fsencode(f"{hostname()}:{key}")).hexdigest()
    with suppress(RuntimeError):  # this user has no home folder
        folder = platformdirs.user_cache_path("nbkit", appauthor=False)
        if folder.is_absolute():
            return folder / f"{kind}-{digest[:16]}.json"
    return None
