"""Image files as people have them, made by code, and what is right for each of them.

What is right comes from Pillow alone, or from how a file was made: never from nbkit.
"""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from dataclasses import dataclass

import numpy as np
import PIL
from packaging.version import Version
from PIL import Image, ImageOps

from tests.datasets.images import picture

SIZE = (96, 72)
ORIENTATION = 0x0112


@dataclass(frozen=True)
class Odd:
    """A file and its pixels, upright, in 8-bit RGB; or why it is none."""

    data: bytes
    right: Image.Image | None = None
    reason: str | None = None
    suffix: str = ".png"


def encoded(image, format, **options):
    """Return the bytes of an image file."""
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def as_pillow(data, suffix=".png"):
    """Return a file whose pixels are those that Pillow alone makes of it."""
    with (
        warnings.catch_warnings(action="ignore"),
        Image.open(io.BytesIO(data)) as image,
    ):
        upright = ImageOps.exif_transpose(image)
    if upright.mode == "P":
        upright = upright.convert("RGBA")
    return Odd(data, upright.convert("RGB"), suffix=suffix)


def as_grey(data, grey, suffix=".tif"):
    """Return a file that was made of grey levels."""
    right = Image.fromarray(grey.astype(np.uint8)).convert("RGB")
    return Odd(data, right, suffix=suffix)


def refused(data, reason, suffix=".jpg"):
    """Return a file that no loader shows, and a part of what is said of it."""
    return Odd(data, reason=reason, suffix=suffix)


def photograph(number):
    """Return an image with edges and noise, the same at every call.

    With other noise, one flipped bit of a JPEG can make it unreadable.
    """
    shape = SIZE[1], SIZE[0]
    levels = np.random.default_rng(number).normal(128, 40, shape).clip(0, 255)
    noise = Image.fromarray(levels.astype(np.uint8)).convert("RGB")
    return Image.blend(picture(number, SIZE), noise, 0.3)


def ramp():
    """Return the place of every pixel of an image, from 0 on its left to 1."""
    width, height = SIZE
    return np.tile(np.linspace(0, 1, width), (height, 1))


def chunk(kind, body):
    """Return a chunk of a PNG."""
    head = len(body).to_bytes(4) + kind + body
    return head + zlib.crc32(kind + body).to_bytes(4)


def png(bits, colours, rows, *extra):
    """Return a PNG from its rows of bytes; Pillow does not write every kind."""
    width, height = SIZE
    header = struct.pack(">IIBBBBB", width, height, bits, colours, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    parts = chunk(b"IHDR", header), *extra, chunk(b"IDAT", pixels), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def stream(image, total):
    """Return a PNG whose chunks are right and whose pixels end with another sum."""
    rows = np.asarray(image).reshape(SIZE[1], -1)
    pixels = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))[:-4] + total
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", *SIZE, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def with_exif(image, entry):
    """Return a JPEG whose EXIF data have one entry for the orientation."""
    exif = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 1) + entry + bytes(4)
    return encoded(image, "JPEG", exif=exif, quality=95)


def entry(kind, value, count=1, more=b""):
    """Return a TIFF directory's entry for the orientation."""
    return struct.pack("<HHI", ORIENTATION, kind, count) + value + more


def scans(jpeg, count):
    """Return a progressive JPEG that ends after some of its scans."""
    place = 0
    for _ in range(count + 1):
        place = jpeg.index(b"\xff\xda", place + 1)
    # Tables of the next scan come before it.
    while (table := jpeg.rfind(b"\xff\xc4", 0, place)) > jpeg.rfind(
        b"\xff\xda", 0, place
    ):
        place = table
    return jpeg[:place] + b"\xff\xd9"


def _jpegs():
    image = photograph(1)
    plain = encoded(image, "JPEG", quality=95)
    progressive = encoded(image, "JPEG", quality=95, progressive=True)
    yield "baseline", plain
    yield "grey", encoded(image.convert("L"), "JPEG", quality=95)
    yield "cmyk", encoded(image.convert("CMYK"), "JPEG", quality=95)
    yield "rgb components", encoded(image, "JPEG", quality=95, keep_rgb=True)
    yield "progressive", progressive
    yield "restarts", encoded(image, "JPEG", restart_marker_blocks=2, quality=95)
    for count in (1, 2, 4, 7):
        yield f"{count} scans of a progressive one", scans(progressive, count)
    yield "junk between segments", plain[:20] + bytes(7) + plain[20:]
    yield "junk after its end", plain + b"\0more" * 9
    yield "a comment", plain[:20] + b"\xff\xfe\0\x06text" + plain[20:]
    flipped = bytearray(plain)
    flipped[len(plain) // 2] ^= 0x10
    yield "a flipped bit in its pixels", bytes(flipped)
    both = io.BytesIO()
    image.save(both, "MPO", save_all=True, append_images=[photograph(2)], quality=95)
    yield "two in one", both.getvalue()
    for number in range(10):
        upside = Image.Exif()
        upside[ORIENTATION] = number
        yield f"orientation {number}", encoded(image, "JPEG", exif=upside, quality=95)
    exif = {
        # Offsets count from the begin of the TIFF header.
        "a fraction": entry(5, struct.pack("<I", 26), more=bytes(4))[:12],
        "a float": entry(11, struct.pack("<f", 6.0)),
        "no number": entry(11, struct.pack("<f", float("nan"))),
        "text": entry(2, b"6\0\0\0", count=2),
        "two of them": entry(3, struct.pack("<HH", 6, 3), count=2),
    }
    exif["a fraction"] += bytes(4) + struct.pack("<II", 6, 1)
    for name, one in exif.items():
        yield f"orientation as {name}", with_exif(image, one)


def _pngs():
    image = photograph(3)
    plain = encoded(image, "PNG")
    yield "whole", plain
    for count in (4, 12, 14, 16):
        yield f"without its last {count} bytes", plain[:-count]
    wrong = bytearray(plain)
    wrong[-13] ^= 1
    yield "a wrong checksum", bytes(wrong)
    start = plain.index(b"IDAT") - 4
    for name in (b"ABCD", b"abCD"):
        added = plain[:start] + chunk(name, b"what") + plain[start:]
        yield f"a chunk {name.decode()}", added
    yield "no sum of its pixels", stream(image, b"")
    for mode in ("L", "1", "P", "LA", "RGBA"):
        yield f"mode {mode}", encoded(image.convert(mode), "PNG")
    clear = image.convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize(SIZE))
    yield "transparency", encoded(clear, "PNG")
    yield "grey and transparency", encoded(clear.convert("LA"), "PNG")
    palette = image.quantize(16)
    yield (
        "palette and transparency",
        encoded(palette, "PNG", transparency=bytes(range(16))),
    )
    yield "one transparent colour", encoded(image, "PNG", transparency=(1, 2, 3))
    deep = np.asarray(image).astype(">u2") * 257
    yield "16 bits of each colour", png(16, 2, [row.tobytes() for row in deep])
    deep[..., 1:] = 65_535
    rows = [np.ascontiguousarray(row[:, :2]).tobytes() for row in deep]
    yield "16 bits of grey and transparency", png(16, 4, rows)
    bits = np.packbits(np.asarray(image.convert("1")), axis=1)
    for depth in (1, 2, 4):
        rows = [np.repeat(row, depth).tobytes() for row in bits]
        yield f"{depth} bits of grey", png(depth, 0, rows)
    yield "moving", encoded(image, "PNG", save_all=True, append_images=[photograph(4)])


def _others():
    image = photograph(5)
    more = {"save_all": True, "append_images": [photograph(6)]}
    yield "webp", encoded(image, "WEBP", quality=95), ".webp"
    yield (
        "webp without loss",
        encoded(image.convert("RGBA"), "WEBP", lossless=True),
        ".webp",
    )
    yield "webp moving", encoded(image, "WEBP", lossless=True, **more), ".webp"
    yield "gif called png", encoded(image.quantize(64), "GIF"), ".png"
    moving = encoded(
        image.quantize(64), "GIF", save_all=True, append_images=[photograph(6)]
    )
    yield "gif moving", moving, ".png"
    yield (
        "gif and transparency",
        encoded(image.quantize(64), "GIF", transparency=3),
        ".png",
    )
    for mode in ("RGB", "L", "P", "1"):
        yield f"bmp {mode}", encoded(image.convert(mode), "BMP"), ".bmp"
    modes = ["RGB", "L", "P", "1", "CMYK", "RGBA", "LA", "LAB"]
    if Version(PIL.__version__) >= Version("13"):  # an older one cannot read its own
        modes.append("YCbCr")
    for mode in modes:
        yield f"tiff {mode}", encoded(image.convert(mode), "TIFF"), ".tif"
    yield "tiff of two", encoded(image, "TIFF", **more), ".tif"
    for number in (3, 6):
        turned = encoded(image, "TIFF", tiffinfo={ORIENTATION: number})
        yield f"tiff orientation {number}", turned, ".tif"
    yield "ppm", encoded(image, "PPM"), ".ppm"
    yield "pgm", encoded(image.convert("L"), "PPM"), ".pgm"
    deep = (np.asarray(image).astype(">u2") * 4).tobytes()
    yield "ppm of 10 bits", f"P6 {SIZE[0]} {SIZE[1]} 1023\n".encode() + deep, ".ppm"
    for name in ("JPEG2000", "AVIF", "TGA", "PCX", "SGI", "QOI", "ICO", "DDS"):
        yield f"{name.lower()} called jpg", encoded(image, name), ".jpg"


def _greys():
    """Yield grayscale of more than 8 bits, from how it was made."""
    place, grey = ramp(), (ramp() * 256).clip(0, 255)
    deep = (place * 65_535).astype(np.uint16)
    yield (
        "png of 16 bits",
        png(16, 0, [row.astype(">u2").tobytes() for row in deep]),
        grey,
    )
    x_ray = (place * 4_095).astype(np.uint16)
    yield "12 bits in 16", encoded(Image.fromarray(x_ray), "TIFF"), x_ray // 256
    yield "16 bits", encoded(Image.fromarray(deep), "TIFF"), grey
    big = Image.frombytes("I;16B", SIZE, deep.astype(">u2").tobytes())
    yield "16 bits, big end first", encoded(big, "TIFF"), grey
    signed = (deep.astype(np.int32) - 32_768).astype(np.int16)
    yield "16 bits with a sign", tiff(signed, 2), grey
    head = f"P5 {SIZE[0]} {SIZE[1]} "
    yield (
        "pgm of 16 bits",
        head.encode() + b"65535\n" + deep.astype(">u2").tobytes(),
        grey,
    )
    yield (
        "pgm of 12 bits",
        head.encode() + b"4095\n" + x_ray.astype(">u2").tobytes(),
        grey,
    )
    text = f"P2 {SIZE[0]} {SIZE[1]} 4095\n" + " ".join(map(str, x_ray.ravel()))
    yield "pgm of 12 bits in letters", text.encode(), grey
    steps = (place * 63).astype(np.int32)
    yield (
        "32 bits, few values",
        encoded(Image.fromarray(steps * 4), "TIFF"),
        steps * 256 / 63,
    )
    low = (place * 57 + 163).astype(np.int32)
    yield (
        "32 bits, a narrow range",
        encoded(Image.fromarray(low), "TIFF"),
        (low - 163) * 256 / 57,
    )
    wide = (place * (2**32 - 1) - 2**31).astype(np.int32)
    yield "32 bits, all of them", encoded(Image.fromarray(wide), "TIFF"), grey
    unsigned = (place * (2**32 - 1)).astype(np.uint32)
    yield "32 bits, unsigned", tiff(unsigned, 1), grey
    half = {340: 0.0, 341: 2.0}
    real = place.astype(np.float32)
    yield "floats", encoded(Image.fromarray(real), "TIFF"), grey
    yield "floats below 0", encoded(Image.fromarray(real * 9 - 4), "TIFF"), grey
    yield (
        "floats of a stated range",
        encoded(Image.fromarray(real), "TIFF", tiffinfo=half),
        grey / 2,
    )
    hole = real.copy()
    hole[:20, :20], hole[:20, 20:30] = np.nan, np.inf
    holed = grey.copy()
    holed[:20, :20], holed[:20, 20:30] = 0, 255
    yield "floats and none", encoded(Image.fromarray(hole), "TIFF"), holed
    yield (
        "floats of nothing else",
        encoded(Image.fromarray(hole * np.nan), "TIFF"),
        grey * 0,
    )
    yield "a map of floats", encoded(Image.fromarray(real), "PPM"), grey
    yield "one value", encoded(Image.fromarray(steps * 0 + 7), "TIFF"), grey * 0


def tiff(values, sample_format):
    """Return a TIFF of one strip; Pillow writes no integers of 16 bits with a sign."""
    height, width = values.shape
    bits = values.dtype.itemsize * 8
    tags = [
        (256, 4, width), (257, 4, height), (258, 3, bits), (259, 3, 1), (262, 3, 1),
        (273, 4, 8), (277, 3, 1), (278, 4, height), (279, 4, values.nbytes),
        (339, 3, sample_format),
    ]  # fmt: skip
    entries = b"".join(
        struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags
    )
    directory = struct.pack("<H", len(tags)) + entries + bytes(4)
    return (
        struct.pack("<2sHI", b"II", 42, 8 + values.nbytes)
        + values.tobytes()
        + directory
    )


def _none():
    """Yield what no loader shows."""
    image = photograph(7)
    jpeg, whole = encoded(image, "JPEG"), encoded(image, "PNG")
    yield "empty", b"", "the file is empty"
    yield "words", b"no image", "a format that Pillow does not support"
    yield "half a jpeg", jpeg[: len(jpeg) // 2], "truncated"
    yield "half a png", whole[: len(whole) // 2], "truncated"
    yield "a wrong sum of its pixels", stream(image, bytes(4)), "broken data stream"
    yield "postscript", POSTSCRIPT, "a format that Pillow does not support"
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    yield "a git lfs pointer", pointer, "a Git LFS pointer instead of the file"
    header = struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    bomb = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(99)))
    yield "a bomb", whole[:8] + bomb, "decompression bomb"


POSTSCRIPT = (
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n"
    b"showpage\n%%EOF\n"
)


def odd_files():
    """Return every kind of file by its name."""
    found = {f"jpeg {name}": as_pillow(data, ".jpg") for name, data in _jpegs()}
    found |= {f"png {name}": as_pillow(data) for name, data in _pngs()}
    found |= {name: as_pillow(data, suffix) for name, data, suffix in _others()}
    found |= {
        f"grey {name}": as_grey(data, grey.clip(0, 255))
        for name, data, grey in _greys()
    }
    found |= {f"none {name}": refused(data, said) for name, data, said in _none()}
    return found
