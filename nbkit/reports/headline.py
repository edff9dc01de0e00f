"""``python -m nbkit.reports.headline NOTEBOOK``: a saved notebook's answer as text."""

from __future__ import annotations

import sys
from pathlib import Path

from nbkit.errors import NbkitError
from nbkit.reports.renderer import first_screen, read_report


def headline(notebook: Path) -> str:
    """Return the first screen of a saved notebook's report, files and next step."""
    report = read_report(notebook)
    files = f"Report:    {report['page']}\nNotebook:  {notebook}"
    if report["next_step"]:
        files += f"\nNext:      {report['next_step']}"
    return "\n\n".join([*first_screen(report), files])


def main(arguments: list[str]) -> int:
    """Print the headline of the notebook that is named; return the exit status."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m nbkit.reports.headline NOTEBOOK\n")
        return 2
    try:
        sys.stdout.write(headline(Path(arguments[0])) + "\n")
    except (NbkitError, FileNotFoundError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
