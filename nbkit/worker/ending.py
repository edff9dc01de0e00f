"""End of a rank of a function or script: Python's exit, then nbkit's.

1. An exception is written down for the supervisor (`error_file`); Python prints it.
2. Python waits for threads, then calls what was registered at exit. `Ending` registered
   before all else, so it is called last; the rest happens there.
3. Standard output is written. nbkit writes its own files (`finish`), for which it needs
   modules that may go in the next step.
4. References go: the user's modules, what Python keeps of an exception, cycles. An
   object may write its file when it goes. Files that are still open are written. What
   another module still refers to does not go.
5. The rank says that it is through, and waits for the others (`wait`).
6. The process leaves immediately. Threads of a communicator may wait for ranks that are
   gone, and the modules of torch take longer to go than all of the above.

A child that the code forked is not a rank: it ends as Python ends, and nothing else.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import io
import os
import signal
import stat
import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType

from nbkit.local_modules import is_local
from nbkit.store.redaction import redacted
from nbkit.worker.error_file import write_error_file

FAILED_SECONDS = 30
"""What a rank that has failed has for its threads and for what is registered at exit.
One that is through has as long as it likes; see ``hang_timeout_seconds``."""
_FLUSH_FAILED = 120
"""Python's exit code if its standard output cannot be written."""


class Ending:
    """The end of this process; to be made before torch is imported."""

    def __init__(self) -> None:
        self.finish: Callable[[], None] | None = None
        """Writes what nbkit keeps of a rank that is through."""
        self.wait: Callable[[], None] | None = None
        """Says that this rank is through, and waits for the others."""
        self.give_up: Callable[[], None] | None = None
        """Writes what nbkit keeps of a rank that has failed."""
        self._pid = os.getpid()
        self._code = 0
        self._is_interrupted = False
        self._is_users = False
        self._before: set[str] = set()
        """Modules that were there before the user's code."""
        atexit.register(self._at_exit)

    @property
    def is_forked(self) -> bool:
        """Whether this process is a child of the rank."""
        return os.getpid() != self._pid

    def begin_users_code(self) -> None:
        """Note that from here on the user's code runs, which ends as Python ends."""
        self._is_users = True
        self._before = set(sys.modules)
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
            write_error_file(error, is_users=self._is_users)
            self._is_interrupted = isinstance(error, KeyboardInterrupt)
            self._code = 1
        if self._code:
            # Unlike a thread of Python's it also ends what holds the interpreter.
            faulthandler.dump_traceback_later(FAILED_SECONDS, exit=True, file=2)

    def leave(self) -> None:
        """End this process now, without waiting for anything."""
        self._write_output()
        if self._is_interrupted:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        os._exit(self._code)

    def _at_exit(self) -> None:
        if self.is_forked or not self._is_users:
            return
        try:
            self._end()
        except BaseException as error:  # noqa: BLE001 - it ends this process
            self.note(error)
            print_redacted(type(error), error, error.__traceback__)
        finally:
            self.leave()

    def _end(self) -> None:
        self._write_output()
        through = self._code in (0, _FLUSH_FAILED)
        if write := (self.finish if through else self.give_up):
            write()
        # A request to stop comes too late, and handlers miss their modules from here
        # on. So do daemon threads, which continue for a moment.
        for number in signal.valid_signals():
            if number == signal.SIGTERM or callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_IGN)
        threading.excepthook = lambda _: None
        # What nothing refers to goes first, as in Python. A file that goes in a cycle
        # with its module is closed before it is written, if the order is against it.
        gc.collect()
        _write_open_files()
        self._drop_references()
        _write_open_files()
        if through and self.wait is not None:
            self.wait()

    def _drop_references(self) -> None:
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            if hasattr(sys, name):
                delattr(sys, name)
        # What was registered at exit was called, and would keep its module.
        getattr(atexit, "_clear", lambda: None)()
        for name in set(sys.modules) - self._before:
            if is_local(sys.modules[name]):
                del sys.modules[name]
        for name in ("__main__", "__mp_main__"):
            sys.modules.pop(name, None)
        gc.collect()

    def _write_output(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            try:
                if stream is not None and not getattr(stream, "closed", False):
                    stream.flush()
            except Exception:  # noqa: BLE001 - Python's own end does the same
                self._code = self._code or _FLUSH_FAILED


def print_redacted(
    kind: type[BaseException],
    error: BaseException | None,
    trace: TracebackType | None,
    /,
) -> None:
    """Print an exception as Python does, without secrets."""
    text = redacted("".join(traceback.format_exception(kind, error, trace)))
    # Where it is closed, or gone, the error file has the exception.
    with contextlib.suppress(Exception):
        sys.stderr.write(text)
        sys.stderr.flush()


def _write_open_files() -> None:
    # A text file first: it writes into the file of bytes below it.
    for kind in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom):
        for stream in gc.get_objects():
            # Not isinstance: some objects of torch warn who asks them for their class.
            if issubclass(type(stream), kind):
                # It is closed, or cannot be written: Python passes on, too. A pipe may
                # be full, and is not waited for.
                with contextlib.suppress(Exception):
                    if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                        stream.flush()
