"""Image files as people have them: every loader shows what Pillow shows, or names them.

The files, and what is right for each, are in tests/datasets/odd_files.py.
"""

import contextlib

import pytest
import torch
from PIL import Image

from nbkit.config import ExperimentConfig
from nbkit.datasets import pack
from nbkit.worker import data
from nbkit.worker.data import Placement
from tests.datasets.odd_files import odd_files
from tests.worker.images import CPU, DEVIATION, MEAN, manifest_of, picture

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")

SIDE, BATCH = 48, 16
LARGEST_ERROR_LEVELS = 2
FORMATS = ["webdataset", "recordio", "tfrecord"]
ODD = odd_files()


@pytest.fixture(scope="module")
def manifests(tmp_path_factory):
    """Return the manifest of all odd files, as files of their own or in a pack."""
    root = tmp_path_factory.mktemp("odd")
    folder = root / "files"
    for name in ("a", "b"):
        (folder / "train" / name).mkdir(parents=True)
        for number in range(BATCH // 2):
            picture(number).save(folder / "train" / name / f"{number}.png")
    (folder / "val" / "a").mkdir(parents=True)
    for number, odd in enumerate(ODD.values()):
        (folder / "val" / "a" / f"{number:03}{odd.suffix}").write_bytes(odd.data)
    made = {}

    def manifest(format):
        if format not in made:
            source = folder
            if format is not None:
                source = root / format
                pack(folder, source, format, on_progress=lambda *_: None)
            made[format] = manifest_of(source, root)
        return made[format]

    return manifest


def kind_of(name):
    """Return which kind of file an image is."""
    return list(ODD)[int(name.split("/")[-1].split(".")[0])]


def shown(manifest, loader):
    """Return the pixels that a loader's evaluation shows of every image."""
    config = ExperimentConfig(
        data=str(manifest.root),
        image_size=SIDE,
        loader=loader,
        loader_config={"num_workers": 2 if loader == "dali" else 0},
    )
    one = data.load(config, manifest, Placement(CPU, 0, 1), BATCH)
    with contextlib.closing(one):
        found = [images[mask] for images, _, mask in one.evaluation_batches()]
    pixels = (torch.cat(found) * DEVIATION + MEAN) * 255
    return pixels.round().permute(0, 2, 3, 1), one.describe()


def middle(image):
    """Return what an evaluation shows: the middle, 224 of 256 of the shorter side."""
    side = min(image.size) * SIDE / round(SIDE * 256 / 224)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    box = (left, top, left + side, top + side)
    part = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=box)
    pixels = torch.frombuffer(bytearray(part.tobytes()), dtype=torch.uint8)
    return pixels.view(SIDE, SIDE, 3)


def wrong(manifest, loader):
    """Return the kinds that are too far from what is right, with their levels."""
    pixels, _ = shown(manifest, loader)
    images = manifest.evaluation
    kinds = [kind_of(images.name(place)) for place in range(len(images))]
    assert kinds == [name for name, odd in ODD.items() if odd.right]
    errors = {
        kind: int((image - middle(ODD[kind].right)).abs().max())
        for kind, image in zip(kinds, pixels, strict=True)
    }
    return {kind: far for kind, far in errors.items() if far > LARGEST_ERROR_LEVELS}


@pytest.mark.parametrize("loader", ["naive", "torch", "dali"])
@pytest.mark.parametrize("format", [None, *FORMATS])
def test_every_kind_is_shown_as_pillow_shows_it(manifests, loader, format):
    assert wrong(manifests(format), loader) == {}


@pytest.mark.parametrize("format", [None, *FORMATS])
def test_what_is_not_shown_is_named_with_its_reason(manifests, format):
    said = {kind_of(one.name): one.reason for one in manifests(format).unreadable}

    reasons = {name: odd.reason for name, odd in ODD.items() if odd.reason}
    assert said.keys() == reasons.keys()
    assert {name for name, part in reasons.items() if part not in said[name]} == set()
