"""Limits of this process's control groups: memory, and processes.

They are a tree: each group has its own limits, and the smallest above it counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from nbkit.telemetry.storage import Mount, read_mounts

_FILES = {
    "memory": ("memory.max", "memory.limit_in_bytes"),
    "pids": ("pids.max", "pids.max"),
}
"""By controller, the file with the limit in version 2 and in version 1."""


def smallest_limit(controller: str, root: Path = Path("/")) -> int | None:
    """Return the smallest limit of this process's control group and all above it."""
    # https://docs.kernel.org/admin-guide/cgroup-v2.html (memory.max, pids.max)
    # https://docs.kernel.org/admin-guide/cgroup-v1/memory.html (memory.limit_in_bytes)
    # https://docs.kernel.org/admin-guide/cgroup-v1/pids.html (pids.max)
    limits: list[int] = []
    for folder in group_folders(controller, root):
        for name in dict.fromkeys(_FILES[controller]):
            try:
                text = (folder / name).read_text().strip()
            except OSError:
                continue  # of the other version, or the root, which has no limits
            limits += [int(text)] if text != "max" else []
    return min(limits, default=None)


def group_folders(controller: str, root: Path = Path("/")) -> Iterator[Path]:
    """Yield the folders of this process's control group and of all above it."""
    try:
        # The name of a group is that of a folder: any bytes.
        text = os.fsdecode((root / "proc/self/cgroup").read_bytes())
    except OSError:
        return
    mounts = read_mounts(root)
    for line in filter(None, text.split("\n")):
        # Such as "0::/user.slice" (version 2) or "4:cpu,cpuacct:/docker/1f" (1).
        _, controllers, group = line.split(":", 2)
        for mount in mounts:
            if _carries(controller, mount, controllers.split(",")):
                yield from _folders(root, mount, group)


def _carries(controller: str, mount: Mount, controllers: list[str]) -> bool:
    if controllers == [""]:
        return mount.file_system == "cgroup2"
    return (
        controller in controllers
        and mount.file_system == "cgroup"
        and controller in mount.options.split(",")
    )


def _folders(root: Path, mount: Mount, group: str) -> list[Path]:
    """Return the folder of a group and those above it, up to the mount point."""
    # Inside a container the group's name may be the host's, and only a part of the
    # hierarchy may be mounted: what is outside it cannot be seen.
    top = root / mount.mount_point.relative_to("/")
    inside = group.removeprefix(mount.root.rstrip("/")).strip("/")
    folder = top / inside
    if ".." in folder.parts or not folder.is_dir():
        return [top]
    depth = len(folder.parts) - len(top.parts)
    return [folder, *list(folder.parents)[:depth]]
