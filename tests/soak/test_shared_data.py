"""Real images from beside the checkout: what is readable, and packs of them.

Skipped where they are not at hand.
"""

import csv
from pathlib import Path

import pytest
from PIL import Image

import nbkit
from nbkit.datasets import pack
from nbkit.datasets.check import UnreadableImageError, inspect_image
from nbkit.datasets.find import find
from tests.datasets.images import images_of

DATA = Path(__file__).parents[3] / "shared" / "data"
EDGE_CASES = DATA / "edge-cases"

pytestmark = [
    pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is not there"),
    pytest.mark.filterwarnings("ignore"),  # Pillow's, of damaged EXIF data
]

# Pillow refuses it when it is asked for the first time. Who asks again is given what it
# had read by then, which is how the table came to say that it decodes.
REFUSED_ONCE = "pillow/broken_data_stream.png"

SETS = ["imagenet-sample", "cifar10-subset", "chest-xray/nih14-256/labels.csv"]


def edge_cases():
    if not EDGE_CASES.is_dir():
        return []
    with (EDGE_CASES / "EXPECTED.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("expected", edge_cases(), ids=lambda row: row["file"])
def test_an_edge_case_is_readable_if_pillow_decodes_it(expected):
    data = (EDGE_CASES / expected["file"]).read_bytes()

    if expected["file"] == REFUSED_ONCE or expected["pillow_result"] != "decodes":
        with pytest.raises(UnreadableImageError):
            inspect_image(data)
        return
    looked = inspect_image(data)
    size = int(expected["width"]), int(expected["height"])
    recorded = expected["exif_orientation"]
    orientation = int(recorded) if recorded.isdigit() else 1
    assert looked.orientation == (orientation or 1)
    assert (looked.width, looked.height) == (size if orientation < 5 else size[::-1])


def test_the_image_that_decodes_when_asked_again_is_not_whole():
    with Image.open(EDGE_CASES / REFUSED_ONCE) as image:
        with pytest.raises(OSError, match="unrecognized data stream"):
            image.load()
        image.load()
        found = image.tobytes()
    with Image.open(EDGE_CASES / "pillow" / "hopper.png") as image:
        whole = image.convert("RGB").tobytes()

    differing = sum(one != other for one, other in zip(found, whole, strict=True))
    assert differing > len(whole) / 4


@pytest.mark.parametrize("format", ["webdataset", "recordio", "tfrecord"])
@pytest.mark.parametrize("name", SETS)
def test_a_pack_of_real_images_gives_back_every_byte(name, format, tmp_path):
    original = find(str(DATA / name))

    packed = pack(DATA / name, tmp_path / "pack", format, shard_megabytes=16)

    again = find(str(packed))
    assert again.contents.classes == original.contents.classes
    assert images_of(again) == images_of(original)


@pytest.mark.parametrize("loader", ["naive", "torch", "dali"])
def test_every_edge_case_is_shown_or_named(loader, tmp_path, monkeypatch):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "store"))
    for number, expected in enumerate(edge_cases()):
        folder = tmp_path / "data" / f"class {number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        source = EDGE_CASES / expected["file"]
        (folder / f"{number:02d}{source.suffix}").symlink_to(source)
    refused = sum(
        expected["pillow_result"] != "decodes" or expected["file"] == REFUSED_ONCE
        for expected in edge_cases()
    )
    readable = len(edge_cases()) - refused
    config = nbkit.ExperimentConfig(
        model="resnet20",
        data=str(tmp_path / "data"),
        loader=loader,
        image_size=32,
        batch_size_per_gpu=1,
        gpus=2,
        device="cpu",
        oversubscribe=True,
        epochs=1,
        warmup_steps=1,
        unreadable_images="skip",
    )

    run = nbkit.launch(config).wait()
    stopped = nbkit.launch(config.replace(unreadable_images="stop"))

    assert len(run.metrics()) == readable // 2
    for one in (run, stopped.wait(raise_on_failure=False)):
        assert one.worker["data"]["unreadable"]["count"] == refused
    assert stopped.cause["kind"] == "config"
    assert f"has {refused} unreadable images" in stopped.cause["message"]
