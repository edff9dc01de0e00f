"""Random generators of a rank, and their state in a checkpoint.

These are Python's, NumPy's and torch's own. The state of a generator
that a function creates is not saved: the function must save it.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import torch


def random_state() -> dict[str, Any]:
    """Return the state of this rank's random generators."""
    version, words, gauss = random.getstate()
    numpy_state = None
    if numpy := sys.modules.get("numpy"):
        kind, numpy_words, *position = numpy.random.get_state()
        numpy_state = [kind, numpy_words.tolist(), *position]
    return {
        "python": [version, list(words), gauss],
        "torch": torch.get_rng_state(),
        # Asking for it would make a context on a GPU that is not this rank's.
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None,
        # A process that has not imported NumPy has drawn nothing from it.
        "numpy": numpy_state,
    }


def restore_random_state(state: dict[str, Any]) -> None:
    """Put this rank's random generators where `random_state` found them."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    if state["numpy"] is not None:
        import numpy as np

        np.random.set_state(tuple(state["numpy"]))
