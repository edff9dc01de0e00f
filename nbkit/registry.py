"""Models, loaders and engines by name, found through entry points.

A plug-in and a built-in are registered the same way, in the package's metadata::

    [project.entry-points."nbkit.loaders"]
    mine = "my_package.loading:load"

Names are listed without importing anybody's code; only `resolve` imports.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, TypeAlias

from nbkit.errors import ConfigError

Kind: TypeAlias = Literal["models", "loaders", "engines"]

__all__ = ["Kind", "forget", "names", "resolve", "suggest"]


def names(kind: Kind) -> list[str]:
    """Return the registered names of a kind, sorted, importing none of them."""
    return sorted({entry.name for entry in _entries(kind)})


def resolve(kind: Kind, name: str) -> Any:
    """Import and return what is registered under a name.

    Parameters
    ----------
    kind
        ``"models"``, ``"loaders"`` or ``"engines"``.
    name
        A name from `names`.

    Raises
    ------
    ConfigError
        If nothing is registered under that name; the text lists what is.
    """
    for entry in _entries(kind):
        if entry.name == name:
            return entry.load()
    message = (
        f"{kind[:-1]}={name!r} is not registered; known {kind}: "
        f"{', '.join(names(kind))}.{suggest(name, names(kind))}"
    )
    raise ConfigError(message)


def suggest(name: str, choices: list[str]) -> str:
    """Return `` Did you mean 'x'?`` for the nearest choice, or an empty string."""
    by_letters = {choice.lower(): choice for choice in choices}
    near = difflib.get_close_matches(name.lower(), by_letters, n=1, cutoff=0.6)
    return f" Did you mean {by_letters[near[0]]!r}?" if near else ""


def forget() -> None:
    """Look at the installed packages anew when next asked: one was just installed."""
    _all_entries.cache_clear()


def _entries(kind: Kind) -> Iterable[EntryPoint]:
    return _all_entries()(group=f"nbkit.{kind}")


@functools.cache
def _all_entries() -> Callable[..., Iterable[EntryPoint]]:
    # To look at every installed package takes the time, not to choose from it.
    return entry_points().select
