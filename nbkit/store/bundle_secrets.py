"""Secrets in a bundle: what is left out, and what the warning says of the rest."""

from __future__ import annotations

import errno
import itertools
import json
import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from nbkit.errors import StoreError
from nbkit.reading import open_regular
from nbkit.store.paths import RunPaths
from nbkit.store.private import PRIVATE_FIELDS
from nbkit.store.record import read_json
from nbkit.store.redaction import secret_lines
from nbkit.visible import visible

_MOST_SCANNED_BYTES = 1 << 20
"""Of one file: no source is longer, and of a log the beginning has to do."""
_MOST_TOLD = 10


def without_arguments(path: Path, paths: RunPaths) -> tuple[str | None, bytes | None]:
    """Return why a file is left out, or else what replaces its content, if anything."""
    if path in (paths.private, paths.entry_pickle):
        return "include_arguments=False", None
    entry = (read_json(path) or {}) if path == paths.entry else {}
    if entry.keys().isdisjoint(PRIVATE_FIELDS):
        return None, None
    # In the earlier form it tells the arguments, too.
    public = {name: entry[name] for name in entry if name not in PRIVATE_FIELDS}
    return None, json.dumps(public, indent=1).encode() + b"\n"


def open_own(path: Path) -> BinaryIO:
    """Return an open file of a run."""
    try:
        return open_regular(path)
    except StoreError as error:
        if error.errno != errno.EACCES:
            raise
        message = (
            f"{path} may be read by its owner alone (uid {path.stat().st_uid}, and you "
            f"are {os.geteuid()}); let its owner export the run."
        )
        raise StoreError(message) from error


def warn_of_secrets(files: Iterable[Path]) -> None:
    """Warn of lines of exported files that seem to hold secrets."""
    found = list(itertools.islice(_likely_secrets(files), _MOST_TOLD + 1))
    if not found:
        return
    told = [visible(f"{path}, line {line}") for path, line in found[:_MOST_TOLD]]
    if len(found) > _MOST_TOLD:
        told.append("and more")
    message = (
        "the bundle may contain secrets, in sources, diffs or printed output, which "
        f"are exported unchanged: {'; '.join(told)}. Check these before you share it."
    )
    warnings.warn(message, stacklevel=3)


def _likely_secrets(files: Iterable[Path]) -> Iterator[tuple[Path, int]]:
    for path in files:
        if path.suffix == ".pkl":
            continue
        with open_own(path) as file:
            text = file.read(_MOST_SCANNED_BYTES).decode(errors="replace")
        yield from ((path, line) for line in secret_lines(text))
