"""Storage of a file: file system, device and mount options."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from nbkit.reading import expanded
from nbkit.telemetry.topology import text_of


class Mount(NamedTuple):
    """One line of ``/proc/self/mountinfo``."""

    mount_point: Path
    root: str
    """Mounted folder of the file system; ``/`` for all of it."""
    device_number: str
    """Device number, such as ``259:1``; of a network file system, no device's."""
    file_system: str
    """Type, such as ``ext4``, ``xfs``, ``nfs4``, ``lustre`` or ``tmpfs``."""
    source: str
    """Device or server: ``/dev/nvme0n1p1``, ``filer:/export``."""
    options: str
    """Options of the mount and of the file system, separated by commas."""


def describe_storage(path: Path | str) -> dict[str, Any]:
    """Return the storage of a file or folder, as JSON values; unknown is None."""
    # A path that does not exist yet, or may not be looked at, stands for the nearest
    # folder above it that does and may. On a network file system whose server is
    # silent, this waits for the server.
    nearest, space = _nearest(expanded(path, "path"))
    description: dict[str, Any] = {
        "path": str(nearest),
        "mount_point": None,
        "file_system": None,
        "source": None,
        "options": None,
        "total_bytes": space.f_blocks * space.f_frsize,
        "free_bytes": space.f_bavail * space.f_frsize,
        "device_model": None,
        "rotational": None,
    }
    mount = _mount_of(nearest)
    if mount is not None:
        description |= {
            "mount_point": _printable(str(mount.mount_point)),
            "file_system": mount.file_system,
            "source": _printable(mount.source),
            "options": _printable(_short_options(mount.options)),
            **_block_device(mount),
        }
    return description


def read_mounts(root: Path = Path("/")) -> list[Mount]:
    """Return what is mounted, in order; a later mount hides an earlier one."""
    # https://docs.kernel.org/filesystems/proc.html (3.5, mountinfo)
    try:
        # Any user may name a folder, in bytes that are not UTF-8 or other line ends.
        text = os.fsdecode((root / "proc/self/mountinfo").read_bytes())
    except OSError:
        return []
    return [_parse(line) for line in text.split("\n") if line]


def _parse(line: str) -> Mount:
    # A varying number of optional fields ends with a lone hyphen.
    before, _, after = line.partition(" - ")
    _, _, device_number, root, mount_point, options, *_ = before.split(" ")
    file_system, source, super_options = map(_unescape, after.split(" ", 2))
    all_options = dict.fromkeys([*options.split(","), *super_options.split(",")])
    return Mount(
        Path(_unescape(mount_point)),
        _unescape(root),
        device_number,
        file_system,
        source,
        ",".join(all_options),
    )


def _unescape(text: str) -> str:
    r"""Return a text in which the kernel wrote octal numbers: ``\040`` is a blank."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _printable(text: str) -> str:
    """Return a text in which bytes that are not UTF-8 are question marks."""
    return os.fsencode(text).decode(errors="replace")


def _nearest(path: Path) -> tuple[Path, os.statvfs_result]:
    """Return the path or the nearest folder above it, resolved, and its space."""
    while True:
        try:
            return path.resolve(), os.statvfs(path)
        except OSError:
            if path == path.parent:
                raise
            path = path.parent


def _mount_of(path: Path) -> Mount | None:
    """Return the mount of a resolved path: the deepest one, the last of equals."""
    best: Mount | None = None
    for mount in read_mounts():
        if not path.is_relative_to(mount.mount_point):
            continue
        if best is None or len(mount.mount_point.parts) >= len(best.mount_point.parts):
            best = mount
    return best


def _short_options(options: str) -> str:
    """Return options without the folders of an overlay, which fill pages."""
    folders = ("lowerdir=", "upperdir=", "workdir=")
    return ",".join(
        option for option in options.split(",") if not option.startswith(folders)
    )


def _block_device(mount: Mount) -> dict[str, Any]:
    """Return model and kind of the disk under a partition or a logical volume."""
    folder = Path("/sys/dev/block") / mount.device_number
    if not folder.exists() and mount.source.startswith("/dev/"):
        # Btrfs numbers its volumes itself.
        folder = Path("/sys/class/block") / Path(mount.source).resolve().name
    if not folder.exists():
        return {}
    folder = folder.resolve()
    # A logical volume names what it is on; a partition is in its disk's folder.
    while slaves := sorted((folder / "slaves").glob("*")):
        folder = slaves[0].resolve()
    if (folder / "partition").exists():
        folder = folder.parent
    model = text_of(folder / "device/model")
    if model is None:
        return {}  # A virtual disk; it says "rotational" without knowing.
    rotational = text_of(folder / "queue/rotational") == "1"
    return {"device_model": model, "rotational": rotational}
