"""What nbkit's code says of installing, read from its syntax trees.

`strings` are all texts that a file can make: split ones, those with values in between,
and lists of arguments. `printed_lines` are the commands that `nbkit.packages` makes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from nbkit.packages import REINSTALL, packages_of, pip_install
from nbkit.server.health import _WIDGETS
from nbkit.telemetry.torch_builds import TORCH_BUILDS

__all__ = ["EXTRAS", "PACKAGE", "printed_lines", "strings", "takes_nbkit_by_name"]

PACKAGE = Path(__file__).parents[2] / "nbkit"
EXTRAS = ("train", "dali", "dali13", "int8")

_BY_NAME = re.compile(
    r"\b(?:pip3?|pipx|uv|conda|mamba)\s(?:[^;|&\n`]*\s)?(?:install|add|download|wheel)"
    r"""\s(?:[^;|&\n`]*[\s"'=])?(?:jupyterlab[-_])?nbkit(?![\w/*-]|\.\w)"""
    r"|nbkit\[[a-z]"
)
_PARTS = {
    "package": ("nvidia-dali-cuda120", "nvidia-dali-cuda130"),
    "wanted": tuple(one.requirement for one in TORCH_BUILDS),
    "build.requirement": tuple(one.requirement for one in TORCH_BUILDS),
    "driver.torch.requirement": tuple(one.requirement for one in TORCH_BUILDS),
    "missing": tuple(_WIDGETS.values()),
    "driver.dali": ("dali", "dali13"),
}
"""What the variables may be that code hands to `pip_install` and `packages_of`."""


def takes_nbkit_by_name(text: str) -> bool:
    """Tell whether a text has a command that asks a package index for nbkit."""
    return _BY_NAME.search(text) is not None


def strings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every string that code makes; no docstrings.

    A value that is not known is written ``{}``. What is added to a variable counts
    together with what it had.
    """
    reader = _Strings()
    reader.visit(ast.parse(source))
    yield from reader.found


class _Strings(ast.NodeVisitor):
    """Reads from top to bottom, and remembers what variables were."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str]] = []
        self._named: dict[str, str] = {}

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return  # a docstring
        self.generic_visit(node)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            self._remember(node)
        elif isinstance(node, ast.expr) and not isinstance(node, ast.Name):
            text = self._text(node)
            if text is not None:
                self.found.append((node.lineno, text))

    def _remember(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> None:
        text = None if node.value is None else self._text(node.value)
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            name = ast.unparse(target)
            if isinstance(node, ast.AugAssign):
                both = self._named.get(name, "{}") + ("{}" if text is None else text)
                self._named[name] = both
                self.found.append((node.lineno, both))
            elif text is None:
                self._named.pop(name, None)
            else:
                self._named[name] = text

    def _text(self, node: ast.expr) -> str | None:
        match node:
            case ast.Constant(str(text)):
                return text
            case ast.Name() | ast.Attribute():
                return self._named.get(ast.unparse(node))
            case ast.FormattedValue(value=value) | ast.Starred(value=value):
                return self._text(value)
            case ast.JoinedStr(values=parts):
                return self._joined("", parts)
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return self._joined(" ", parts)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._joined("", [left, right])
            case ast.BinOp(left=left, op=ast.Mod(), right=right):
                return self._filled(r"%\w", left, [right])
            case ast.Call(func=ast.Attribute(value=form, attr="format"), args=parts):
                return self._filled(r"\{[^}]*\}", form, parts)
            case ast.Call(func=ast.Attribute(value=by, attr="join"), args=[parts]):
                within = parts.elts if isinstance(parts, ast.List | ast.Tuple) else []
                return self._joined(self._text(by) or "", within)
        return None

    def _joined(self, by: str, parts: list[ast.expr]) -> str | None:
        texts = [self._text(part) for part in parts]
        if all(text is None for text in texts):
            return None
        return by.join("{}" if text is None else text for text in texts)

    def _filled(self, gap: str, form: ast.expr, parts: list[ast.expr]) -> str | None:
        text, inside = self._text(form), self._joined(" ", parts)
        return None if text is None else re.sub(gap, lambda _: inside or "{}", text)


def printed_lines() -> dict[str, str]:
    """Return every command that installs, and a place where the code says it.

    Raises
    ------
    KeyError
        If nbkit's metadata has no such package, or `_PARTS` no such variable.
    """
    lines = {REINSTALL: "nbkit/packages.py"}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pip_install":
                place = f"{path.relative_to(PACKAGE.parent)}:{node.lineno}"
                lines |= dict.fromkeys(_lines_of(node), place)
    return lines


def _lines_of(call: ast.Call) -> Iterator[str]:
    options = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
    for packages in product(*map(_values, call.args)):
        yield pip_install(*(one for many in packages for one in many), **options)


def _values(node: ast.expr) -> list[tuple[str, ...]]:
    """Return what an argument may be, each as a tuple of packages."""
    match node:
        case ast.Constant(str(text)):
            return [(text,)]
        case ast.Starred(value=ast.Call(func=ast.Name("packages_of"), args=[extra])):
            return [tuple(packages_of(one)) for (one,) in _values(extra)]
        case ast.Starred(value=value):
            return [_PARTS[ast.unparse(value)]]
    return [(one,) for one in _PARTS[ast.unparse(node)]]
