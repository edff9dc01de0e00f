"""What a slot needs before it starts: looked for once, told in one sentence."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
import re
import subprocess
import sys
from typing import Any

__all__ = ["LackingError", "default_precision", "require", "torchvision_fits"]

OLDEST_TORCH = (2, 7)
AMPERE = 8.0
"""Compute capability from which on a GPU has bf16."""

# In a process of its own: what is imported there holds no GPU here.
_LOOK = """
import json, sys, warnings
warnings.simplefilter("ignore")
import torch
found = {"torch": torch.__version__, "cuda": torch.version.cuda}
try:
    import torchvision
    torchvision.models.resnet18
    found["torchvision"] = torchvision.__version__
except Exception as error:
    found["torchvision_error"] = f"{type(error).__name__}: {error}".splitlines()[0]
found["gpus"] = torch.cuda.device_count() if torch.cuda.is_available() else 0
sys.stdout.write("\\n" + json.dumps(found))
"""


class LackingError(Exception):
    """Something is missing without which no check can run."""


def require() -> dict[str, Any]:
    """Return what this machine is.

    Raises
    ------
    LackingError
        If nbkit, torch, torchvision or an NVIDIA GPU is missing or does not fit; with
        what to install.
    """
    here = f"{sys.executable} (Python {platform.python_version()})"
    _require_packages(here)
    looked = _looked(here)
    _require_versions(looked, here)
    import nbkit
    from nbkit.errors import NbkitError
    from nbkit.launch.devices.choice import visible_gpus
    from nbkit.telemetry.nvml import describe_gpus

    try:
        gpus = visible_gpus("cuda")
        described = describe_gpus()
    except NbkitError as error:
        message = f"make gpu needs an NVIDIA GPU: {error}"
        raise LackingError(message) from None
    if not looked["gpus"]:
        message = (
            f"the driver shows {len(gpus)} GPUs and torch {looked['torch']} (CUDA "
            f"{looked['cuda']}) none; nbkit doctor says why."
        )
        raise LackingError(message)
    return {
        "gpus": [{"name": gpu.product or gpu.label, "uuid": gpu.name} for gpu in gpus],
        "driver": described.get("driver_version"),
        "torch": looked["torch"],
        "torchvision": looked["torchvision"],
        "cuda": looked["cuda"],
        "precision": default_precision(described["devices"] or [], gpus[0].name),
        "python": platform.python_version(),
        "nbkit": nbkit.__version__,
    }


def default_precision(devices: list[dict[str, Any]], uuid: str) -> str:
    """Return in which format checks train: bf16, and fp16 on a GPU without it.

    Parameters
    ----------
    devices
        As `describe_gpus` tells them.
    uuid
        Of the GPU that a training of one rank takes.
    """
    capability = next(
        (one["compute_capability"] for one in devices if one["uuid"] == uuid), None
    )
    return "fp16" if capability and float(capability) < AMPERE else "bf16"


def torchvision_fits(requirements: list[str], torch: str) -> bool:
    """Return whether a torch is one that torchvision's own metadata asks for.

    Parameters
    ----------
    requirements
        Such as ``["numpy", "torch (==2.11.0)"]`` or ``["torch>=2.14.0"]``.
    torch
        Its version, such as ``2.11.0+cu130``.
    """
    have = _numbers(torch)
    for line in requirements:
        found = re.match(r"torch\s*\(?(==|>=)\s*([\d.]+)", line)
        if found:
            wanted = _numbers(found[2])
            return have == wanted if found[1] == "==" else have >= wanted
    return True


def _numbers(version: str) -> tuple[int, ...]:
    """Return the release of a version: ``(2, 11, 0)`` of ``2.11.0+cu130``."""
    leading = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, leading[0].split("."))) if leading else ()


def _require_packages(here: str) -> None:
    missing = [
        name
        for name in ("torch", "torchvision", "nbkit")
        if importlib.util.find_spec(name) is None
    ]
    if not missing:
        return
    how = "pip install 'torch>=2.7' and the torchvision that belongs to it"
    if missing == ["nbkit"]:
        how = (
            "make gpu-kit PYTHON=3.12 makes a folder for it: there, pip install "
            "--no-index --no-deps *.whl"
        )
    message = f"{here} has no {' and no '.join(missing)}: {how}."
    raise LackingError(message)


def _looked(here: str) -> dict[str, Any]:
    process = subprocess.run(
        [sys.executable, "-P", "-c", _LOOK], capture_output=True, text=True
    )
    if process.returncode:
        said = process.stderr.strip().splitlines()[-1:] or ["no word"]
        message = f"{here} cannot import torch ({said[0]}); install torch>=2.7 anew."
        raise LackingError(message)
    return json.loads(process.stdout.splitlines()[-1])


def _require_versions(looked: dict[str, Any], here: str) -> None:
    torch = looked["torch"]
    if _numbers(torch)[:2] < OLDEST_TORCH:
        message = f"{here} has torch {torch}; nbkit needs 2.7 or newer: install it."
        raise LackingError(message)
    needs = importlib.metadata.requires("torchvision") or []
    wrong = looked.get("torchvision_error")
    if wrong is None and not torchvision_fits(needs, torch):
        asked = next(line for line in needs if line.startswith("torch"))
        wrong = f"it asks for {asked}"
    if wrong is not None:
        version = importlib.metadata.version("torchvision")
        message = (
            f"torchvision {version} does not fit torch {torch} ({wrong}); install the "
            f"torchvision that belongs to torch {torch.partition('+')[0]}."
        )
        raise LackingError(message)
