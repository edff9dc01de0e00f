"""The default set: crops of photographs in the scikit-image package.

Eight photographs are eight classes. Each image is another part of one, as large and as
finely compressed as most of ImageNet is, so that reading and decoding cost as much. A
model learns to tell the photographs apart; how well says nothing about other images.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from nbkit.datasets.cache import cached_folder
from nbkit.datasets.rgb import open_image
from nbkit.errors import ConfigError

# Sources and licences: https://scikit-image.org/docs/stable/api/skimage.data.html
PHOTOS = {
    "astronaut": "astronaut.png",
    "cat": "chelsea.png",
    "coffee": "coffee.png",
    "galaxies": "hubble_deep_field.jpg",
    "motorcycle": "motorcycle_left.png",
    "retina": "retina.jpg",
    "rocket": "rocket.jpg",
    "tissue": "ihc.png",
}
"""File of each class in the package."""
IMAGES = {"train": 50, "val": 12}
"""Of each class."""

_SIZES = ((500, 375), (500, 375), (500, 375), (500, 333), (375, 500), (640, 480))
"""Width and height in pixels, as often as they are here. Of 500 files of ImageNet the
median was 500 × 375, and the mean 219,000 pixels in 111 kB."""

_SHARES = (0.7, 1.0)
"""Side of a cut, as a share of the largest with the same aspect."""

# Of ImageNet's files 76 % are 4:4:4, and 96 is the most frequent quality.
_QUALITY = 96


def photos_folder(*, on_wait: Callable[[], None] | None = None) -> Path:
    """Return the folder of the set, created if missing."""
    return cached_folder("photos", lambda folder: _make(folder, on_wait))


def _make(folder: Path, on_wait: Callable[[], None] | None) -> None:
    source = _source()
    photos = {name: _photo(source / file) for name, file in PHOTOS.items()}
    for class_name, photo in photos.items():
        for split, count in IMAGES.items():
            target = folder / split / class_name
            target.mkdir(parents=True)
            for number in range(count):
                drawn = random.Random(f"{split}/{class_name}/{number}")
                _crop(photo, drawn).save(
                    target / f"{number:03}.jpg", quality=_QUALITY, subsampling="4:4:4"
                )
            if on_wait is not None:
                on_wait()


def _crop(photo: Image.Image, drawn: random.Random) -> Image.Image:
    """Return a part of a photograph in one of the sizes."""
    # random() alone gives the same numbers in every version of Python.
    width, height = _SIZES[int(drawn.random() * len(_SIZES))]
    least, most = _SHARES
    share = least + (most - least) * drawn.random()
    scale = share * min(photo.width / width, photo.height / height)
    left = drawn.random() * (photo.width - width * scale)
    top = drawn.random() * (photo.height - height * scale)
    box = (left, top, left + width * scale, top + height * scale)
    return photo.resize((width, height), Image.Resampling.LANCZOS, box=box)


def _source() -> Path:
    """Return where the package has its photographs, without importing it."""
    spec = importlib.util.find_spec("skimage")
    if spec is None or spec.origin is None:
        message = (
            "data='photos' requires scikit-image, which is not installed. Install it, "
            "or pass the path of an image folder."
        )
        raise ConfigError(message)
    return Path(spec.origin).parent / "data"


def _photo(file: Path) -> Image.Image:
    if not file.is_file():
        message = (
            f"data='photos' requires {file}, but this version of scikit-image does not "
            "have it. Install another version, or pass the path of an image folder."
        )
        raise ConfigError(message)
    with open_image(file.read_bytes()) as photo:
        photo.load()
        return photo
