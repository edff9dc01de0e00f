"""What tells a data set from others, before anybody looks at an image."""

import hashlib
import os
import threading
from pathlib import Path

from nbkit.datasets.image_folder import list_image_folder
from nbkit.datasets.listing import IMAGE_SUFFIXES

GUIDE = Path(__file__).parents[2] / "nbkit" / "datasets" / "README.md"


def test_the_fingerprint_asks_for_many_files_at_once_and_keeps_their_order(
    tmp_path, monkeypatch
):
    names = [f"{kind}/{number:03}.png" for kind in "ab" for number in range(400)]
    for number, name in enumerate(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * (number % 7))
    listing = list_image_folder(tmp_path)
    together = threading.Barrier(2)
    stat = os.stat

    def stat_of_a_slow_disk(path, **options):
        if str(path).endswith((names[0], names[-1])):
            together.wait(30)  # neither is answered before both were asked
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", stat_of_a_slow_disk)
    fingerprint = listing.fingerprint()
    monkeypatch.undo()

    lines = "".join(f"{name}\0{n % 7}\n" for n, name in enumerate(names))
    assert fingerprint.files == 800
    assert fingerprint.bytes == sum(n % 7 for n in range(800))
    assert fingerprint.sha256 == hashlib.sha256(lines.encode()).hexdigest()


def test_the_fingerprint_changes_with_the_size_of_a_file(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(b"some bytes")
    before = list_image_folder(tmp_path).fingerprint()

    (tmp_path / "b" / "1.png").write_bytes(b"some more bytes")

    assert list_image_folder(tmp_path).fingerprint().sha256 != before.sha256


def test_the_guide_names_every_suffix_of_images():
    guide = GUIDE.read_text()

    assert " ".join(f"`{suffix}`" for suffix in IMAGE_SUFFIXES) in guide
