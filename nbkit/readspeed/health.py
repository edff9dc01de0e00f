"""What `nbkit doctor` says of storage: what the store is on, and how to measure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nbkit.errors import StoreError
from nbkit.health import Finding, tell
from nbkit.readspeed.fio import fio_version
from nbkit.readspeed.places import describe_place
from nbkit.store.paths import store_folder

_MEANINGS = {
    "local": "this host's own; runs of several nodes need a shared one",
    "network": "runs of several nodes can use it, where all see it at this path",
    "own cache": "whether files are cold cannot be determined",
    "unknown": "whether files are cold cannot be determined",
}


def findings() -> Iterator[Finding]:
    """Yield what is found; a silent file server holds it up."""
    version = fio_version()
    if version is None:
        found = "not installed; nbkit reads with its own reader"
        yield Finding("fio", "info", found, "apt install fio, to read with both")
    else:
        yield Finding("fio", "ok", version)
    try:
        store = store_folder()
    except StoreError:
        return  # the store's own check says why
    yield _file_system(store)


def _file_system(store: Path) -> Finding:
    place = describe_place(store)
    kind = place["file_system"] or "unknown"
    found = f"{kind} ({place['source'] or 'unknown source'})"
    if place["kind"] == "memory":
        remedy = "it is gone at the next start: set NBKIT_HOME to a folder on a disk"
        return Finding("Store is on", "warning", found, remedy)
    return Finding("Store is on", "ok", f"{found}: {_MEANINGS[place['kind']]}")


if __name__ == "__main__":
    tell(findings())
