"""Tables of the documentation, generated from the code.

``python -m nbkit.cli.tables`` writes them into the pages of a checkout, each between
two comments. A test checks that the pages are up to date.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nbkit.cli.main import add_commands
from nbkit.config.fields import described_fields
from nbkit.questions.question import notebooks_of_questions

_ROOT = Path(__file__).parents[2]


def command_table() -> str:
    """Return the subcommands of `nbkit` as a Markdown table."""
    listed = _Listed()
    add_commands(listed)
    rows = [(f"`{_usage(parser)}`", summary) for parser, summary in listed.commands]
    return _markdown(("command", ""), rows)


class _Listed:
    """The subcommands, and what the list of them says of each."""

    def __init__(self) -> None:
        self.commands: list[tuple[argparse.ArgumentParser, str]] = []

    def add_parser(
        self, name: str, *, help: str | None, **options: Any
    ) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(prog=f"nbkit {name}", **options)
        self.commands.append((parser, help or ""))
        return parser


def configuration_table() -> str:
    """Return the fields of `ExperimentConfig` as Markdown tables, one a heading."""
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for field in described_fields():
        default = field.default
        shown = tuple(default) if isinstance(default, list) else default
        row = (f"`{field.path}`", f"`{shown!r}`", field.meaning)
        groups.setdefault(field.group, []).append(row)
    heading = ("field", "default", "meaning")
    return "\n\n".join(
        f"### {group}\n\n{_markdown(heading, rows)}" for group, rows in groups.items()
    )


def notebook_table() -> str:
    """Return the notebooks and what each answers as a Markdown table."""
    rows = [
        (f"`{question.name}`", question.text) for question in notebooks_of_questions()
    ]
    return _markdown(("notebook", "contents"), rows)


TABLES: dict[str, tuple[Path, Callable[[], str]]] = {
    "commands": (_ROOT / "nbkit/cli/README.md", command_table),
    "notebooks": (_ROOT / "README.md", notebook_table),
    "configuration": (_ROOT / "nbkit/config/README.md", configuration_table),
}
"""By the name in the comments: the file, and what makes the table."""


def with_table(text: str, name: str, table: str) -> str:
    """Return a text with a table between ``<!-- name -->`` and ``<!-- /name -->``."""
    opening, closing = f"<!-- {name} -->", f"<!-- /{name} -->"
    begin, end = text.index(opening) + len(opening), text.index(closing)
    return f"{text[:begin]}\n{table}\n{text[end:]}"


def _usage(parser: argparse.ArgumentParser) -> str:
    vars(parser).update(color=False)  # Python 3.14 would colour it for a terminal
    words = " ".join(parser.format_usage().split())
    return words.removeprefix("usage: ").replace(" [-h]", "")


def _markdown(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def main() -> None:
    """Write the tables into the pages of this checkout."""
    for name, (file, make) in TABLES.items():
        text = with_table(file.read_text(encoding="utf-8"), name, make())
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
