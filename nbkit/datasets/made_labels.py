"""A synthetic multi-label image set, with one label as a planted shortcut.

Grey patterns, drawn by a program: they show nothing, and are not X-rays. What can be
learned is known, so that a report of several labels can be checked by eye:

``bright``
    The whole image is a little brighter: global statistics tell it without looking at
    any place. This is the planted shortcut.
``upper``
    The square is in the upper half, else in the lower: no global statistic knows.
``coin``
    Nothing in the image tells it; every model has an AUROC around 0.5.
``rare``
    Only two training images have it: an evaluation has no positive, and so no AUROC.

Every patient has four images with their own background.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Callable
from pathlib import Path

from PIL import Image, ImageChops, ImageDraw

from nbkit.datasets.cache import cached_folder
from nbkit.datasets.patients import evaluation_patients

LABELS = "labels.csv"
"""The table's name in the folder."""

_PATIENTS, _IMAGES_EACH, _RARE = 120, 4, 2
_SIDE, _SQUARE = 64, 20
_GROUND, _GROUND_SPREAD, _NOISE = 100, 12, 24
_BRIGHTER = 18
_SQUARE_LIGHTER = 70


def made_labels_folder(*, on_wait: Callable[[], None] | None = None) -> Path:
    """Return the folder of the set, created if missing."""
    return cached_folder("synthetic-multilabel", lambda folder: _make(folder, on_wait))


def _make(folder: Path, on_wait: Callable[[], None] | None) -> None:
    patients = [f"patient {number:03}" for number in range(_PATIENTS)]
    training = sorted({*patients} - evaluation_patients(patients))
    rare = training[:_RARE]
    with (folder / LABELS).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["file", "patient_id", "bright", "upper", "coin", "rare"])
        for patient in patients:
            (folder / patient).mkdir()
            for number in range(_IMAGES_EACH):
                drawn = random.Random(f"{patient}/{number}")
                bright, upper, coin = (int(drawn.random() < 0.5) for _ in range(3))
                name = f"{patient}/{number}.png"
                ground = random.Random(patient).random()
                _picture(ground, bright, upper, drawn).save(folder / name)
                is_rare = int(patient in rare and number == 0)
                writer.writerow([name, patient, bright, upper, coin, is_rare])
            if on_wait is not None:
                on_wait()


def _picture(
    ground: float, bright: int, upper: int, drawn: random.Random
) -> Image.Image:
    """Return a grey image with noise and one square."""
    level = _GROUND + _GROUND_SPREAD * (2 * ground - 1) + _BRIGHTER * bright
    noise = bytes(int(_NOISE * drawn.random()) for _ in range(_SIDE * _SIDE))
    image = Image.new("L", (_SIDE, _SIDE), round(level))
    left = int(drawn.random() * (_SIDE - _SQUARE))
    # Away from the middle, so that a crop rarely moves it into the other half.
    top = int(drawn.random() * (_SIDE // 2 - _SQUARE - 4))
    if not upper:
        # The mirror image: else the border of the picture would tell.
        top = _SIDE - _SQUARE - top
    square = [left, top, left + _SQUARE - 1, top + _SQUARE - 1]
    ImageDraw.Draw(image).rectangle(square, fill=round(level) + _SQUARE_LIGHTER)
    return ImageChops.add(image, Image.frombytes("L", image.size, noise))
