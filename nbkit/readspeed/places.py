"""On what kind of storage a file lies: what its page cache proves, and who counts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, TypeAlias

from nbkit.telemetry.storage import describe_storage

__all__ = ["Kind", "block_device", "describe_place", "kind_of"]

Kind: TypeAlias = Literal["local", "network", "memory", "own cache"]

_MEMORY = {"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"}

# Another computer answers, or (FUSE) some program, and either has caches of its own.
_NETWORK = {
    *("9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gpfs"),
    *("lustre", "ncpfs", "nfs", "nfs3", "nfs4", "orangefs", "panfs", "pvfs2"),
    *("smb3", "smbfs", "virtiofs", "wekafs"),
}

# ZFS keeps files in its ARC, of which the page cache says nothing.
_OWN_CACHE = {"zfs"}


def kind_of(file_system: str | None) -> Kind:
    """Return what the page cache says of a file system's files.

    Parameters
    ----------
    file_system
        As ``/proc/self/mountinfo`` names it; what is unknown counts as local.

    Returns
    -------
    str
        ``local``: what is not in the page cache is read from a device. ``network``: or
        from the memory of a server. ``memory``: nothing is ever read from a device.
        ``own cache``: the file system has a cache that nobody can ask.
    """
    name = file_system or ""
    if name in _MEMORY:
        return "memory"
    if name in _NETWORK or name == "fuse" or name.startswith("fuse."):
        return "network"
    return "own cache" if name in _OWN_CACHE else "local"


def describe_place(path: Path) -> dict[str, Any]:
    """Return on what a path lies, as JSON values; unknown is None.

    Returns
    -------
    dict
        That of `nbkit.telemetry.storage.describe_storage`, with ``kind``.
    """
    described = describe_storage(path)
    return {**described, "kind": kind_of(described["file_system"])}


def block_device(path: Path) -> Path | None:
    """Return the folder in ``/sys`` of the device that holds a file.

    None where no device of this machine does, or the file system does not say which
    (network, overlay, btrfs).
    """
    number = path.stat().st_dev
    folder = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    return folder if (folder / "stat").exists() else None
