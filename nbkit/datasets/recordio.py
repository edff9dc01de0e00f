"""RecordIO: the format of MXNet's ``im2rec``, as MXNet and DALI read it.

A file is a row of records, each a magic number, a word with a flag and a length, and
the content, filled up to 4 bytes. Content that holds the magic number itself at a
multiple of 4 bytes is cut there into parts, without that number. The content is a
header with the label, more labels if there are several, and the image's file:
https://github.com/dmlc/dmlc-core/blob/main/include/dmlc/recordio.h
https://github.com/apache/mxnet/blob/master/python/mxnet/recordio.py
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from nbkit.datasets.listing import Listing
from nbkit.datasets.packed import Packed, list_packed
from nbkit.datasets.samples import RECORDIO_MAGIC, ImageSample, Pieces
from nbkit.datasets.shards import damaged
from nbkit.errors import ConfigError
from nbkit.reading import read_file

SUFFIX = ".rec"
_INDEX_SUFFIX, _LIST_SUFFIX = ".idx", ".lst"

_WORD = struct.Struct("<II")
"""Magic number; flag (3 bits) and length in bytes (29 bits)."""
_HEADER = struct.Struct("<IfQQ")
"""Number of labels that follow, label, and two numbers of the image."""
_MAGIC = int.from_bytes(RECORDIO_MAGIC, "little")
_LONGEST = 1 << 29

_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)


def list_recordio(root: Path, *, on_wait: Callable[[], None] | None = None) -> Listing:
    """Return the images in the RecordIO files of a folder."""
    return list_packed("recordio", root, is_recordio, _read, on_wait, _LIST_SUFFIX)


def is_recordio(name: str) -> bool:
    """Return whether a file is a RecordIO file, by its name."""
    return name.lower().endswith(SUFFIX)


def _read(path: Path) -> Iterator[Packed]:
    names = _names(path.with_suffix(_LIST_SUFFIX))
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        offset = 0
        while offset < size:
            pieces, following = _record(path, file.fileno(), offset, size)
            labels, number, pieces = _open(path, file.fileno(), offset, pieces)
            yield Packed(names.get(number), labels, pieces)
            offset = following


def _record(path: Path, descriptor: int, offset: int, size: int) -> tuple[Pieces, int]:
    """Return where a record's parts are, and where the next record begins."""
    pieces: list[tuple[int, int]] = []
    expected = (_WHOLE, _FIRST)
    while True:
        word = os.pread(descriptor, _WORD.size, offset)
        if len(word) < _WORD.size:
            raise damaged(path, offset, "the file ends inside a record")
        magic, flag_and_length = _WORD.unpack(word)
        if magic != _MAGIC:
            raise damaged(path, offset, f"{magic:#010x} instead of {_MAGIC:#010x}")
        flag, length = flag_and_length >> 29, flag_and_length & (_LONGEST - 1)
        if flag not in expected:
            raise damaged(path, offset, f"unexpected part {flag} of a record")
        begin, end = offset + _WORD.size, offset + _WORD.size + length
        if end > size:
            raise damaged(path, offset, "the file ends inside a record")
        pieces.append((begin, length))
        offset = end + -length % 4
        if flag in (_WHOLE, _LAST):
            return tuple(pieces), offset
        expected = (_MIDDLE, _LAST)


def _open(
    path: Path, descriptor: int, offset: int, pieces: Pieces
) -> tuple[tuple[int, ...], int, Pieces]:
    """Return a record's labels and number, and the pieces of its image."""
    head = _head(descriptor, pieces, _HEADER.size)
    if len(head) < _HEADER.size:
        raise damaged(path, offset, "a record that is too short for an image header")
    count, label, number, _ = _HEADER.unpack(head)
    values: tuple[float, ...] = (label,)
    length = _HEADER.size + 4 * count
    if count:
        head = _head(descriptor, pieces, length)
        if len(head) < length:
            raise damaged(
                path, offset, f"a record that is too short for its labels ({count})"
            )
        values = struct.unpack_from(f"<{count}f", head, _HEADER.size)
    if not all(value.is_integer() for value in values):
        message = (
            f"{path}: the image at byte {offset:,} has the label {[*values]}, which is "
            "neither a class index nor a list of zeros and ones. Pack the images again."
        )
        raise ConfigError(message)
    return tuple(map(int, values)), number, _skip_bytes(pieces, length)


def _head(descriptor: int, pieces: Pieces, length: int) -> bytes:
    """Return the first bytes of a record's content."""
    head = b""
    for start, size in pieces:
        if head:
            head += RECORDIO_MAGIC
        head += os.pread(descriptor, min(size, length), start)
        if len(head) >= length:
            break
    return head[:length]


def _skip_bytes(pieces: Pieces, length: int) -> Pieces:
    """Return the pieces that are left of a record without its first bytes."""
    for number, (start, size) in enumerate(pieces):
        if length <= size:
            return ((start + length, size - length), *pieces[number + 1 :])
        # The header ends with 4 whole bytes, and so does the number between pieces.
        length -= size + len(RECORDIO_MAGIC)
    return ()


def _names(path: Path) -> dict[int, str]:
    """Return the paths that a list has for the numbers of its images."""
    try:
        lines = read_file(path, None).splitlines()
    except FileNotFoundError:
        return {}
    names: dict[int, str] = {}
    for count, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            number, *_, name = line.split(b"\t")
            names[int(number)] = os.fsdecode(name)
        except ValueError as error:
            message = (
                f"{path}: line {count} is {os.fsdecode(line)[:60]!r}. Expected an "
                "index, labels and a path, separated by tabs. Fix the line, or remove "
                "the file to use the indices as image names."
            )
            raise ConfigError(message) from error
    return names


class RecordIOWriter:
    """Writes one RecordIO file, its index and its list of images."""

    def __init__(self, path: Path) -> None:
        self._stack = ExitStack()
        self._file, self._index, self._list = (
            self._stack.enter_context(path.with_suffix(suffix).open("wb"))
            for suffix in (SUFFIX, _INDEX_SUFFIX, _LIST_SUFFIX)
        )

    def add(self, index: int, sample: ImageSample, data: bytes) -> None:
        """Write one image and its labels."""
        if isinstance(sample.label, int):
            labels: tuple[int, ...] = (sample.label,)
            head = _HEADER.pack(0, sample.label, index, 0)
        else:
            labels = sample.label
            head = _HEADER.pack(len(labels), 0, index, 0)
            head += struct.pack(f"<{len(labels)}f", *labels)
        content = head + data
        if len(content) >= _LONGEST:
            message = (
                f"{sample.name!r} has {len(data):,} bytes, but a RecordIO record must "
                f"be smaller than {_LONGEST:,} bytes. Use format='webdataset'."
            )
            raise ConfigError(message)
        self._index.write(f"{index}\t{self._file.tell()}\n".encode())
        numbers = "".join(f"{label:f}\t" for label in labels)
        self._list.write(f"{index}\t{numbers}".encode() + os.fsencode(sample.name))
        self._list.write(b"\n")
        parts = _split(content)
        for number, part in enumerate(parts):
            flag = _MIDDLE
            if number == 0:
                flag = _WHOLE if len(parts) == 1 else _FIRST
            elif number == len(parts) - 1:
                flag = _LAST
            self._file.write(_WORD.pack(_MAGIC, flag << 29 | len(part)))
            self._file.write(part)
            self._file.write(bytes(-len(part) % 4))

    def close(self) -> None:
        """Finish the files."""
        self._stack.close()


def _split(content: bytes) -> list[bytes]:
    """Cut content at each magic number that begins at a multiple of 4 bytes."""
    parts = []
    begin = place = 0
    while (place := content.find(RECORDIO_MAGIC, place)) >= 0:
        if place % 4:
            place += 1
            continue
        parts.append(content[begin:place])
        begin = place = place + len(RECORDIO_MAGIC)
    return [*parts, content[begin:]]
