"""The texts in files: prose, strings, docstrings and comments, with their lines."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Passage", "of_json", "of_notebook", "of_python", "of_script"]


@dataclass(frozen=True)
class Passage:
    """Text that a person reads."""

    text: str
    line: int
    """Where it begins in its file."""
    is_documentation: bool = False
    """Whether it is a docstring or a comment: only those who read the code see it."""


def of_python(source: str) -> Iterator[Passage]:
    """Yield a module's strings, docstrings and comments."""
    nodes = list(ast.walk(ast.parse(source)))
    documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    formatted = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in formatted for part in node.values}
    for node in formatted:
        constants = (getattr(part, "value", None) for part in node.values)
        texts = (text if isinstance(text, str) else "{}" for text in constants)
        yield Passage("".join(texts), node.lineno)
    for node in nodes:
        if not isinstance(node, ast.Constant) or id(node) in parts:
            continue
        if isinstance(node.value, str):
            yield Passage(node.value, node.lineno, id(node) in documentation)
    yield from _comments(source)


def _comments(source: str) -> Iterator[Passage]:
    """Yield comments; those on successive lines are one text."""
    lines: list[str] = []
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        number = token.start[0]
        if lines and number != last + 1:
            yield Passage("\n".join(lines), last - len(lines) + 1, True)
            lines = []
        lines.append(token.string.lstrip("# "))
        last = number
    if lines:
        yield Passage("\n".join(lines), last - len(lines) + 1, True)


_SCRIPT = re.compile(
    r"(?P<comment>(?:[ \t]*//[^\n]*\n?)+|/\*.*?\*/)"
    r"|(?P<string>'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\")"
    r"|(?P<template>`)|(?P<opening>\{)|(?P<closing>\})",
    re.S,
)
_CHUNK = re.compile(r"(?:\\.|\$(?!\{)|[^`\\$])*", re.S)
_JSX = re.compile(r"[>}]([^<>{}()=;]*[a-z][^<>{}()=;]*)(?=[<{])", re.I)
_LINE_START = re.compile(r"^[ \t]*(//|/?\*+/?)[ \t]?", re.M)


def of_script(source: str) -> Iterator[Passage]:
    """Yield strings, JSX text and comments of TypeScript or JavaScript."""
    code: list[str] = []  # all else, with its line breaks
    braces: list[bool] = []  # those open; true inside a template
    at = 0
    while found := _SCRIPT.search(source, at):
        code.append(source[at : found.start()])
        at, line = found.end(), source.count("\n", 0, found.start()) + 1
        text = found[0]
        if found["comment"]:
            yield Passage(_LINE_START.sub("", text), line, True)
        elif found["string"]:
            yield Passage(text[1:-1], line)
        elif found["opening"]:
            braces.append(False)
        elif found["template"] or (braces and braces.pop()):
            chunk = _CHUNK.match(source, at)
            text += chunk[0] if chunk else ""
            yield Passage(text[1:], line)
            at += len(text)
            if source[at - 1 : at] == "$":
                at += 1
                braces.append(True)
        code.append("\n" * text.count("\n") or text[:1])
    code.append(source[at:])
    rest = "".join(code)
    for found in _JSX.finditer(rest):
        yield Passage(found[1], rest.count("\n", 0, found.start(1)) + 1)


def of_json(source: str) -> Iterator[Passage]:
    """Yield the strings of a JSON file that are values, not names."""
    for found in re.finditer(r'("(?:\\.|[^"\\])*")(\s*:)?', source):
        if not found[2]:
            line = source.count("\n", 0, found.start()) + 1
            yield Passage(json.loads(found[1]), line)


def of_notebook(source: str) -> Iterator[Passage]:
    """Yield the cells of a notebook, each line of which is a line of the file."""
    at = 0
    for cell in json.loads(source)["cells"]:
        at = source.index('"source": [', at) + 1
        line = source.count("\n", 0, at) + 2
        yield Passage("".join(cell["source"]), line)
