"""What only a GPU can settle about nbkit, in commands of 8 minutes each.

    python slot.py right            trainings compute what they should
    python slot.py holds            runs end, resume and are watched as they should
    python slot.py fast             how fast, beside the bound and published results
    python slot.py node             what takes two GPUs or more
    python slot.py right --size small    the same in small: proves paths, is no result

Nothing is installed and nothing is downloaded: it runs with nbkit, torch 2.7 or newer
and the torchvision that belongs to it. Every check is written to FOLDER/<command>.json
as soon as it is over. The exit code is 1 if any check fell short or was not run, and 0
if all passed but for those that need what this machine does not have.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import os
import sys
from pathlib import Path

import environment

COMMANDS = ("right", "holds", "fast", "node")


def main() -> int:
    """Run the commands that are asked for; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commands", nargs="+", choices=COMMANDS, metavar="COMMAND")
    parser.add_argument("--size", choices=("full", "small"), default="full")
    parser.add_argument("--seconds", type=float, help="for each command")
    parser.add_argument("--only", default="", help="checks with this in their name")
    parser.add_argument("--folder", type=Path, default=Path("build/gpu"))
    arguments = parser.parse_args()
    try:
        machine = environment.require()
    except environment.LackingError as error:
        sys.stderr.write(f"slot: {error}\n")
        return 1
    # Its modules need nbkit, which has just been found.
    from checks import SIZES, Slot, run_checks
    from photographs import photographs
    from table import exit_code, line_of, table

    size = SIZES[arguments.size]
    if arguments.seconds is not None:
        size = dataclasses.replace(size, seconds=arguments.seconds)
    folder = arguments.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("NBKIT_HOME", str(folder / "store"))
    code, tables = 0, []
    for command in arguments.commands:
        print(f"{command}, {size.words}, into {folder / command}.json", flush=True)
        checks = importlib.import_module(command).CHECKS
        rows = run_checks(
            command,
            [check for check in checks if arguments.only in check.name],
            Slot(size, folder, machine),
            lambda row: print(f"{row['seconds']:>6} s  {line_of(row)}", flush=True),
            lambda: photographs(folder / "photographs"),
        )
        tables.append(table(command, rows, size, machine))
        code = max(code, exit_code(rows))
    print("\n".join(tables))
    return code


if __name__ == "__main__":
    sys.exit(main())
