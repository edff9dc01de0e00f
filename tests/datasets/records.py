"""Records of RecordIO and TFRecord files, spelt by their formats' descriptions."""

import struct

import google_crc32c

MAGIC = 0xCED7230A


def part(content, flag=0):
    word = struct.pack("<II", MAGIC, flag << 29 | len(content))
    return word + content + bytes(-len(content) % 4)


def record_header(label, number=0, flag=0):
    return struct.pack("<IfQQ", flag, label, number, 0)


def varint(value):
    data = b""
    while value > 127:
        data, value = data + bytes([value & 127 | 128]), value >> 7
    return data + bytes([value])


def field(number, value):
    return varint(number << 3 | 2) + varint(len(value)) + value


def bytes_list(*values):
    return field(1, b"".join(field(1, value) for value in values))


def floats(*values):
    return field(2, field(1, struct.pack(f"<{len(values)}f", *values)))


def packed_integers(*values):
    return field(3, field(1, b"".join(varint(value % 2**64) for value in values)))


def example(features):
    entries = (
        field(1, field(1, name.encode()) + field(2, value))
        for name, value in features.items()
    )
    return field(1, b"".join(entries))


def masked(data):
    checksum = google_crc32c.value(data)
    return struct.pack("<I", ((checksum >> 15 | checksum << 17) + 0xA282EAD8) % 2**32)


def record(message):
    length = struct.pack("<Q", len(message))
    return length + masked(length) + message + masked(message)
