"""The pages' pictures show what the product shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from tests.soak.pictures import LABELS, PICTURES

ROOT = Path(__file__).parents[2]
SOURCES = (
    *("nbkit/**/*.py", "nbkit/*/static/*.js", "labextension/src/**/*.ts*"),
    *("tests/golden/**/tables.csv", "tests/soak/pictures.py"),  # devices, runs
)


@pytest.mark.parametrize("name", sorted(path.name for path in PICTURES.glob("*.png")))
def test_picture_labels(name: str) -> None:
    with Image.open(PICTURES / name) as image:
        labels = image.info.get(LABELS, "").splitlines()
    text = "".join(path.read_text() for glob in SOURCES for path in ROOT.glob(glob))
    outdated = [label for label in labels if label.casefold() not in text.casefold()]
    assert labels, f"{name} has no labels; take it anew: make pictures"
    assert not outdated, f"{name} shows {outdated}; take it anew: make pictures"
