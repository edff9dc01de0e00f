"""How a subcommand is added to the parser: all alike, each with one example."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

REFUSED = 2
"""Exit code where nbkit refused, as argparse does."""

Work: TypeAlias = "Callable[[argparse.Namespace], int]"
"""Does what was asked for and returns the exit code."""


class Commands(Protocol):
    """What takes subcommands; `argparse.ArgumentParser.add_subparsers` returns one."""

    def add_parser(
        self, name: str, *, help: str | None, **options: Any
    ) -> argparse.ArgumentParser:
        """Return the parser of a new one."""
        ...


class Parser(argparse.ArgumentParser):
    """A parser that names the nearest command, and shows the usage of the right one."""

    known: Sequence[str] = ()
    """Its commands, if it has any."""

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Return what was parsed; refuse what is unknown."""
        words = sys.argv[1:] if args is None else list(args)
        name = words[0] if words and not words[0].startswith("-") else None
        if self.known and name is not None and name not in self.known:
            self._refuse_command(name)
        found, unknown = super().parse_known_args(words, namespace)
        if unknown:  # left to the parser of all commands, it would show their usage
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def _refuse_command(self, name: str) -> None:
        from nbkit.registry import suggest

        known = f"known commands: {', '.join(self.known)}."
        self.error(f"unknown command {name!r}; {known}{suggest(name, [*self.known])}")


def add_command(
    commands: Commands,
    name: str,
    work: Work,
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
