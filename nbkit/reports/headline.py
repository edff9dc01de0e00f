"""``python -m nbkit.reports.headline NOTEBOOK``: a saved notebook's answer as text."""

from __future__ import annotations

import sys
from pathlib import Path

from nbkit.errors import NbkitError
from nbkit.reports.renderer import MOST_NOTES, Table, read_report


def headline(notebook: Path) -> str:
    """Return a saved notebook's headline table, answer, files and next step.

    There is no table beside an answer that says that these runs cannot support one.
    """
    report = read_report(notebook)
    is_doubtful = bool(report["result"].get("doubts"))
    blocks = [
        report["title"],
        f"{report['answer']}\n{report.get('conditions', '')}".strip(),
        *(
            Table(**{**table, "notes": ()}).to_text()
            for table in report["tables"][:1]
            if not is_doubtful
        ),
        "\n".join(report["notes"][:MOST_NOTES]),
        f"Report:    {report['page']}\nNotebook:  {notebook}",
        f"Next:      {report['next_step']}" if report["next_step"] else "",
    ]
    return "\n\n".join(block for block in blocks if block)


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
