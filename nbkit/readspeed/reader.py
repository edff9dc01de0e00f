"""The Python reader: threads that read into reusable buffers.

They share Python's lock: on two CPUs, 16 threads read 71,000 files of 112 KiB a second
from memory.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
import time
from collections.abc import Sequence

from nbkit.errors import ConfigError
from nbkit.readspeed.work import ALIGNMENT_BYTES, Operation, ReadWork

_MEMORY = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE


def read(work: ReadWork, seed: int | str) -> float:
    """Do the work once, and return the seconds it took."""
    readers = [_Reader(work, operations) for operations in work.in_order(seed)]
    is_over = threading.Event()
    begin = threading.Barrier(len(readers))
    threads = [
        threading.Thread(target=reader.run, args=(begin, is_over), daemon=True)
        for reader in readers
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        is_over.set()
        begin.abort()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        raise
    for reader in readers:
        if reader.error is not None:
            raise reader.error
    began = min(reader.began for reader in readers)
    return max(reader.ended for reader in readers) - began


class _Reader:
    """What one thread does."""

    def __init__(self, work: ReadWork, operations: Sequence[Operation]) -> None:
        self.error: Exception | None = None
        self.began = self.ended = 0.0
        self._work = work
        self._operations = operations

    def run(self, begin: threading.Barrier, is_over: threading.Event) -> None:
        try:
            # Anonymous memory begins at a page, as O_DIRECT asks for. It goes when
            # nothing refers to it: a context would fail while an error's frames do.
            # Its pages are there before the clock runs.
            size = -(-self._work.operation_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
            memory = mmap.mmap(-1, size, flags=_MEMORY)
            begin.wait()  # every reader has its buffer
            self.began = time.perf_counter()
            self._read_all(memoryview(memory), is_over)
        except threading.BrokenBarrierError:
            pass  # the caller has given up, or another reader failed
        except Exception as error:  # noqa: BLE001 - raised by the caller
            self.error = error
            is_over.set()
            begin.abort()  # no thread waits for one that will not come
        finally:
            self.ended = time.perf_counter()

    def _read_all(self, buffer: memoryview, is_over: threading.Event) -> None:
        opened, descriptor = -1, -1
        try:
            for number, offset, length in self._operations:
                if is_over.is_set():
                    return
                if number != opened:
                    if descriptor >= 0:
                        os.close(descriptor)
                        descriptor = -1
                    descriptor, opened = self._open(number), number
                self._read_one(descriptor, number, offset, buffer[:length])
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _read_one(
        self, descriptor: int, number: int, offset: int, buffer: memoryview
    ) -> None:
        length = len(buffer)
        done = os.preadv(descriptor, [buffer], offset)
        while done < length:
            more = os.preadv(descriptor, [buffer[done:]], offset + done)
            if more == 0:
                path = str(self._work.files[number])
                raise OSError(errno.EIO, "truncated during the read", path)
            done += more

    def _open(self, number: int) -> int:
        path = self._work.files[number]
        flags = os.O_RDONLY | os.O_CLOEXEC
        if not self._work.direct:
            return os.open(path, flags)
        try:
            return os.open(path, flags | os.O_DIRECT)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            message = (
                f"direct=True: the file system of {path} does not support O_DIRECT. "
                "Use direct=False."
            )
            raise ConfigError(message) from error
