"""`LogTail`: the end of a log of any length, filtered, and its new lines."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, BinaryIO

from nbkit.reading import open_regular

LINES = 500
"""So many of the end are shown at first."""
MOST_LINES = 8000
"""No more are shown: the file is there."""
_MOST_CHARACTERS = 2000
"""A longer line is cut."""
_BLOCK_BYTES = 1 << 18
_SEARCHED_BYTES = 32 << 20
"""A filter looks through so much of the file's end: some tenths of a second."""

# Colours and cursor movements of terminals (ECMA-48 control sequences).
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-_]")


class LogTail:
    """The last lines of a file that contain a text.

    Parameters
    ----------
    path
        The file, which need not be there yet.
    text
        Upper and lower case are the same; empty for all lines.
    num_lines
        How many; at most `MOST_LINES`.
    """

    def __init__(self, path: Path, text: str = "", num_lines: int = LINES) -> None:
        self._path = path
        self._num_lines = max(1, min(num_lines, MOST_LINES))
        self._text = text.casefold()
        self._offset = 0
        self._size = 0
        self.open_line = ""
        """What the last line says so far, if it has no end; empty if another text."""

    def last(self) -> dict[str, Any]:
        """Return the last lines, and where the file was looked at."""
        try:
            with open_regular(self._path) as file:
                size = file.seek(0, os.SEEK_END)
                end, tail = _open_tail(file, size)
                begin, lines = end, []
                unfinished = b""
                while begin > 0 and len(lines) < self._num_lines:
                    if size - begin >= _SEARCHED_BYTES:
                        break
                    end, begin = begin, max(0, begin - _BLOCK_BYTES)
                    file.seek(begin)
                    data = file.read(end - begin) + unfinished
                    if begin > 0:
                        # Its first line may begin before; the next block has that.
                        head, newline, data = data.partition(b"\n")
                        if not newline and len(head) < 4 * _BLOCK_BYTES:
                            unfinished = head
                            continue
                        unfinished = head if newline else b""
                    lines = self._matching_lines(data) + lines
        except FileNotFoundError:
            self._offset = self._size = begin = size = 0
            lines, tail = [], b""
        self._offset = size - len(tail)
        self._size = size
        self._take_open(tail)
        return {
            "lines": lines[-self._num_lines :],
            "open_line": self.open_line,
            "size_bytes": size,
            "searched_bytes": size - begin,
        }

    def new_lines(self) -> list[str] | None:
        """Return the lines that came since; None if there are too many to tell.

        A line that has no end so far is `open_line`, also while it is written over.
        """
        try:
            size = self._path.stat().st_size
            if size == self._size:
                return []
            if size < self._size or size - self._offset > _BLOCK_BYTES:
                return None
            with open_regular(self._path) as file:
                file.seek(self._offset)
                data = file.read(size - self._offset)
        except FileNotFoundError:
            return []
        end = data.rfind(b"\n") + 1
        lines = self._matching_lines(data[:end])
        if len(lines) > self._num_lines:
            return None
        self._offset += end
        self._size = self._offset + len(data) - end
        self._take_open(data[end:])
        return lines

    def _take_open(self, tail: bytes) -> None:
        """Note what a last line without an end says so far."""
        # What it has written over is never looked at again; a carriage return at the
        # very end may be the first half of the line's end.
        over = tail.rfind(b"\r", 0, len(tail.rstrip(b"\r"))) + 1
        self._offset += over
        self.open_line = "".join(self._matching_lines(tail[over:]))

    def _matching_lines(self, data: bytes) -> list[str]:
        text = data.decode(errors="replace").replace("\r\n", "\n")
        lines = text.split("\n")
        if lines and not lines[-1]:
            lines.pop()
        shown = (_terminal_text(line) for line in lines)
        return [line for line in shown if self._text in line.casefold()]


def _open_tail(file: BinaryIO, size: int) -> tuple[int, bytes]:
    """Return where a file's last line without an end begins, and the line so far.

    Of a line that is longer than a few blocks, its end.
    """
    begin, tail = size, b""
    while begin > 0 and len(tail) < 4 * _BLOCK_BYTES:
        end, begin = begin, max(0, begin - _BLOCK_BYTES)
        file.seek(begin)
        tail = file.read(end - begin) + tail
        if newline := tail.rfind(b"\n") + 1:
            return begin + newline, tail[newline:]
    return begin, tail


def _terminal_text(line: str) -> str:
    """Return what is left of a line that was written over itself, without colours."""
    if "\r" in line:
        line = next((part for part in reversed(line.split("\r")) if part), "")
    if "\x1b" in line:
        line = _CONTROL.sub("", line)
    return line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}…"
