"""The parser of `nbkit`, and the exit code of every subcommand.

Exit codes: 0 success; 1 a negative result (`nbkit doctor` found an error); 2 an error
that nbkit or the parser has printed; 130 Ctrl-C; 141 the reader of the output is gone.
Of `nbkit try`, 2 is a verdict and 3 an error.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress

from nbkit.cli import doctor, mcp_server, monitor, run_commands, show, studies, trial
from nbkit.cli.command import REFUSED, Commands, refused_code
from nbkit.cli.text import say, write_in_any_encoding
from nbkit.errors import NbkitError
from nbkit.packages import version

_BY_SIGNAL = 128
"""A shell's code for an end by a signal is this and the signal's number."""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="nbkit",
        description="Launch, record and compare multi-GPU training runs. Runs are "
        "launched from notebooks, Python or nbkit try; this command also lists, shows, "
        "stops, compares and reports them.",
        epilog="RUN is a run id or a unique suffix of an id. See `nbkit COMMAND "
        "--help` for details.",
    )
    parser.add_argument("--version", action="version", version=f"nbkit {version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    add_commands(commands)
    return parser


def add_commands(commands: Commands) -> None:
    """Add every subcommand, in the order of the help text."""
    for module in (doctor, run_commands, show, studies, trial, monitor, mcp_server):
        module.add_to(commands)


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line asks for; return the exit code."""
    write_in_any_encoding()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(words)
    except SystemExit as end:
        if end.code != REFUSED:
            raise
        raise SystemExit(refused_code(words)) from None
    except BrokenPipeError:
        _drop_output()
        return _BY_SIGNAL + signal.SIGPIPE
    except KeyboardInterrupt:
        return _BY_SIGNAL + signal.SIGINT
    except NbkitError as error:
        say("\n".join([f"nbkit: {error}", *getattr(error, "__notes__", ())]))
        return refused_code(words)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            _drop_output()  # it may be written to the full disk
        say(f"nbkit: {error}")
        return refused_code(words)
    except Exception:  # noqa: BLE001 - Python's exit code 1 is a negative result
        say(traceback.format_exc())
        return refused_code(words)


def _drop_output() -> None:
    """Forget what is left in the buffer: it would fail once more when Python ends."""
    with suppress(OSError):  # a caller's own standard output may not be a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(words: list[str]) -> int:
    parser = make_parser()
    try:
        # argparse gives what follows -- to an earlier positional argument.
        end = words.index("--") if words[:1] == ["try"] and "--" in words else None
        own = [] if end is None else words[end + 1 :]
        known = argparse.Namespace(script_arguments=own)
        arguments = parser.parse_args(words[:end], known)
        if hasattr(arguments, "work"):
            return arguments.work(arguments)
        sys.stdout.write(parser.format_help())
        return 0
    finally:
        sys.stdout.flush()  # here, where a broken pipe is caught


if __name__ == "__main__":
    sys.exit(main())
