"""What a file is instead of an image or a shard, by its first bytes."""

from __future__ import annotations

HEAD_BYTES = 64
_INSTEAD = {
    b"version https://git-lfs.github.com/spec/": (
        "a Git LFS pointer, not the file itself; run 'git lfs pull' where it was cloned"
    ),
    **{
        head: f"compressed ({by}); unpack it"
        for head, by in (
            (b"\x1f\x8b", "gzip"),
            (b"BZh", "bzip2"),
            (b"\xfd7zXZ\0", "xz"),
            (b"\x28\xb5\x2f\xfd", "zstd"),
            (b"PK\x03\x04", "zip"),
            *((bytes([0x78, level]), "zlib") for level in (0x01, 0x5E, 0x9C, 0xDA)),
        )
    },
    b"<!doctype html": "a web page, not the file; download it again",
    b"<html": "a web page, not the file; download it again",
}
"""By first bytes in small letters."""


def instead_of(data: bytes) -> str | None:
    """Return what a file is, with what to do about it; None if that is unknown."""
    head = data[:HEAD_BYTES]
    for begin, instead in _INSTEAD.items():
        if head.startswith(begin) or head.lower().startswith(begin):
            return instead
    return None
