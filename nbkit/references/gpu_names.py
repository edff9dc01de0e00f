"""Vocabulary of GPU names in NVML and reports.

A name is ``family[-form][-memory]``, such as ``A100-SXM4-80GB``, ``H100-PCIe-80GB``,
``L40S`` or, where a report says no more, ``V100-16GB``. NVML and torch print
``NVIDIA A100-SXM4-80GB``, ``NVIDIA H100 80GB HBM3`` or ``Tesla V100-SXM2-16GB``.
"""

from __future__ import annotations

import re

# Sold in several forms and memory sizes that differ in speed.
_FAMILIES_WITH_FORMS = ("V100S", "V100", "P100", "A100", "H100", "H200", "B200")

_SINGLE_PRODUCTS = (
    "A10",
    "A10G",
    "A30",
    "A40",
    "GH200-96GB",
    "L4",
    "L40",
    "L40S",
    "Quadro RTX 8000",
    "RTX 3090",
    "RTX 4090",
    "RTX 5090",
    "RTX 6000 Ada",
    "RTX A5000",
    "RTX A6000",
    "RTX PRO 6000 Blackwell Max-Q",
    "Radeon RX 7900 XTX",
    "T4",
)

# How the driver and reports spell them, where that is more than a vendor's prefix.
_ALIASES = {
    "A30 PCIE 24GB": "A30",
    "GH200 96GB HBM3": "GH200-96GB",
    "RTX 6000 ADA GENERATION": "RTX 6000 Ada",
    "RTX PRO 6000 BLACKWELL MAX Q WORKSTATION EDITION": "RTX PRO 6000 Blackwell Max-Q",
}

# The only form, or the only memory size, of a family in a given form.
_SXM_OF_FAMILY = {"A100": "SXM4", "H100": "SXM", "H200": "SXM", "B200": "SXM"}
_MEMORY_OF_FORM = {
    ("H100", "PCIe"): "80GB",
    ("H100", "NVL"): "94GB",
    ("H200", "SXM"): "141GB",
    ("H200", "NVL"): "141GB",
    ("V100S", "PCIe"): "32GB",
}


def canonical_gpu_name(device_name: str) -> str | None:
    """Return the vocabulary's name of a GPU."""
    normalized = re.sub(r"[\s_-]+", " ", device_name.upper()).strip()
    # The driver names a vGPU by its profile: NVIDIA A100-10C, GRID A100D-80C.
    if re.search(r"\b(MIG|LAPTOP|MOBILE|VGPU)\b|^GRID\b|\b\d+[ABCQ]$", normalized):
        return None
    normalized = re.sub(r"^(NVIDIA |AMD |TESLA |GEFORCE )+", "", normalized)
    if normalized in _ALIASES:
        return _ALIASES[normalized]
    for product in _SINGLE_PRODUCTS:
        if normalized == product.upper().replace("-", " "):
            return product
    family = next(
        (name for name in _FAMILIES_WITH_FORMS if re.match(rf"{name}\b", normalized)),
        None,
    )
    return _with_form_and_memory(family, normalized) if family else None


def _with_form_and_memory(family: str, name: str) -> str:
    form = _form(family, name)
    size = re.search(r"\b(\d+) ?GB\b", name)
    memory = f"{size[1]}GB" if size else _MEMORY_OF_FORM.get((family, form or ""))
    if family == "B200":
        # Printed as 180 GB and as 192 GB; there is one B200.
        memory = None
    return "-".join(part for part in (family, form, memory) if part)


def _form(family: str, name: str) -> str | None:
    if re.search(r"\bPCIE\b", name):
        return "PCIe"
    if re.search(r"\bNVL\b", name):
        return "NVL"
    sxm = re.search(r"\bSXM\d?\b", name)
    if sxm:
        return _SXM_OF_FAMILY.get(family, sxm[0])
    # The driver prints "H100 PCIe" and "H200 NVL" but no form for the SXM modules.
    if family in ("H200", "B200") or (family == "H100" and "HBM3" in name):
        return "SXM"
    return None


def may_be_the_same_gpu(name: str, other: str) -> bool:
    """Return whether two names of the vocabulary can mean the same product.

    A part that one of them leaves out matches anything: ``A100-80GB`` may be
    ``A100-SXM4-80GB``, which cannot be ``A100-PCIe-80GB``.
    """
    if name == other:
        return True
    (family, *parts), (other_family, *other_parts) = _parts(name), _parts(other)
    return family == other_family and all(
        part is None or other_part is None or part == other_part
        for part, other_part in zip(parts, other_parts, strict=True)
    )


def _parts(name: str) -> tuple[str, str | None, str | None]:
    match = re.fullmatch(r"(\w+?)(?:-(SXM\d?|PCIe|NVL))?(?:-(\d+GB))?", name)
    return (match[1], match[2], match[3]) if match else (name, None, None)
