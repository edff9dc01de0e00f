"""What a pack keeps of the data that were packed: what is not in it, and links."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from nbkit.datasets.same_files import SameFiles
from nbkit.errors import ConfigError
from nbkit.reading import read_file

NOTE = "dataset-when-packed.json"
"""Has no part in the fingerprint, as it does not change what is read."""
_WHEN = " left out when packed"
_UNREADABLE = (
    *(OSError, ValueError, TypeError, KeyError, AttributeError),
    *(OverflowError, RecursionError),
)


@dataclass(frozen=True)
class WhenPacked:
    """What packing has left out, and which images were one file by a link."""

    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many files and folders by their kind; as read, with when that was."""
    same_files: SameFiles = field(default_factory=SameFiles)

    @classmethod
    def read(cls, folder: Path) -> WhenPacked:
        """Return what a pack says; nothing if it does not say.

        Raises
        ------
        ConfigError
            If what it says cannot be read.
        """
        path = folder / NOTE
        try:
            note = json.loads(read_file(path))
            counts = note["left_out"].items()
            left_out = {f"{kind}{_WHEN}": int(count) for kind, count in counts}
            return cls(left_out, SameFiles.from_dict(note["same_files"]))
        except FileNotFoundError:
            return cls()
        except _UNREADABLE as error:
            message = (
                f"{path} does not say what packing left out ({error!r}); remove it."
            )
            raise ConfigError(message) from error

    def write(self, folder: Path) -> None:
        """Note it in a pack's folder, if there is something to note."""
        # Of a pack that is packed again, some were left out the first time.
        kinds = Counter[str]()
        for kind, count in self.left_out.items():
            kinds[kind.removesuffix(_WHEN)] += count
        if kinds or self.same_files.count:
            note = {"left_out": kinds, "same_files": asdict(self.same_files)}
            (folder / NOTE).write_text(json.dumps(note) + "\n", encoding="utf-8")
