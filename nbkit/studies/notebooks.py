"""Paths of the canonical notebooks, in the wheel or in the checkout."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from nbkit import registry
from nbkit.errors import ConfigError
from nbkit.registry import suggest

_PACKAGE = Path(__file__).parents[1]


def notebook(name: str) -> Path:
    """Return the path of a canonical notebook; copy it before you edit it.

    Parameters
    ----------
    name
        Name of the notebook, such as ``"scaling"``.

    Raises
    ------
    ConfigError
        If there is no notebook of that name; the error lists the names.

    Examples
    --------
    >>> nbkit.notebook("scaling").name  # doctest: +SKIP
    'scaling.ipynb'
    """
    paths = notebooks()
    if name in paths:
        return paths[name]
    message = (
        f"notebook={name!r} is unknown. Use one of {', '.join(paths)}."
        f"{suggest(name, list(paths))}"
    )
    raise ConfigError(message)


def notebooks() -> dict[str, Path]:
    """Return the path of every canonical notebook, by name."""
    folders = [_PACKAGE / "notebooks", _PACKAGE.parent / "notebooks"]
    paths = {
        path.stem: path
        for folder in reversed(folders)
        for path in sorted(folder.glob("*.ipynb"))
    }
    for name in registry.names("questions"):
        # A package's own; one that cannot be imported hides no other notebook.
        with suppress(ConfigError):
            own = registry.resolve("questions", name).folder / f"{name}.ipynb"
            paths |= {name: own} if own.exists() else {}
    return paths


def parameters_of(path: Path) -> list[str]:
    """Return the parameters of a canonical notebook, one declaration per line.

    Parameters of the notebook's cell come first, then those it omits.
    """
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    declared = (
        "".join(cell["source"])
        for cell in cells
        if "parameters" in cell["metadata"].get("tags", ())
    )
    lines = next(declared, "").splitlines()
    if path.stem in registry.names("questions"):
        further = registry.resolve("questions", path.stem).further_parameters
        lines += [line for line in further.splitlines() if ": " in line.split("#")[0]]
    return lines


def as_typed(name: str) -> str:
    """Return what names a canonical notebook in a command that a user types."""
    if (_PACKAGE / "notebooks").exists():  # a wheel is installed, somewhere
        return f'"$(nbkit notebook {name})"'
    return f"notebooks/{name}.ipynb"
