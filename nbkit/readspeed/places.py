"""Storage type of a file: evidence of its page cache, and counter of its bytes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from nbkit.telemetry.storage import describe_storage

StorageKind: TypeAlias = Literal["local", "network", "memory", "own cache", "unknown"]
Counter: TypeAlias = Literal["disk_read_bytes", "net_rx_bytes"]
"""Of a host's samples."""

_LOCAL = {
    *("bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "msdos"),
    *("nilfs2", "ntfs3", "reiserfs", "udf", "vfat", "xfs"),
}

_MEMORY = {"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"}

# Another computer answers, or (FUSE) some program, and either has its own caches.
_NETWORK = {
    *("9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gpfs"),
    *("lustre", "ncpfs", "nfs", "nfs3", "nfs4", "orangefs", "panfs", "pvfs2"),
    *("smb3", "smbfs", "virtiofs", "wekafs"),
}

# What the kernel's own client gets by TCP, which the network cards count. Others may
# use RDMA or a hypervisor's channel, which no card counts, or are programs (FUSE).
_BY_NETWORK_CARD = {
    *("afs", "ceph", "cifs", "lustre", "nfs", "nfs3", "nfs4", "smb3", "smbfs"),
}
# In mount options (NFS, SMB), and in a source of Lustre.
_RDMA = re.compile(r"(^|[,=])rdma6?(,|$)|@(o2ib|gni|kfi)")

# ZFS keeps files in its ARC, of which the page cache says nothing.
_OWN_CACHE = {"zfs"}

# Devices, or their partitions, that are files of another file system, memory, or served
# by another machine: what they deliver may never have been on a disk.
_NO_DISK = re.compile(r"(loop|ram|zram|nbd|rbd)\d")


def storage_kind(file_system: str | None) -> StorageKind:
    """Return the kind of a file system, which decides what its page cache proves."""
    name = file_system or ""
    if name in _MEMORY:
        return "memory"
    if name in _NETWORK or name == "fuse" or name.startswith("fuse."):
        return "network"
    if name in _OWN_CACHE:
        return "own cache"
    return "local" if name in _LOCAL else "unknown"


def counter_of(storage: Mapping[str, Any]) -> Counter | None:
    """Return the host's counter of bytes that arrive from a storage, or None."""
    if storage["kind"] != "network":
        return "disk_read_bytes"
    how = f"{storage.get('options') or ''},{storage.get('source') or ''}"
    is_counted = storage["file_system"] in _BY_NETWORK_CARD and not _RDMA.search(how)
    return "net_rx_bytes" if is_counted else None


def unproven_because(storage: Mapping[str, Any], path: Path) -> str | None:
    """Return why an empty page cache does not prove a file cold; None if it does."""
    file_system = storage["file_system"]
    kind = storage_kind(file_system)
    if kind == "own cache":
        return f"{file_system} has a separate cache, which cannot be queried"
    if kind == "unknown":
        name = file_system or "this file system"
        return f"{name} is not known to read from a local disk"
    device = block_device(path)
    source = storage.get("source") or ""
    if device is None and source.startswith("/dev/"):
        # Btrfs numbers its volumes itself.
        device = Path("/sys/class/block") / Path(source).resolve().name
    names = [] if device is None else _device_names(device.resolve())
    virtual = [name for name in names if _NO_DISK.match(name)]
    if virtual:
        return (
            f"{virtual[0]} is a virtual device (memory, file or network), which may "
            "have its own cache"
        )
    return None


def _device_names(device: Path) -> Iterator[str]:
    """Yield a device, and what it is on, as a logical volume does."""
    yield device.name
    for parent in (device / "slaves").glob("*"):
        yield from _device_names(parent.resolve())


def describe_place(path: Path) -> dict[str, Any]:
    """Return the storage that a path is on, as JSON values; unknown is None."""
    described = describe_storage(path)
    return {**described, "kind": storage_kind(described["file_system"])}


def block_devices(paths: Iterable[Path]) -> list[Path]:
    """Return the folders in ``/sys`` of the devices that hold files."""
    # Nothing if a file is on no device of this machine.
    devices = [block_device(path) for path in paths]
    existing = [device for device in devices if device is not None]
    return existing if len(existing) == len(devices) else []


def block_device(path: Path) -> Path | None:
    """Return the folder in ``/sys`` of the device that holds a file."""
    # None where no device of this machine does, or the file system does not say which
    # (network, overlay, btrfs).
    number = path.stat().st_dev
    folder = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    return folder if (folder / "stat").exists() else None
