"""GPUs that CUDA_VISIBLE_DEVICES leaves visible."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbkit.telemetry.sample import GpuDevice

RESET = "check dmesg for an Xid message, then reset the GPU or reboot"
"""What to do about a GPU that cannot be read."""

_HIDING = ("", "-1", "NoDevFiles", "none", "void")
_NAME = re.compile(r"\d+|(GPU|MIG)-.+")


def visible_devices(
    gpus: Sequence[GpuDevice],
    setting: str | None,
    mig_parents: Mapping[str, str] | None = None,
) -> list[GpuDevice]:
    """Return the GPUs that a CUDA_VISIBLE_DEVICES setting leaves, in its order."""
    # Numbers are taken in PCI bus order, as NVML counts; GPUs that are passed on by
    # UUID do not depend on CUDA's own order.
    if setting is None:
        return list(gpus)
    chosen: list[GpuDevice] = []
    for part in (part.strip() for part in setting.split(",")):
        names = [part, *_parents(part, mig_parents or {})]
        match = [
            gpu
            for gpu in gpus
            if str(gpu.index) in names
            or any(_is_beginning(name, str(gpu.uuid)) for name in names)
        ]
        if not match:
            break  # CUDA ignores everything after an invalid entry.
        chosen += [gpu for gpu in match[:1] if gpu not in chosen]
    return chosen


def unknown_entry(
    gpus: Sequence[GpuDevice],
    setting: str | None,
    mig_parents: Mapping[str, str] | None = None,
) -> str | None:
    """Return the first entry that names a missing GPU; None without any."""
    # Some entries hide what follows on purpose: an empty one, ``-1``, Slurm's
    # ``NoDevFiles``, ``none`` and ``void`` of container runtimes. Any other, such as
    # ``all``, ``cuda:0`` or a number in quotes, CUDA takes for one of these. Without a
    # GPU, a number or UUID may be meant for another machine.
    for part in (part.strip() for part in (setting or "").split(",")):
        if part in _HIDING:
            return None
        if not gpus and _NAME.fullmatch(part):
            continue
        if not visible_devices(gpus, part, mig_parents):
            return part
    return None


def _parents(part: str, mig_parents: Mapping[str, str]) -> list[str]:
    """Return the UUID of the GPU that contains the instance which an entry names."""
    if part.startswith("MIG-GPU-"):  # before driver 470: MIG-<GPU's UUID>/<GI>/<CI>
        return [part.removeprefix("MIG-").partition("/")[0]]
    return [
        gpu for instance, gpu in mig_parents.items() if _is_beginning(part, instance)
    ]


def _is_beginning(part: str, uuid: str) -> bool:
    return len(part) > 4 and uuid.startswith(part)


def visible_instances(instances: Sequence[str], setting: str | None) -> list[str]:
    """Return the MIG instances of one GPU that CUDA_VISIBLE_DEVICES leaves."""
    parts = [part.strip() for part in (setting or "").split(",")]
    named = [uuid for part in parts for uuid in instances if _is_beginning(part, uuid)]
    return named or list(instances)
