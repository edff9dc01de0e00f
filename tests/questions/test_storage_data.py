"""Before a start the data are what the study declares, or nothing starts."""

from __future__ import annotations

import io
import json
import os

import pytest
from PIL import Image

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.datasets.check import inspect_image
from nbkit.datasets.find import find
from nbkit.datasets.manifest import manifest_name, read_manifest
from nbkit.datasets.packing import pack
from nbkit.errors import ConfigError, PageCacheError
from nbkit.questions.storage.cold_cache import described_data
from nbkit.readspeed import resident_share
from nbkit.store.paths import manifests_folder
from nbkit.studies import photo_copies
from nbkit.studies.kinds import before_start
from nbkit.studies.photo_copies import put_photos
from tests.datasets.images import write_folder
from tests.disk import tmp_path
from tests.readspeed.conftest import held

__all__ = ["held", "tmp_path"]


@pytest.fixture
def data(tmp_path):
    return write_folder(tmp_path / "data")


@pytest.fixture
def study(data):
    """Return a storage study of one arm; nothing of it has run."""
    config = ExperimentConfig(
        task="load",
        data=str(data),
        device="cpu",
        epochs=2,
        warmup_steps=1,
        batch_size_per_gpu=2,
        image_size=32,
    )
    plan = {"cache": "cold"}
    return nbkit.Study.create("storage", {"load": config}, kind="storage", plan=plan)


def test_a_warm_run_declared_cold_is_refused_before_it_starts(study, data, held):
    with (
        held(data / "train/apple/0 0.png"),
        pytest.raises(PageCacheError, match="is in the page cache"),
    ):
        study.run(progress=False)

    assert list(nbkit.runs()) == []


@pytest.mark.parametrize(
    ("cache", "proven", "share"), [("cold", "yes", 0.0), ("warm", "no", 1.0)]
)
def test_before_start_brings_data_into_the_declared_state(
    study, data, cache, proven, share
):
    arm = study.arms["load"].model_dump()

    tags = before_start(study.kind, {"cache": cache}, arm)

    assert (tags["cache"], tags["cache_proven"]) == (cache, proven)
    assert resident_share(list(data.rglob("*.*"))) == share
    # Another machine's runs leave this one's page cache alone.
    other = {"cache": {"cold": "warm", "warm": "cold"}[cache]}
    assert before_start("storage", other, {**arm, "engine": "slurm"}) == {}
    assert resident_share(list(data.rglob("*.*"))) == share


def test_images_are_looked_at_before_they_are_dropped(study, data, capsys):
    # Else the first run would read them all, and find a warm cache.
    for _ in range(2):
        before_start(study.kind, study.plan, study.arms["load"].model_dump())

    [known] = manifests_folder().glob("*.jsonl")
    # The one that a run looks for.
    assert known.name == manifest_name(find(str(data)).fingerprint())
    assert capsys.readouterr().out.count("Checking every image") == 1


def test_cache_state_of_data_with_a_dangling_link(study, data):
    (data / "train/apple/gone.png").symlink_to(data / "nowhere")
    arm = study.arms["load"].model_dump() | {"unreadable_images": "skip"}

    assert before_start(study.kind, study.plan, arm)["cache"] in ("warm", "cold")


def test_images_are_looked_at_again_where_a_run_would_not_believe_it(
    study, data, capsys
):
    link = data.with_name("link")
    link.symlink_to(data)
    arm = study.arms["load"].model_dump()

    before_start(study.kind, study.plan, {**arm, "data": str(link)})
    [known] = manifests_folder().glob("*.jsonl")
    # What a launch makes of the link is what its run will look for.
    assert read_manifest(known).root == data.resolve()

    header, *lines = known.read_text().splitlines(keepends=True)
    other = json.dumps({**json.loads(header), "root": str(link)})
    known.write_text("".join([f"{other}\n", *lines]))
    before_start(study.kind, study.plan, arm)
    assert read_manifest(known).root == data
    assert capsys.readouterr().out.count("Checking every image") == 2


def test_size_is_that_of_the_images_for_training(data):
    large = data / "val/apple/0 0.png"
    large.write_bytes(large.read_bytes() + bytes(10**6))
    files = list((data / "train").rglob("*.*"))
    pack(data, data.with_name("pack"), "webdataset")

    found = described_data(str(data))
    assert found["images"] == found["files"] == len(files)
    assert found["bytes"] == sum(path.stat().st_size for path in files)
    packed = described_data(str(data.with_name("pack")))
    assert (packed["images"], packed["files"]) == (len(files), 1)
    assert packed["bytes"] < 10**6


@pytest.fixture
def few_photos(tmp_path, monkeypatch):
    """Let the built-in set be small here."""
    folder = write_folder(tmp_path / "photos")
    monkeypatch.setattr(photo_copies, "photos_folder", lambda: folder)
    return folder


def test_photographs_are_put_in_every_form_and_found_again(tmp_path, few_photos):
    place = tmp_path / "place"
    place.mkdir()

    put = put_photos(place, 3, ["files", "tfrecord"])

    assert list(put) == ["files", "tfrecord"]
    for form, kind in (("files", "image folder"), ("tfrecord", "tfrecord")):
        described = described_data(str(put[form]))
        assert described["kind"] == kind
        assert described["images"] == 3 * 12
        assert described["bytes"] > 0
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*")}
    assert put_photos(place, 3, ["files", "tfrecord"]) == put
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*")} == before


def test_copies_differ_and_show_the_same(tmp_path, few_photos):
    place = tmp_path / "place"
    place.mkdir()
    photo = few_photos / "train/apple/1 0.JPEG"

    copies = sorted((put_photos(place, 3, ["files"])["files"]).glob("apple/1 0-*"))

    contents = [path.read_bytes() for path in copies]
    assert len({content[-64:] for content in contents}) == 1
    assert len({content[:64] for content in contents}) == 3
    # Blocks behind the comment begin elsewhere.
    assert len({len(content) % 4096 for content in contents}) == 3
    for content in contents:
        assert inspect_image(content) == inspect_image(photo.read_bytes())
        with Image.open(io.BytesIO(content)) as one, Image.open(photo) as other:
            assert one.tobytes() == other.tobytes()


def test_what_was_left_behind_is_removed_when_it_is_old(tmp_path, few_photos):
    home = tmp_path / "place" / "nbkit-photos-1"
    old, new, other = (
        home / name for name in (".files.0a", ".webdataset.0b", ".ours.0c")
    )
    for folder in (old, new, other):
        (folder / "apple").mkdir(parents=True)
    for folder in (old, other):
        os.utime(folder, (0, 0))

    put_photos(tmp_path / "place", 1, ["files"])

    assert sorted(path.name for path in home.iterdir()) == sorted(
        ["files", new.name, other.name]
    )


def test_too_little_room_is_said_with_both_numbers(tmp_path, few_photos):
    place = tmp_path / "place"
    place.mkdir()

    with pytest.raises(ConfigError, match=r"requires [\d,]+ bytes, but .* has [\d,]+"):
        put_photos(place, 10**12, ["files"])

    assert list(place.iterdir()) == []
