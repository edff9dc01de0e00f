"""Models, loaders, engines and questions by name, found through entry points.

A plug-in and a built-in are registered the same way, in the package's metadata::

    [project.entry-points."nbkit.loaders"]
    mine = "my_package.loading:load"

Names are listed without importing anybody's code; only `resolve` imports.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, TypeAlias

from nbkit.errors import ConfigError

Kind: TypeAlias = Literal["models", "loaders", "engines", "questions"]


_METHODS: dict[Kind, tuple[str, ...]] = {
    "engines": ("check", "submit", "notify", "reap"),
    "questions": ("plan", "run", "report", "before_start"),
}
"""Of `nbkit.launch.engine.Engine` and `nbkit.questions.question.Question`, which are in
packages above this one."""


def names(kind: Kind) -> list[str]:
    """Return the registered names of a kind, sorted, importing none of them."""
    return sorted({entry.name for entry in _entries(kind)})


def resolve(kind: Kind, name: str) -> Any:
    """Import and return what is registered under a name.

    Parameters
    ----------
    kind
        ``"models"``, ``"loaders"``, ``"engines"`` or ``"questions"``.
    name
        A name from `names`.

    Raises
    ------
    ConfigError
        If nothing is registered under that name, or more than one thing; if it cannot
        be imported, or lacks a method. The text names the package.
    """
    entries = [entry for entry in _entries(kind) if entry.name == name]
    if not entries:
        message = (
            f"{kind[:-1]}={name!r} is not registered. Known {kind}: "
            f"{', '.join(names(kind)) or 'none'}.{suggest(name, names(kind))}"
        )
        raise ConfigError(message)
    # Two packages may well mean the same thing by a name.
    if len({entry.value for entry in entries}) > 1:
        message = (
            f"{kind[:-1]}={name!r} is registered {len(entries)} times, by "
            f"{' and by '.join(sorted(map(_place, entries)))}. Rename it in one "
            "package, or uninstall one package."
        )
        raise ConfigError(message)
    loaded = _load(kind, entries[0])
    _check_interface(kind, entries[0], loaded)
    return loaded


def suggest(name: str, choices: list[str]) -> str:
    """Return `` Did you mean 'x'?`` for the nearest choice, or an empty string."""
    by_letters = {choice.lower(): choice for choice in choices}
    near = difflib.get_close_matches(name.lower(), by_letters, n=1, cutoff=0.6)
    return f" Did you mean {by_letters[near[0]]!r}?" if near else ""


def forget() -> None:
    """Look at the installed packages again when next asked: one was just installed."""
    _all_entries.cache_clear()
    _entries.cache_clear()


def _load(kind: Kind, entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as error:  # a plug-in's own code runs here
        message = (
            f"{kind[:-1]}={entry.name!r}, which is {_place(entry)}, cannot be imported "
            f"({type(error).__name__}: {error}). Fix or uninstall the package."
        )
        raise ConfigError(message) from error


def _check_interface(kind: Kind, entry: EntryPoint, loaded: Any) -> None:
    """Raise if an engine or a question lacks what nbkit calls."""
    lacking = [n for n in _METHODS.get(kind, ()) if not callable(getattr(loaded, n, 0))]
    problem = f"lacks {', '.join(lacking)}" if lacking else ""
    if kind == "questions" and not lacking and loaded.name != entry.name:
        problem = f"has name={loaded.name!r}"
    if not problem:
        return
    message = (
        f"{kind[:-1]}={entry.name!r}, which is {_place(entry)}, {problem}. Change it "
        "as described in CONTRIBUTING.md."
    )
    raise ConfigError(message)


def _place(entry: EntryPoint) -> str:
    package = entry.dist.name if entry.dist else "a package"
    return f"{entry.value} of {package}"


@functools.cache
def _entries(kind: Kind) -> Sequence[EntryPoint]:
    return tuple(_all_entries()(group=f"nbkit.{kind}"))


@functools.cache
def _all_entries() -> Callable[..., Iterable[EntryPoint]]:
    # To look at every installed package takes a tenth of a second.
    return entry_points().select
