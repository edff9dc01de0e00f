"""Text of `help` for a configuration: every field, from its declaration."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

_WIDTH = 84


def documentation(cls: type[BaseModel]) -> str:
    """Return the class's docstring, and below it its fields in numpy style."""
    docstring = inspect.cleandoc(vars(cls).get("__doc__") or "")
    fields = getattr(cls, "__pydantic_fields__", {})
    if not fields:
        return docstring
    lines, texts = [docstring, "", "Parameters", "----------"], descriptions(cls)
    for name, field in fields.items():
        default = repr(_default(field))
        values = _type(field.annotation) + _range(field.metadata)
        lines.append(f"{name} : {values}, default {default}")
        words = " ".join(texts.get(name, "").split())
        lines.append(textwrap.indent(textwrap.fill(words, _WIDTH - 4), "    "))
    return "\n".join(lines)


def descriptions(cls: type[BaseModel]) -> dict[str, str]:
    """Return the docstring below each field."""
    # pydantic would read it at each import, by way of inspect, which takes half of it.
    texts: dict[str, str] = {}
    for base in cls.__mro__:
        if not base.__module__.startswith("nbkit."):
            continue
        source = Path(sys.modules[base.__module__].__file__ or "").read_bytes()
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef) and node.name == base.__name__:
                for pair in pairwise(node.body):
                    match pair:
                        case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(it)):
                            texts.setdefault(name, inspect.cleandoc(str(it)))
    return {name: it for name, it in texts.items() if name in cls.model_fields}


def short_signature(cls: type[BaseModel]) -> inspect.Signature:
    """Return names and defaults; what values there are, the documentation says."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature(
        [
            inspect.Parameter(name, keyword, default=_default(field))
            for name, field in cls.model_fields.items()
        ]
    )


def choices(annotation: Any) -> list[str]:
    """Return the texts that an annotation allows, if it names them."""
    if get_origin(annotation) is Literal:
        return [value for value in get_args(annotation) if isinstance(value, str)]
    return [text for part in get_args(annotation) for text in choices(part)]


def _default(field: FieldInfo) -> Any:
    return field.get_default(call_default_factory=True)


def _type(annotation: Any) -> str:
    """Return which values there are, as in ``int >= 1 or None``."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation in (None, NoneType):
        return "None"
    if origin is Literal:
        return " or ".join(map(repr, parts))
    if origin in (Union, UnionType):
        return " or ".join(map(_type, parts))
    if origin is Annotated:
        inner: list[Any] = []
        for part in parts[1:]:
            inner += part.metadata if isinstance(part, FieldInfo) else [part]
        return _type(parts[0]) + _range(inner)
    if origin is tuple:
        return f"tuple of {_type(parts[0])}"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _range(constraints: list[Any]) -> str:
    """Return the limits of a number, as in `` >= 1 and <= 64``."""
    words = []
    for constraint in constraints:
        match constraint:
            case annotated_types.Ge(ge=limit):
                words.append(f">= {limit}")
            case annotated_types.Gt(gt=limit):
                words.append(f"> {limit}")
            case annotated_types.Le(le=limit):
                words.append(f"<= {limit}")
            case annotated_types.Lt(lt=limit):
                words.append(f"< {limit}")
            case _:
                pass
    return " " + " and ".join(words) if words else ""
