"""Hypervisor of this machine, if it is detectable.

The words are those of ``systemd-detect-virt``, which is asked where it is installed. In
a container it hardly ever is: there the signs that it follows are read from files.

References
----------
https://www.freedesktop.org/software/systemd/man/latest/systemd-detect-virt.html
"""

from __future__ import annotations

import subprocess
from pathlib import Path

BARE_METAL = "bare metal"

_DMI_FILES = ("product_name", "sys_vendor", "board_vendor", "bios_vendor")
"""In the order in which they are believed: KVM is a product of many vendors."""

_DMI_BEGINNINGS = {
    "KVM": "kvm",
    "AHV": "kvm",
    "OpenStack": "kvm",
    "oVirt": "kvm",
    "RHEV": "kvm",
    "Amazon EC2": "amazon",
    "Google Compute Engine": "google",
    "VMware": "vmware",
    "VMW": "vmware",
    "Virtual Machine": "microsoft",
    "VirtualBox": "oracle",
    "innotek GmbH": "oracle",
    "Xen": "xen",
    "Bochs": "bochs",
    "Parallels": "parallels",
    "BHYVE": "bhyve",
    "Apple Virtualization": "apple",
    "QEMU": "qemu",
}
"""How what the firmware says begins, and whose firmware that is."""

_CLOUDS = ("amazon", "google")
"""They rent out bare metal too, under the same name."""

_CLOCKS = {"kvm-clock": "kvm", "hyperv_clocksource": "microsoft", "xen": "xen"}
"""Clocks that a hypervisor offers its guests."""


def detect_hypervisor(cpu_flags: str | None, root: Path = Path("/")) -> str | None:
    """Return the name of the hypervisor, ``bare metal``, or None if nothing tells."""
    detected = _ask_systemd() if root == Path("/") else None
    if detected is not None:
        return detected
    is_guest = None if cpu_flags is None else "hypervisor" in cpu_flags.split()
    hypervisor = _read(root / "sys/hypervisor/type") or _firmware(root)
    if hypervisor in _CLOUDS and is_guest is False:
        return BARE_METAL
    if hypervisor in (None, "qemu"):
        hypervisor = _clock(root) or hypervisor
    if hypervisor is None and is_guest is False:
        return BARE_METAL
    return hypervisor


def _ask_systemd() -> str | None:
    try:
        done = subprocess.run(
            ["systemd-detect-virt", "--vm"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=5,
        )
    except (OSError, subprocess.SubprocessError):
        return None  # it is not installed, or hangs
    word = done.stdout.strip()  # its exit status is 1 on bare metal
    return {"": None, "none": BARE_METAL, "vm-other": None}.get(word, word)


def _firmware(root: Path) -> str | None:
    for file in _DMI_FILES:
        text = _read(root / "sys/class/dmi/id" / file) or ""
        for beginning, name in _DMI_BEGINNINGS.items():
            if text.startswith(beginning):
                return name
    return None


def _clock(root: Path) -> str | None:
    folder = root / "sys/devices/system/clocksource/clocksource0"
    offered = (_read(folder / "available_clocksource") or "").split()
    for clock in offered:
        for beginning, name in _CLOCKS.items():
            if clock.startswith(beginning):
                return name
    return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None
