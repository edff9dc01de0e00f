"""Files of the store that only their owner may read."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

from nbkit.errors import RunError, StoreError
from nbkit.store.paths import RunPaths, store_folder
from nbkit.store.record import read_json
from nbkit.store.redaction import redacted, redacted_argv

PRIVATE_FIELDS = ("argv", "environment")
"""What is in ``private.json``."""


def make_store(store: Path | None = None) -> None:
    """Make a store: the default one for its owner alone, others as the umask says."""
    store = store or store_folder()
    is_default = not os.environ.get("NBKIT_HOME") and store == store_folder()
    is_new = not store.is_dir()
    store.mkdir(0o700 if is_default else 0o777, parents=True, exist_ok=True)
    if is_new:  # in a repository, it is no part of what `nbkit try` compares
        (store / ".gitignore").write_text("*\n")


def read_entry(paths: RunPaths) -> dict[str, Any] | None:
    """Return what the ranks execute, with `PRIVATE_FIELDS`."""
    entry = read_json(paths.entry)
    if entry is None:
        return None
    return {**entry, **(read_json(paths.private) or {})}


def program_fields(paths: RunPaths) -> dict[str, Any]:
    """Return which function or script a run executes, and its arguments in words.

    Without secrets; of another user's run without arguments.
    """
    try:
        entry = read_entry(paths)
    except StoreError:
        entry = read_json(paths.entry)
    if entry is None:
        return {}
    if entry.get("kind") == "function":
        name = f"{entry.get('module')}.{entry.get('qualified_name')}"
        fields = {"function": name, "arguments": entry.get("arguments")}
    else:
        words = [str(word) for word in entry.get("argv") or []]
        kind = "module" if entry.get("module") else "script"
        name = entry.get("module") or entry.get("path")
        fields = {kind: name, "arguments": shlex.join(redacted_argv(words))}
    return {name: redacted(value) for name, value in fields.items() if value}


def private_part(paths: RunPaths, entry: dict[str, Any]) -> dict[str, Any]:
    """Return `PRIVATE_FIELDS` of a run, without which it cannot be executed again."""
    needed = [paths.private]
    if entry.get("kind") == "function":
        needed.append(paths.entry_pickle)
    if missing := [str(path) for path in needed if not path.exists()]:
        message = (
            f"run {paths.run_id} was imported without {' and '.join(missing)} (its "
            "arguments). Export it again with include_arguments=True, remove "
            f"{paths.root}, and import that bundle."
        )
        raise RunError(message)
    return read_json(paths.private) or {}
