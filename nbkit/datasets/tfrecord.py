"""TFRecord files of ``tf.train.Example`` messages, as TensorFlow writes image sets.

A file is a row of records: length, a checksum of the length, the message, a checksum of
the message. A message is a map from names to lists of bytes, floats or integers:
https://www.tensorflow.org/tutorials/load_data/tfrecord
https://protobuf.dev/programming-guides/encoding
Only what is around an image is read here, never the image.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import google_crc32c

from nbkit.datasets.listing import Listing
from nbkit.datasets.packed import Packed, list_packed
from nbkit.datasets.samples import ImageSample
from nbkit.datasets.shards import damaged
from nbkit.errors import ConfigError
from nbkit.visible import visible

SUFFIX = ".tfrecord"

# TensorFlow's own ImageNet has no suffix: train-00000-of-01024.
_NAME = re.compile(r"(\.tfrec(ords?)?(-\d+-of-\d+)?|^[\w.-]+-\d{5}-of-\d{5})$")

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_BEFORE = _LENGTH.size + _CHECKSUM.size
_AFTER = _CHECKSUM.size

# The names of TensorFlow's own sets, and of TensorFlow Datasets.
_IMAGE = (b"image/encoded", b"image")
_LABEL = (b"image/class/label", b"label")
_TEXT = (b"image/class/text",)
_NAMES = (b"image/filename", b"file_name")

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
"""Wire types of protocol buffers."""

_BLOCK_BYTES = 512
_LONGEST_VARINT_BYTES = 10


def list_tfrecord(root: Path, *, on_wait: Callable[[], None] | None = None) -> Listing:
    """Return the images in the TFRecord files of a folder."""
    return list_packed("tfrecord", root, is_tfrecord, _read, on_wait)


def is_tfrecord(name: str) -> bool:
    """Return whether a file is a TFRecord file, by its name."""
    return _NAME.search(name.lower()) is not None


class _WireError(Exception):
    """Bytes that are not a protocol buffer of the kind asked for: where, and why."""


class _Wire:
    """Reads protocol buffers in a file, a block at a time."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._block = b""
        self._start = 0

    def read(self, start: int, length: int) -> bytes:
        """Return the requested number of bytes of the file."""
        place = start - self._start
        if place < 0 or place + length > len(self._block):
            block_bytes = max(length, _BLOCK_BYTES)
            self._block = os.pread(self._descriptor, block_bytes, start)
            self._start, place = start, 0
            if len(self._block) < length:
                raise damaged(self._path, start, "the file ends inside a record")
        return self._block[place : place + length]

    def varint(self, start: int, end: int) -> tuple[int, int]:
        """Return an integer and its end position."""
        value = 0
        data = self.read(start, min(_LONGEST_VARINT_BYTES, end - start))
        for place, byte in enumerate(data):
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value, start + place + 1
        raise _WireError(start, "not an integer of a protocol buffer")

    def fields(self, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield number, wire type, begin and end of each field of a message."""
        while start < end:
            key, begin = self.varint(start, end)
            kind = key & 7
            if kind == _BYTES:
                length, begin = self.varint(begin, end)
                after = begin + length
            elif kind == _VARINT:
                _, after = self.varint(begin, end)
            elif kind in (_FIXED_64, _FIXED_32):
                after = begin + (8 if kind == _FIXED_64 else 4)
            else:
                raise _WireError(start, "not a field of a protocol buffer")
            if after > end:
                raise _WireError(start, "a field that is longer than its message")
            yield key >> 3, kind, begin, after
            start = after

    def only(self, number: int, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield begin and end of the messages or bytes with one field number."""
        for field, kind, begin, after in self.fields(start, end):
            if field == number and kind == _BYTES:
                yield begin, after


def _read(path: Path) -> Iterator[Packed]:
    """Yield the images of a file, without checking the checksums of messages."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        wire = _Wire(path, file.fileno())
        offset = 0
        while offset < size:
            head = wire.read(offset, _BEFORE)
            (length,) = _LENGTH.unpack_from(head)
            (checksum,) = _CHECKSUM.unpack_from(head, _LENGTH.size)
            if checksum != _masked_checksum(head[: _LENGTH.size]):
                raise damaged(path, offset, "a length that does not match its checksum")
            begin = offset + _BEFORE
            end = begin + length
            if end + _AFTER > size:
                raise damaged(path, offset, "the file ends inside a record")
            try:
                image = _image(path, wire, begin, end)
            except _WireError as error:
                place, what = error.args
                message = (
                    f"{path}: the record at byte {offset:,} is damaged or not a "
                    f"tf.train.Example ({what} at byte {place:,}). Copy the file "
                    "again, or pack the images again."
                )
                raise ConfigError(message) from error
            yield image
            offset = end + _AFTER


def _image(path: Path, wire: _Wire, begin: int, end: int) -> Packed:
    features = _features(wire, begin, end)
    if not features:
        raise _WireError(begin, "no feature")
    where = f"{path}: the record at byte {begin - _BEFORE:,} has"
    called: list[bytes] = []
    for names in (_IMAGE, _LABEL):
        called += [name for name in names if name in features][:1]
        if not set(names).intersection(called):
            available = ", ".join(
                visible(os.fsdecode(name)) for name in sorted(features)
            )
            message = (
                f"{where} no feature {b' or '.join(names).decode()}, only {available}. "
                "Pack the images with this feature."
            )
            raise ConfigError(message)
    image, label = called
    pieces = list(_bytes_list(wire, *features[image]))
    if len(pieces) != 1:
        message = (
            f"{where} {len(pieces)} images in its feature {image.decode()!r}, not 1. "
            "Pack one image per record."
        )
        raise ConfigError(message)
    labels = tuple(_int64_list(wire, *features[label]))
    if not labels:
        message = (
            f"{where} no integer in its feature {label.decode()!r}, which holds the "
            "class index. Pack the images with integer labels."
        )
        raise ConfigError(message)
    ((start, after),) = pieces
    name, text = (
        _text(wire, next((features[name] for name in names if name in features), None))
        for names in (_NAMES, _TEXT)
    )
    return Packed(name, labels, ((start, after - start),), text)


_Span = tuple[int, int]
"""Begin and end in the file, in bytes."""


def _features(wire: _Wire, begin: int, end: int) -> dict[bytes, _Span]:
    """Return where a message has the value of each feature."""
    spans: dict[bytes, _Span] = {}
    for features in wire.only(1, begin, end):
        for entry in wire.only(1, *features):
            name, value = b"", (0, 0)
            for number, kind, start, after in wire.fields(*entry):
                if number == 1 and kind == _BYTES:
                    name = wire.read(start, after - start)
                elif number == 2 and kind == _BYTES:
                    value = (start, after)
            spans[name] = value
    return spans


def _bytes_list(wire: _Wire, begin: int, end: int) -> Iterator[_Span]:
    for values in wire.only(1, begin, end):
        yield from wire.only(1, *values)


def _int64_list(wire: _Wire, begin: int, end: int) -> Iterator[int]:
    for values in wire.only(3, begin, end):
        for number, kind, start, after in wire.fields(*values):
            while number == 1 and kind in (_BYTES, _VARINT) and start < after:
                value, start = wire.varint(start, after)
                # Negative numbers are stored in two's complement.
                yield value - (1 << 64) if value >> 63 else value


def _text(wire: _Wire, value: _Span | None) -> str | None:
    if value is None:
        return None
    for start, after in _bytes_list(wire, *value):
        return os.fsdecode(wire.read(start, after - start)) or None
    return None


def _masked_checksum(data: bytes) -> int:
    checksum = google_crc32c.value(data)
    # https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/lib/hash/crc32c.h
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


class TFRecordWriter:
    """Writes one TFRecord file and its index for NVIDIA DALI.

    Notes
    -----
    The index (``.idx``) is that of DALI's ``tfrecord2idx``: offset and length in bytes
    of each record.
    """

    def __init__(self, path: Path, classes: Sequence[str]) -> None:
        self._file = path.open("wb")
        self._index = path.with_suffix(".idx").open("wb")
        self._classes = classes

    def add(self, index: int, sample: ImageSample, data: bytes) -> None:
        """Write one image and its label."""
        label = sample.label
        features = {
            _IMAGE[0]: _field(1, _field(1, data)),
            _NAMES[0]: _field(1, _field(1, os.fsencode(sample.name))),
        }
        if isinstance(label, int):
            features[_TEXT[0]] = _field(1, _field(1, os.fsencode(self._classes[label])))
            label = (label,)
        packed = b"".join(map(_varint, label))
        features[_LABEL[0]] = _field(3, _field(1, packed))
        entries = (
            _field(1, _field(1, name) + _field(2, features[name]))
            for name in sorted(features)
        )
        message = _field(1, b"".join(entries))
        length = _LENGTH.pack(len(message))
        begin = self._file.tell()
        self._file.write(length)
        self._file.write(_CHECKSUM.pack(_masked_checksum(length)))
        self._file.write(message)
        self._file.write(_CHECKSUM.pack(_masked_checksum(message)))
        self._index.write(f"{begin} {self._file.tell() - begin}\n".encode())

    def close(self) -> None:
        """Finish the files."""
        self._file.close()
        self._index.close()


def _field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | _BYTES]) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)
