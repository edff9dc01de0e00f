"""How the rank of a function or script ends: as Python ends, then as nbkit needs.

1. An exception is written down for the supervisor (`last_words`); Python prints it.
2. Python waits for threads, then calls what was registered at exit. `Ending` registered
   before everybody else, so it is called last; the rest happens there.
3. References go: those of the user's modules, those that Python keeps of an exception,
   and cycles. An object may write its file when it goes.
4. Files that are still open are written.
5. nbkit writes that the rank is through, and waits for the others (`finish`).
6. The process leaves at once. Threads of a communicator may wait for ranks that are
   gone, and the modules of torch take longer to go than all of the above.

A child that the code has forked is no rank: it ends as Python ends, and nothing else.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import ModuleType, TracebackType

from nbkit.local_modules import is_local
from nbkit.store.redaction import redacted
from nbkit.worker.last_words import write_last_words

__all__ = ["FAILED_SECONDS", "Ending", "print_redacted"]

FAILED_SECONDS = 30
"""What a rank that has failed has for its threads and for what is registered at exit.
One that is through has as long as it likes; see ``hang_timeout_seconds``."""
_FLUSH_FAILED = 120
"""Python's exit code if its standard output cannot be written."""


class Ending:
    """The end of this process; to be made before torch is imported."""

    def __init__(self) -> None:
        self.finish: Callable[[], None] | None = None
        """What nbkit needs of a rank that is through."""
        self.give_up: Callable[[], None] | None = None
        """What nbkit needs of a rank that has failed."""
        self._pid = os.getpid()
        self._code = 0
        self._is_users = False
        atexit.register(self._at_exit)

    @property
    def is_forked(self) -> bool:
        """Whether this process is a child of the rank."""
        return os.getpid() != self._pid

    def begin_users_code(self) -> None:
        """Note that from here on the user's code runs, which ends as Python ends."""
        self._is_users = True
        # What is there already outlives the user's code: no collection looks at it.
        gc.freeze()

    def note(self, error: BaseException) -> None:
        """Write down what ends this rank, before Python prints it."""
        if self.is_forked:
            return
        if isinstance(error, SystemExit):
            code = error.code
            self._code = code if isinstance(code, int) else int(code is not None)
        else:
            write_last_words(error)
            is_interrupt = isinstance(error, KeyboardInterrupt)
            self._code = -signal.SIGINT if is_interrupt else 1
        if self._code:
            # Unlike a thread of Python's it also ends what holds the interpreter.
            faulthandler.dump_traceback_later(FAILED_SECONDS, exit=True, file=2)

    def leave(self) -> None:
        """End this process now, without waiting for anything."""
        for stream in (sys.stdout, sys.stderr):
            try:
                if stream is not None and not stream.closed:
                    stream.flush()
            except Exception:  # noqa: BLE001 - Python's own end does the same
                self._code = self._code or _FLUSH_FAILED
        if self._code == -signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        os._exit(self._code)

    def _at_exit(self) -> None:
        if self.is_forked or not self._is_users:
            return
        # Daemon threads go on for a moment; what they miss from here on is no error.
        threading.excepthook = lambda _: None
        _drop_references()
        _write_open_files()
        try:
            end = self.give_up if self._code else self.finish
            if end is not None:
                end()
        except BaseException as error:  # noqa: BLE001 - it ends this process
            self.note(error)
            print_redacted(type(error), error, error.__traceback__)
        self.leave()


def print_redacted(
    kind: type[BaseException],
    error: BaseException | None,
    trace: TracebackType | None,
    /,
) -> None:
    """Print an exception as Python does, without secrets."""
    text = redacted("".join(traceback.format_exception(kind, error, trace)))
    # Where it is closed, or gone, the error file has the exception.
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _drop_references() -> None:
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        if hasattr(sys, name):
            delattr(sys, name)
    gc.collect()
    main = sys.modules["__main__"]
    for module in [main, *filter(is_local, list(sys.modules.values()))]:
        _clear(module)
    gc.collect()


def _clear(module: ModuleType) -> None:
    """Set a module's names to None, private ones first, as Python does at its end."""
    names = vars(module)
    for is_private in (True, False):
        for name in list(names):
            starts = name.startswith("_") and not name.startswith("__")
            if starts is is_private and name != "__builtins__":
                names[name] = None


def _write_open_files() -> None:
    # A text file first: it writes into the file of bytes below it.
    for kind in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom):
        for found in gc.get_objects():
            # Not isinstance: some objects of torch warn who asks them for their class.
            if issubclass(type(found), kind):
                # It is closed, or cannot be written: Python passes on, too.
                with contextlib.suppress(OSError, ValueError):
                    found.flush()
