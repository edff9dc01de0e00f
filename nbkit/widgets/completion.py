"""Tab completion of fields, and of the names that a field may have.

IPython asks after every press of the key. In a call that takes a configuration, such as
``nbkit.launch(``, ``ExperimentConfig(`` or ``config.replace(``, it gets the fields, and
inside the quotes of a field its values, such as the names of models.
"""

from __future__ import annotations

import re
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nbkit.config import Model

_VALUE = re.compile(r"(\w+)\s*=\s*([\"'])([^\"']*)$")
_CALLEE = re.compile(r"([A-Za-z_]\w*(?:\.\w+)*)\s*$")
_TAKES_FIELDS = re.compile(r"launch$|config$|replace$|[A-Z]")
"""What is asked for: any other attribute of nbkit would be imported in vain."""


def register(shell: Any) -> None:
    """Let a kernel's IPython complete calls of nbkit."""
    from IPython.core.completer import SimpleCompletion, context_matcher

    @context_matcher(identifier="nbkit")
    def match(context: Any) -> dict[str, Any]:
        lines = context.full_text.split("\n")[: context.cursor_line]
        before = "\n".join([*lines, context.text_until_cursor])
        fragment, names, kind = complete(before, shell.user_ns)
        return {
            "completions": [SimpleCompletion(text, type=kind) for text in names],
            "matched_fragment": fragment,
            # Inside quotes nothing else is meant.
            "suppress": bool(names) and kind == "value",
        }

    shell.Completer.custom_matchers.append(match)


def complete(before: str, namespace: Mapping[str, Any]) -> tuple[str, list[str], str]:
    """Return what may follow."""
    value = _VALUE.search(before)
    call = before[: value.start()] if value else before
    fragment = value[3] if value else re.split(r"\W", before)[-1]
    fields = _fields_called_for(call, namespace)
    if fields is None:
        return fragment, [], "param"
    if value is None:
        return fragment, [f"{n}=" for n in fields if n.startswith(fragment)], "param"
    names = names_of(value[1])
    if not names and value[1] in fields:
        from nbkit.config.documented import choices

        names = choices(fields[value[1]].annotation)
    return fragment, [text for text in names if text.startswith(fragment)], "value"


def names_of(field: str) -> list[str]:
    """Return the names that a field may have; none if it does not take a name."""
    from nbkit import registry
    from nbkit.datasets.cache import NAMED

    registered: dict[str, registry.Kind] = {
        "model": "models",
        "loader": "loaders",
        "engine": "engines",
    }
    if field in registered:
        return registry.names(registered[field])
    return ["synthetic", *NAMED] if field == "data" else []


def _fields_called_for(
    before: str, namespace: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Return the fields that the innermost open call takes; None for other calls."""
    place = _open_bracket(before)
    callee = None if place is None else _CALLEE.search(before[:place])
    if callee is None:
        return None
    config = _configuration_of(callee[1], namespace)
    return None if config is None else config.model_fields


def _open_bracket(text: str) -> int | None:
    """Return where the innermost open call's bracket is."""
    # Brackets inside strings do not count.
    blank = re.sub(r"([\"'])(?:\\.|(?!\1)[^\\\n])*\1", lambda m: " " * len(m[0]), text)
    depth = 0
    for place in range(len(blank) - 1, -1, -1):
        depth += (blank[place] in ")]}") - (blank[place] in "([{")
        if depth < 0:
            return place if blank[place] == "(" else None
    return None


def _configuration_of(name: str, namespace: Mapping[str, Any]) -> type[Model] | None:
    """Return the configuration whose fields a callable takes; None if it takes none."""
    from nbkit.config import ExperimentConfig, Model

    first, _, attribute = name.partition(".")
    owner = called = namespace.get(first)
    # Only nbkit's own objects: reading another's attribute may run its code. Of an
    # object the class is asked: a property may take long, or run what was pickled.
    if attribute and not _TAKES_FIELDS.match(attribute):
        return None
    if attribute:
        has_it = owner if isinstance(owner, ModuleType) else type(owner)
        called = getattr(has_it, attribute, None) if _is_of_nbkit(owner) else None
    if not _is_of_nbkit(called):
        return None
    if isinstance(called, type):
        return called if issubclass(called, Model) else None
    if attribute == "replace" and isinstance(owner, Model):
        return type(owner)
    takes_fields = ("launch", "nbkit.launch", "config")
    return ExperimentConfig if getattr(called, "__name__", "") in takes_fields else None


def _is_of_nbkit(value: Any) -> bool:
    module = getattr(value, "__module__", None) or getattr(value, "__name__", None)
    of_type = type(value).__module__
    return any(str(each).split(".")[0] == "nbkit" for each in (module, of_type))
