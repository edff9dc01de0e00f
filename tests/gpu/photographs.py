"""Image files for the checks, and whether DALI is there to read them."""

from __future__ import annotations

import random
from pathlib import Path

from checks import NotHereError
from PIL import Image

from nbkit.health import installed

__all__ = ["photographs", "require_dali"]

_IMAGES = 40
"""Of each of eight classes."""


def require_dali() -> None:
    """Raise where DALI is not installed."""
    if not any(installed(f"nvidia-dali-cuda{cuda}") for cuda in (120, 130)):
        message = "nvidia-dali-cuda120 (or 130) not installed"
        raise NotHereError(message)


def photographs(folder: Path) -> Path:
    """Return a folder of JPEG files in eight classes, made if it is not there."""
    drawn = random.Random(0)
    for split, count in (("train", _IMAGES), ("val", 8)):
        for label in range(8):
            place = folder / split / f"class{label}"
            if place.is_dir() and len(list(place.iterdir())) == count:
                continue
            place.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                size = drawn.choice([(500, 375), (375, 500), (640, 480)])
                channels = [Image.effect_noise(size, 20 + 10 * label) for _ in "RGB"]
                image = Image.merge("RGB", channels)
                image.save(place / f"{number}.jpg", quality=92)
    return folder
