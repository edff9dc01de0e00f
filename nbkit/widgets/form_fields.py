"""Controls of the form: one for every field of the configuration's schema.

A control holds what was entered: text, or true and false for a switch. Text that is not
a value of its field stays as it is; `ExperimentConfig` reports the error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from nbkit.config import ExperimentConfig
from nbkit.config.fields import Field, described_fields
from nbkit.widgets.completion import names_of

Entered: TypeAlias = "dict[str, str | bool]"
"""What every control holds, by the path of its field."""

ControlKind = Literal["switch", "choice", "number", "list", "text", "lines", "pairs"]

_AT_HAND = (
    *("name", "model", "data", "loader"),
    *("gpus", "batch_size_per_gpu", "precision", "steps", "epochs"),
)
"""The most common fields: in sight without unfolding anything."""
_NOT_SET = "not set"
_WORDS = {True: "true", False: "false", None: ""}
_QUOTED = ("true", "false")


@dataclass(frozen=True)
class Control:
    """One field of the configuration, as a form asks for it."""

    path: str
    """Such as ``loader_config.num_workers``."""
    kind: ControlKind
    help: str
    """The field's description."""
    default: str | bool
    """What it holds at first."""
    optional: bool
    """Whether it may be left empty."""
    choices: tuple[tuple[str, str], ...] = ()
    """Of a choice: what it holds and what it shows, for each."""
    suggestions: tuple[str, ...] = ()
    """Some of the texts that are values."""
    limits: str = ""
    """What numbers it takes, such as ``1 to 64``."""

    def entered(self, value: Any) -> str | bool:
        """Return what the control holds for a value of its field."""
        if self.kind == "switch":
            return bool(value)
        if isinstance(value, bool | None):
            return _WORDS[value]
        if isinstance(value, Mapping):
            lines = (f"{name}={_format_value(item)}" for name, item in value.items())
            return "\n".join(lines)
        if isinstance(value, list | tuple):
            return ("\n" if self.kind == "lines" else ", ").join(map(str, value))
        return str(value)

    def value(self, entered: str | bool) -> Any:
        """Return the field's value; other text is returned as it is."""
        if isinstance(entered, bool) or self.kind == "text":
            return entered
        text = entered.strip()
        if not text and self.optional:
            return None
        if self.kind == "choice":
            words = {word: value for value, word in _WORDS.items()}
            return words.get(text, text)
        lines = [line for line in map(str.strip, text.split("\n")) if line]
        if self.kind == "lines":
            return tuple(lines)
        if self.kind == "pairs":
            return dict(map(_parse_pair, lines))
        if self.kind == "list":
            return tuple(_number(part) for part in re.findall(r"[^\s,;()\[\]]+", text))
        return _number(text)


@dataclass(frozen=True)
class Section:
    """Fields under one heading."""

    title: str
    controls: tuple[Control, ...]
    is_open: bool
    """Whether it is unfolded at first."""


def sections() -> list[Section]:
    """Return the controls of every field: the common ones, then others by heading."""
    described = described_fields()
    fields = {field.path: field for field in described}
    common = tuple(_control(fields[path]) for path in _AT_HAND)
    others: dict[str, list[Control]] = {}
    for field in described:
        if field.path not in _AT_HAND:
            others.setdefault(field.group, []).append(_control(field))
    # Controls with their own heading come last below a heading.
    return [
        Section("Experiment", common, is_open=True),
        *(
            Section(
                title,
                tuple(sorted(controls, key=lambda control: control.path.count("."))),
                is_open=False,
            )
            for title, controls in others.items()
        ),
    ]


def entered_of(config: ExperimentConfig, controls: Mapping[str, Control]) -> Entered:
    """Return what the controls hold for a configuration."""
    held: Entered = {}
    for path, control in controls.items():
        value: Any = config
        for name in path.split("."):
            value = getattr(value, name)
        held[path] = control.entered(value)
    return held


def fields_of(entered: Entered, controls: Mapping[str, Control]) -> dict[str, Any]:
    """Return the fields that are not at their defaults, nested as they are."""
    fields: dict[str, Any] = {}
    for path, control in controls.items():
        value = control.value(entered[path])
        if value == control.value(control.default):
            continue
        *outer, last = path.split(".")
        inside = fields
        for name in outer:
            inside = inside.setdefault(name, {})
        inside[last] = value
    return fields


def _control(field: Field) -> Control:
    schema, path = field.schema, field.path
    members = schema.get("anyOf", [schema])
    kinds = [member for member in members if member.get("type") != "null"]
    optional = len(kinds) < len(members)
    control = Control(
        path,
        _kind(path, kinds, optional=optional),
        " ".join(schema["description"].split()),
        default="",
        optional=optional,
        choices=_choices(kinds, optional=optional),
        suggestions=tuple(names_of(path) or _words(kinds)),
        limits=_limits(kinds),
    )
    return replace(control, default=control.entered(field.default))


def _kind(path: str, kinds: list[Mapping[str, Any]], *, optional: bool) -> ControlKind:
    types = {kind.get("type") for kind in kinds}
    if "array" in types:
        items = [kind["items"].get("type") for kind in kinds if "items" in kind]
        # Blanks and commas are part of a line of a shell.
        return "lines" if items == ["string"] else "list"
    if types == {"object"} and all("additionalProperties" in kind for kind in kinds):
        return "pairs"
    if types & {"integer", "number"}:
        return "number"
    if types == {"boolean"}:
        return "choice" if optional else "switch"
    if types == {"string"}:
        return "choice" if any("enum" in kind for kind in kinds) else "text"
    message = f"{path}: the form has no control for {kinds}. Add a control to the form."
    raise TypeError(message)


def _choices(
    kinds: list[Mapping[str, Any]], *, optional: bool
) -> tuple[tuple[str, str], ...]:
    texts = [text for kind in kinds for text in kind.get("enum", ())]
    if optional and {kind.get("type") for kind in kinds} == {"boolean"}:
        texts = ["true", "false"]
    empty = [("", _NOT_SET)] if optional and texts else []
    return (*empty, *((text, text) for text in texts))


def _limits(kinds: list[Mapping[str, Any]]) -> str:
    """Return what a field takes, in words."""
    parts: list[str] = []
    for kind in kinds:
        item = kind.get("items", kind)
        low, high = item.get("minimum"), item.get("maximum")
        above, below = item.get("exclusiveMinimum"), item.get("exclusiveMaximum")
        if low is not None and high is not None:
            parts.append(f"{low:,} to {high:,}")
        else:
            parts += [f"{low:,} or more"] if low is not None else []
            parts += [f"above {above:,}"] if above is not None else []
            parts += [f"at most {high:,}"] if high is not None else []
            parts += [f"below {below:,}"] if below is not None else []
    return ", or ".join([", ".join(parts), *_words(kinds)]) if parts else ""


def _words(kinds: list[Mapping[str, Any]]) -> list[str]:
    """Return the texts that a field takes beside numbers."""
    words = [
        kind.get("enum") or [kind.get("const")] for kind in kinds if len(kinds) > 1
    ]
    return [word for each in words for word in each if word is not None]


def _format_value(value: bool | int | str) -> str:
    if isinstance(value, bool):
        return _WORDS[value]
    # In quotes the word, without them the boolean.
    return f'"{value}"' if value in _QUOTED else str(value)


def _parse_pair(line: str) -> tuple[str, bool | int | str]:
    """Return name and value of a line such as ``licenses=matlab:1``."""
    name, equals, text = (part.strip() for part in line.partition("="))
    if not equals:
        return name, True
    if text in ("true", "false"):
        return name, text == "true"
    if (word := text.strip('"')) in _QUOTED and text == f'"{word}"':
        return name, word
    number = _number(text)
    return name, number if isinstance(number, int) and str(number) == text else text


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
