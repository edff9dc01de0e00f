"""What the storage notebook will measure follows from its parameters."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from nbkit.errors import ConfigError, NotEnoughDataError, ParameterError
from nbkit.launch.submit import existing_data
from nbkit.questions.storage import places as storage_places
from nbkit.questions.storage import planning as storage_plan
from nbkit.questions.storage.planning import plan
from nbkit.questions.storage.reads import read
from nbkit.studies import photo_copies
from nbkit.studies.devices import Devices
from tests.datasets.images import write_folder
from tests.disk import tmp_path
from tests.questions.conftest import notebook_parameters

__all__ = ["tmp_path"]


@pytest.fixture
def nas(tmp_path):
    """Return a data set of 12 images for training."""
    return write_folder(tmp_path / "nas")


parameters = partial(
    notebook_parameters, "storage", batch_size_per_gpu=2, warmup_steps=1
)


def test_a_data_set_is_measured_where_it_lies(nas):
    before = sorted(nas.rglob("*"))

    found = plan(parameters(data=f"nas={nas}"))

    [place] = found.places
    assert (place.name, place.is_ours) == ("nas", False)
    assert place.sources[0].images == 12
    assert list(found.arms) == ["nas, loader", "nas, as A100-80GB"]
    assert found.facts["stage_of"]["nas, loader"] == ["load", "nas"]
    loader, emulated = found.arms.values()
    assert (loader.task, loader.emulated_step_seconds) == ("load", 0)
    assert loader.epochs == 2
    rate = found.facts["emulated"]["images_per_second"]
    assert emulated.emulated_step_seconds == pytest.approx(2 / rate)
    assert sorted(nas.rglob("*")) == before
    assert json.loads(json.dumps(found.facts))["cache"] == "cold"


def test_data_smaller_than_five_times_the_memory_are_called_a_cache_test(
    nas, monkeypatch
):
    assert any(
        note.startswith("Cache test: nas (")
        for note in plan(parameters(data=str(nas))).notes
    )

    monkeypatch.setattr(
        storage_plan, "describe_machine", lambda **_: {"usable_memory_bytes": 100}
    )
    assert "Cache test" not in " ".join(plan(parameters(data=str(nas))).notes)


@pytest.mark.parametrize("stages", [None, "train,load", "emulate,load"])
def test_a_control_is_the_first_arm_of_a_loader_again(nas, stages):
    found = plan(parameters(data=str(nas), control=True, stages=stages))

    assert found.control == next(iter(found.arms)) == "nas, loader"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cache": "lukewarm"}, "cache='lukewarm' is unknown. Use one of cold, warm"),
        ({"read_engine": "dd"}, "read_engine='dd' is unknown. Use one of auto"),
        ({"stages": "load,sing"}, "'sing' is unknown. Use one or more of load, "),
        ({"forms": "zip"}, "'zip' is unknown. Use one or more of files"),
        ({"engine": "slurm"}, "page cache are measured on this machine. Use engine="),
        ({"engine": "slurm", "cache": "warm"}, "engine='slurm' may start runs on"),
        ({"replicate": 0}, "replicate=0 is below 1"),
        ({"read_repeats": 0}, "read_repeats=0 is below 1"),
        (
            {"batch_size_per_gpu": 12},
            "1 step of 12 images per epoch, but warmup_steps=1",
        ),
        ({"data": "{nas},nas={nas}"}, "2 places have the name .nas.."),
        ({"paths": "nas={nas}/nowhere"}, "nowhere is not a folder"),
        ({"data": "synthetic"}, "data=.synthetic.: .* not read .*.photos."),
        ({"data": "nas=synthetic"}, "data=.nas=synthetic.: .* not read .*.photos."),
    ],
)
def test_plan_refused(nas, given, said):
    asked = {} if "paths" in given else {"data": "{nas}"}
    asked |= given
    for name in asked.keys() & {"data", "paths"}:
        asked[name] = asked[name].format(nas=nas)

    with pytest.raises(ConfigError, match=said):
        plan(parameters(**asked))


def test_a_missing_data_set_is_not_to_be_replaced_by_synthetic_images():
    with pytest.raises(ConfigError, match="or one of photos") as caught:
        plan(parameters(data="/nowhere/data"))

    assert "synthetic," not in str(caught.value)
    assert str(caught.value).count("/nowhere/data") == 1


@pytest.fixture
def place(tmp_path, nas, monkeypatch):
    """Return an empty folder that would get few photographs."""
    monkeypatch.setattr(photo_copies, "photos_folder", lambda: nas)
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("below", "name"),
    [
        (".", "a.jpg"),
        ("cats", "a.JPEG"),
        ("train/cats", "a.png"),
        ("train/patient00001/study1", "view1.jpg"),
        (".", "val-00000.tar"),
        ("train", "train.rec"),
        ("nbkit-photos", "a.png"),
    ],
)
def test_photographs_are_never_put_into_a_data_set(place, below, name):
    (place / below).mkdir(parents=True, exist_ok=True)
    (place / below / name).write_bytes(b"x")
    # A link that cannot be followed hides nothing beside it.
    (place / "link").symlink_to(place / "link")
    before = sorted(place.rglob("*"))

    with pytest.raises(ParameterError, match=r"contains data \(.*-p data here=.*empty"):
        plan(parameters(paths=f"here={place}", replicate=1))

    assert sorted(place.rglob("*")) == before


def test_a_mount_with_data_sets_below_it_is_no_data_set(place):
    (place / "imagenet/train/n01").mkdir(parents=True)
    (place / "imagenet/train/n01/a.JPEG").write_bytes(b"x")
    link = place.with_name("link")
    link.symlink_to(place)

    found = plan(parameters(paths=f"here={link}", forms="files", replicate=1))

    assert found.places[0].is_ours
    [source] = found.places[0].sources
    # As a launch will name it.
    assert source.data == existing_data(source.data)
    assert Path(source.data).parent.parent == place.resolve()


def test_photographs_of_before_are_no_data_set(place):
    for copies in (1, 2, 1):
        asked = {"forms": "files,webdataset", "replicate": copies}
        plan(parameters(paths=f"here={place}", **asked))

    names = sorted(path.name for path in place.iterdir())
    assert names == ["nbkit-photos-1", "nbkit-photos-2"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"paths": "{place},{place}/none"}, "none is not a folder"),
        ({"paths": "{place}", "batch_size_per_gpu": 99}, "but warmup_steps=1"),
        ({"paths": "{place}", "precision": "fp12", "stages": "train"}, "fp12"),
        ({"paths": "{place}", "read_repeats": 0}, "read_repeats=0"),
    ],
)
def test_nothing_is_written_before_everything_is_checked(place, given, said):
    given = {**given, "paths": given["paths"].format(place=place)}

    with pytest.raises(ConfigError, match=said):
        plan(parameters(**given, replicate=1))

    assert list(place.iterdir()) == []


def test_plan_gpu_without_published_rate(nas, monkeypatch):
    unknown = Devices("cpu", 1, "Tomorrow's GPU")
    monkeypatch.setattr(storage_plan, "find_devices", lambda *_: unknown)

    planned = plan(parameters(data=str(nas)))

    assert planned.notes[-1] == (
        "Tomorrow's GPU has no published rate, so A100 is emulated."
    )
    assert any("as A100" in arm for arm in planned.arms)


def test_a_place_in_memory_is_never_called_cold(nas, monkeypatch):
    memory = {"kind": "memory", "file_system": "tmpfs"}
    monkeypatch.setattr(storage_places, "describe_place", lambda path: memory)

    with pytest.raises(ConfigError, match="nas is on tmpfs, which is in memory"):
        plan(parameters(data=str(nas)))

    planned = plan(parameters(data=str(nas), cache="warm", read_repeats=1))
    assert any(", sequential and random, warm, n=1." in note for note in planned.notes)
    assert {speed.cache for _, speed in read(planned).speeds} == {"warm"}


def test_a_gpu_that_nobody_has_measured_is_refused_with_those_that_are(nas):
    with pytest.raises(NotEnoughDataError, match="Use one of A10"):
        plan(parameters(data=str(nas), gpu="TPU"))
