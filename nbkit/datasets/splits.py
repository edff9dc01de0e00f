"""The usual names of splits, alike for folders, packed files and tables."""

from __future__ import annotations

import re

__all__ = ["EVALUATION", "TRAINING", "split_of", "splits_in"]

TRAINING = ("train", "training")
_VALIDATION = ("val", "valid", "validation", "validate", "dev", "eval", "evaluation")
_TEST = ("test", "testing")
EVALUATION = (*_VALIDATION, *_TEST)

_SPLITS = {
    **dict.fromkeys(TRAINING, "train"),
    **dict.fromkeys(_VALIDATION, "validation"),
    **dict.fromkeys(_TEST, "test"),
}


def split_of(name: str) -> str | None:
    """Return ``train``, ``validation`` or ``test`` for its name, in any case."""
    return _SPLITS.get(name.lower())


def splits_in(path: str) -> set[str]:
    """Return the splits named by the words of a path, such as ``val-00000.tar``."""
    words = re.split(r"[\W_\d]+", path.lower())
    return {_SPLITS[word] for word in words if word in _SPLITS}
