"""Subcommands of the parser: all with one example each."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

REFUSED = 2
"""Exit code where nbkit refused, as argparse does."""
_TRY_REFUSED = 3
"""Of `nbkit try`, which ends with 2 if a change is worse."""

CommandFunction: TypeAlias = "Callable[[argparse.Namespace], int]"
"""Does what was asked for and returns the exit code."""


def refused_code(words: Sequence[str]) -> int:
    """Return the exit code where nbkit refused a command line."""
    return _TRY_REFUSED if words and words[0] == "try" else REFUSED


class Commands(Protocol):
    """What takes subcommands; `argparse.ArgumentParser.add_subparsers` returns one."""

    def add_parser(
        self, name: str, *, help: str | None, **options: Any
    ) -> argparse.ArgumentParser:
        """Return the parser of a new one."""
        ...


def add_command(
    commands: Commands,
    name: str,
    work: CommandFunction,
    *,
    summary: str,
    description: str,
    example: str,
) -> argparse.ArgumentParser:
    """Return the parser of a new subcommand, to which its arguments are added."""
    parser = commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=f"example: {example}",
    )
    parser.set_defaults(work=work)
    return parser
