"""What packing left out of a data set: the pack keeps the counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbkit.errors import ConfigError
from nbkit.reading import read_file

__all__ = ["LEFT_OUT", "left_out", "write_left_out"]

LEFT_OUT = "dataset-left-out.json"
"""Has no part in the fingerprint, as it does not change what is read."""
_WHEN = " left out when packed"


def write_left_out(folder: Path, counts: Mapping[str, int]) -> None:
    """Note in a pack's folder how many files are not in it, by their suffix."""
    if counts:
        # Of a pack that is packed again, some were left out the first time.
        kinds = Counter[str]()
        for kind, count in counts.items():
            kinds[kind.removesuffix(_WHEN)] += count
        (folder / LEFT_OUT).write_text(json.dumps(kinds) + "\n", encoding="utf-8")


def left_out(folder: Path) -> Counter[str]:
    """Return how many files are not in a pack; nothing if it does not say.

    Raises
    ------
    ConfigError
        If what it says cannot be read.
    """
    path = folder / LEFT_OUT
    try:
        counts: dict[str, Any] = json.loads(read_file(path))
        return Counter({f"{kind}{_WHEN}": int(n) for kind, n in counts.items()})
    except FileNotFoundError:
        return Counter()
    except (OSError, ValueError, TypeError, AttributeError) as error:
        message = f"{path} does not say how many files it counts ({error}); remove it."
        raise ConfigError(message) from error
