"""The own reader in several processes: the threads of one share Python's lock.

On two CPUs, 16 threads of one process read 71,000 files of 112 KiB a second from
memory, and of two 174,000.
"""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nbkit.errors import ConfigError, NbkitError
from nbkit.health import end_with_parent
from nbkit.readspeed import reader
from nbkit.readspeed.work import Work
from nbkit.telemetry.cpus import usable_cpus

__all__ = ["OwnReader"]


class OwnReader:
    """Does the same work as often as it is asked to; a context.

    The threads are divided over as many processes as can run concurrently, which end
    with the context. One is this process.

    Parameters
    ----------
    work
        What to read.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._processes: list[subprocess.Popen[str]] = []
        self.num_processes = min(work.threads, max(1, int(usable_cpus())))

    def start(self) -> None:
        """Start the processes that read; a second call does nothing."""
        if self.num_processes == 1 or self._processes:
            return
        command = [sys.executable, "-P", "-m", "nbkit.readspeed.own_reader"]
        for share in self._work.divided(self.num_processes):
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                # An interrupt of this group is for this process, which ends them.
                process_group=0,
            )
            self._processes.append(process)
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
            If a process that reads ends.
        """
        if self.num_processes == 1:
            began, ended = reader.read(self._work, seed)
            return ended - began
        self.start()
        for number, process in enumerate(self._processes):
            _tell(process, f"{seed}/{number}")
        self._answers()  # every thread has its buffer
        if on_start is not None:
            on_start(*(process.pid for process in self._processes))
        for process in self._processes:
            _tell(process, "begin")
        # The processes share a clock.
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
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.communicate()

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


def _tell(process: subprocess.Popen[str], what: object) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it has ended, as reading will tell
        process.stdin.write(json.dumps(what) + "\n")
        process.stdin.flush()


def _answer(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        message = (
            f"a process that reads ended with exit status {process.wait()} before it "
            "was done; read with fewer threads, or with engine='fio'."
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
    values = json.loads(sys.stdin.readline())
    files = tuple(map(Path, values.pop("files")))
    parts = tuple(tuple(map(tuple, part)) for part in values.pop("parts"))
    work = Work(files=files, parts=parts, **values)
    _say({"span": None})
    while seed := sys.stdin.readline():
        try:
            span = reader.read(work, json.loads(seed), _wait)
            _say({"span": span})
        except OSError as error:
            _say({"OSError": [error.errno, error.strerror, error.filename]})
        except ConfigError as error:
            _say({"ConfigError": [str(error)]})
        except RuntimeError as error:  # such as a thread that cannot start
            _say({"NbkitError": [f"{error}; read with fewer threads."]})


def _wait() -> None:
    """Say that the threads are ready, and wait until all other processes' are."""
    _say({"span": None})
    if not sys.stdin.readline():
        raise SystemExit


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
