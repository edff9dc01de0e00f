"""Libraries of the batch-norm kernels, where compared runs differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WORDS = {
    "cudnn": "cuDNN",
    "native": "native PyTorch",
}


def batch_norm_of(worker: Mapping[str, Any]) -> str | None:
    """Return the batch-norm library in a run's ``worker.json``; None if unknown."""
    return (worker.get("numbers") or {}).get("batch_norm")


def batch_norm_sentence(backends: Mapping[str, str | None]) -> str | None:
    """Return the batch-norm kernels by arm; None if all arms use the same."""
    by_backend: dict[str, list[str]] = {}
    for name, backend in backends.items():
        if backend is not None and backend != "inductor":
            by_backend.setdefault(backend, []).append(name)
    if len(by_backend) < 2:
        return None
    parts = [
        f"{_WORDS.get(backend, backend)} in {'; '.join(names)}"
        for backend, names in by_backend.items()
    ]
    return f"Batch-norm kernels differ between arms: {', '.join(parts)}."
