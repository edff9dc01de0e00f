"""The parser of `nbkit`, and how every subcommand ends.

Exit codes: 0 done; 1 the answer is no (`nbkit doctor` found a failure); 2 nbkit or the
parser refused, and said why; 130 Ctrl-C; 141 nobody reads the output any more.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from nbkit.cli import doctor, monitor, runs, show, studies
from nbkit.cli.command import REFUSED
from nbkit.cli.text import say, write_in_any_encoding
from nbkit.errors import NbkitError
from nbkit.packages import version

__all__ = ["main", "make_parser"]

_BY_SIGNAL = 128
"""A shell's code for an end by a signal is this and the signal's number."""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="nbkit",
        description="Launch, record and compare multi-GPU training runs. Runs are "
        "launched from notebooks or Python; this command looks after them.",
        epilog="RUN is a run's id, or the end of it if no other ends so. "
        "`nbkit COMMAND --help` says more.",
    )
    parser.add_argument("--version", action="version", version=f"nbkit {version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for room in (doctor, runs, show, studies, monitor):
        room.add_to(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line asks for; return the exit code."""
    write_in_any_encoding()
    try:
        return _do(argv)
    except BrokenPipeError:
        _drop_output()
        return _BY_SIGNAL + signal.SIGPIPE
    except KeyboardInterrupt:
        return _BY_SIGNAL + signal.SIGINT
    except NbkitError as error:
        say(f"nbkit: {error}")
        return REFUSED
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            _drop_output()  # it may be written to the disk that is full
        say(f"nbkit: {error}")
        return REFUSED


def _drop_output() -> None:
    """Forget what is left in the buffer: it would fail once more when Python ends."""
    with suppress(OSError):  # a caller's own standard output may be no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _do(argv: Sequence[str] | None) -> int:
    parser = make_parser()
    try:
        arguments = parser.parse_args(argv)
        if hasattr(arguments, "work"):
            return arguments.work(arguments)
        sys.stdout.write(parser.format_help())
        return 0
    finally:
        sys.stdout.flush()  # here, where a broken pipe is caught


if __name__ == "__main__":
    sys.exit(main())
