"""The checks of `nbkit doctor` for storage: file system and fio."""

from __future__ import annotations

from collections.abc import Iterator

from nbkit.errors import StoreError
from nbkit.findings import Finding
from nbkit.health import check, stream
from nbkit.readspeed.fio import fio_version
from nbkit.readspeed.places import describe_place
from nbkit.store.paths import store_folder

_MEANINGS = {
    "local": "local to this host; multi-node runs require a shared file system",
    "network": "usable by multi-node runs if all nodes mount it at this path",
    "own cache": "whether files are cold cannot be determined",
    "unknown": "whether files are cold cannot be determined",
}


def checks() -> Iterator[Finding]:
    """Yield the results; a silent file server holds them up."""
    version = fio_version()
    evidence = version or "not installed; nbkit uses its Python reader"
    action = (
        "install fio (such as by sudo apt install fio) to measure with both readers"
    )
    yield check("fio", version is not None, evidence, action, "note")
    try:
        place = describe_place(store_folder())
    except StoreError:
        return  # the store's own check says why
    evidence = (
        f"{place['file_system'] or 'unknown'} ({place['source'] or 'unknown source'})"
    )
    meaning = _MEANINGS.get(place["kind"])
    action = "set NBKIT_HOME to a folder on a disk: a reboot deletes the store"
    evidence += f": {meaning}" if meaning else ""
    yield check("Store is on", place["kind"] != "memory", evidence, action)


if __name__ == "__main__":
    stream(checks())
