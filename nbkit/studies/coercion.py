"""Conversion of command-line values to annotated types."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from nbkit.errors import ParameterError

_ANNOTATION = re.compile(
    r"(?:(?P<list>list\[)?(?P<scalar>int|float|str|bool)(?(list)\])|(?P<dict>dict))"
    r"(?P<optional> \| None)?"
)
_MOST_DIGITS = 30
"""Of an integer: a text such as 1e999999999 would fill the memory."""


@dataclass(frozen=True)
class ParameterKind:
    """What a parameter may be."""

    scalar: str
    """``int``, ``float``, ``str``, ``bool`` or ``dict``."""
    is_list: bool
    """Whether it is a list of these; on the command line, a text with commas."""
    is_optional: bool
    """Whether None is a value."""


class _DoesNotFitError(Exception):
    """A value is not of the wanted scalar type."""


def kind_of(annotation: str, default: Any) -> ParameterKind | None:
    """Return what an annotation means; None if it is not one for parameters."""
    match = _ANNOTATION.fullmatch(annotation)
    if match is None:
        return None
    optional = bool(match["optional"]) or default is None
    return ParameterKind(
        match["scalar"] or match["dict"], bool(match["list"]), optional
    )


def annotation_of(value: Any) -> str:
    """Return the annotation that suits a value; ``str`` where none does."""
    items = value if isinstance(value, list) else [value]
    names = {type(item).__name__ for item in items}
    scalar = "float" if names == {"int", "float"} else "".join(names)
    if scalar not in _SCALARS or (scalar == "dict" and items is value):
        scalar = "str"
    return f"list[{scalar}]" if items is value else scalar


def coerce(name: str, value: Any, kind: ParameterKind) -> Any:
    """Return the value as the type that the notebook declares."""
    if value is None and kind.is_optional:
        return None
    try:
        if kind.is_list:
            return [_SCALARS[kind.scalar](part) for part in _parts(value)]
        return _SCALARS[kind.scalar](value)
    except _DoesNotFitError:
        remedies = _LIST_REMEDIES if kind.is_list else _REMEDIES
        remedy = remedies[kind.scalar].format(name=name, value=value)
        message = f"{name}={value!r} is {remedy}"
        raise ParameterError(message) from None


def _parts(value: Any) -> list[Any]:
    """Return the items of a list, its JSON, a text with commas, or one value."""
    parts = value
    if isinstance(value, str):
        is_json = value.startswith("[") and value.endswith("]")
        try:
            parts = json.loads(value) if is_json else value.split(",")
        except json.JSONDecodeError:
            raise _DoesNotFitError from None
    parts = list(parts) if isinstance(parts, list | tuple) else [parts]
    parts = [part.strip() if isinstance(part, str) else part for part in parts]
    if not parts or "" in parts:
        raise _DoesNotFitError
    return parts


def _to_int(value: Any) -> int:
    # A float would round what has more than 16 digits.
    number = _to_decimal(value)
    if number.adjusted() > _MOST_DIGITS or number != number.to_integral_value():
        raise _DoesNotFitError
    return int(number)


def _to_float(value: Any) -> float:
    exact = _to_decimal(value)
    number = float(exact)
    if not math.isfinite(number) or (isinstance(value, int) and number != value):
        raise _DoesNotFitError
    return number


def _to_decimal(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _DoesNotFitError
    try:
        number = Decimal(value)
    except InvalidOperation:
        raise _DoesNotFitError from None
    if not number.is_finite():
        raise _DoesNotFitError
    return number


def _to_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise _DoesNotFitError


def _to_str(value: Any) -> str:
    # A number may have lost its spelling on the way (08 arrives as 8): not guessed.
    if not isinstance(value, str):
        raise _DoesNotFitError
    return value


def _to_dict(value: Any) -> dict[str, Any]:
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
    except json.JSONDecodeError:
        raise _DoesNotFitError from None
    if not isinstance(parsed, dict):
        raise _DoesNotFitError
    return dict(parsed)


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "int": _to_int,
    "float": _to_float,
    "bool": _to_bool,
    "str": _to_str,
    "dict": _to_dict,
}
_REMEDIES = {
    "int": "not a whole number. Use an integer, such as 8.",
    "float": "not a finite number. Use a number, such as 0.1.",
    "bool": "not a boolean. Use true or false.",
    "str": "not a string. Quote it, or pass it to papermill with -r {name} {value}.",
    "dict": 'not a JSON object. Use an object, such as {{"slurm_qos": "high"}}.',
}
_LIST_REMEDIES = {
    "int": "not a list of whole numbers. Separate them by commas, such as 1,2,4.",
    "float": "not a list of numbers. Separate them by commas, such as 0.1,0.2.",
    "bool": "not a list of booleans. Separate them by commas, such as true,false.",
    "str": "not a list of strings. Separate them by commas, such as fp32,fp16.",
}
