"""The own reader in several processes: the threads of one share Python's lock.

On two CPUs, 16 threads of one process read 71,000 files of 112 KiB a second from
memory, and of two 174,000.
"""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nbkit.errors import ConfigError, NbkitError
from nbkit.health import end_with_parent
from nbkit.readspeed import reader
from nbkit.readspeed.work import Work
from nbkit.telemetry.cpus import usable_cpus

_MOST_PROCESSES = 32
_NOTICE_SECONDS = 0.02
"""From when the processes are told to begin until they do, all in the same moment."""
_REMEDY = "threads=1 reads without another process"


class OwnReader:
    """Does the same work as often as it is asked to; a context.

    The threads are divided over as many processes as can run concurrently, which end
    with the context or with an error. Where that is one, this process reads itself.

    Parameters
    ----------
    work
        What to read.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._processes: list[subprocess.Popen[str]] = []
        cpus = max(1, int(usable_cpus()))
        self.num_processes = min(work.threads, cpus, _MOST_PROCESSES)

    def start(self) -> None:
        """Start the processes that read; a second call does nothing."""
        if self.num_processes == 1 or self._processes:
            return
        with self._ending_on_error():
            for _ in range(self.num_processes):
                self._processes.append(_started())
            shares = self._work.divided(self.num_processes)
            for process, share in zip(self._processes, shares, strict=True):
                files = list(map(str, share.files))
                _tell(process, {**vars(share), "files": files})
            self._answers()

    def read(self, seed: int, on_start: Callable[..., object] | None = None) -> float:
        """Do the work once, and return how many seconds it took.

        Parameters
        ----------
        seed
            Of the order, where that is left to chance.
        on_start
            Called with the processes that read, if it is not this one.

        Raises
        ------
        ConfigError
            If the file system has no O_DIRECT and the work asks for it.
        OSError
            If a file cannot be read, or became shorter.
        NbkitError
            If a thread cannot start, or a process that reads ends.
        """
        if self.num_processes == 1:
            began, ended = reader.read(self._work, seed)
            return ended - began
        self.start()
        with self._ending_on_error():
            for number, process in enumerate(self._processes):
                _tell(process, f"{seed}/{number}")
            self._answers()  # every thread has its buffer
            if on_start is not None:
                on_start(*(process.pid for process in self._processes))
            # The processes share this clock.
            begin = time.perf_counter() + _NOTICE_SECONDS
            for process in self._processes:
                _tell(process, begin)
            spans = self._answers()
        return max(ended for _, ended in spans) - min(began for began, _ in spans)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    @contextmanager
    def _ending_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.communicate()
        self._processes.clear()

    def _answers(self) -> list[Any]:
        """Return the next answer of each process; raise the first error as it comes."""
        answers = dict.fromkeys(self._processes)
        with selectors.DefaultSelector() as waiting:
            for process in self._processes:
                assert process.stdout is not None
                waiting.register(process.stdout, selectors.EVENT_READ, process)
            while waiting.get_map():
                for key, _ in waiting.select():
                    answers[key.data] = _answer(key.data)
                    waiting.unregister(key.fileobj)
        return list(answers.values())


def _started() -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "nbkit.readspeed.own_reader"]
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # An interrupt of this group is for this process, which ends them.
            process_group=0,
        )
    except OSError as error:
        message = f"a process that reads cannot start ({error}); {_REMEDY}."
        raise NbkitError(message) from error


def _tell(process: subprocess.Popen[str], what: object) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it has ended, as reading will tell
        process.stdin.write(json.dumps(what) + "\n")
        process.stdin.flush()


def _answer(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        _, complaints = process.communicate()
        reason = complaints.strip().splitlines()[-1:] or ["no reason given"]
        message = (
            f"a process that reads ended with exit status {process.returncode} "
            f"({reason[0]}); {_REMEDY}."
        )
        raise NbkitError(message)
    said = json.loads(line)
    for kind in (OSError, ConfigError, NbkitError):
        if kind.__name__ in said:
            raise kind(*said[kind.__name__])
    return said["span"]


def main() -> None:
    """Do the work on standard input, once for each seed that follows it there."""
    end_with_parent()
    if not (line := sys.stdin.readline()):
        return  # who started it has ended
    values = json.loads(line)
    files = tuple(map(Path, values.pop("files")))
    parts = tuple(tuple(map(tuple, part)) for part in values.pop("parts"))
    work = Work(files=files, parts=parts, **values)
    _say({"span": None})
    while seed := sys.stdin.readline():
        try:
            _say({"span": reader.read(work, json.loads(seed), _wait)})
        except ConfigError as error:
            _say({"ConfigError": [str(error)]})
        except NbkitError as error:
            _say({"NbkitError": [str(error)]})
        except OSError as error:
            _say({"OSError": [error.errno, error.strerror, error.filename]})


def _wait() -> None:
    """Say that the threads are ready, and wait for the moment in which all begin."""
    _say({"span": None})
    if not (begin := sys.stdin.readline()):
        raise SystemExit
    time.sleep(max(0.0, json.loads(begin) - time.perf_counter()))


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
