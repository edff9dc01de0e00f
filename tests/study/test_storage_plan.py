"""What the storage notebook will measure follows from its parameters."""

from __future__ import annotations

import json

import pytest

import nbkit
from nbkit.errors import ConfigError, NotEnoughDataError
from nbkit.study import storage_places, storage_plan
from nbkit.study.parameters import Parameters, check_parameters
from nbkit.study.storage_plan import plan
from nbkit.study.storage_reads import read
from tests.datasets.images import write_folder
from tests.disk import tmp_path

__all__ = ["tmp_path"]


@pytest.fixture
def nas(tmp_path):
    """Return a data set of 12 images for training."""
    return write_folder(tmp_path / "nas")


def parameters(**given) -> Parameters:
    """Return the notebook's parameters with some changed."""
    content = json.loads(nbkit.notebook("storage").read_text())
    [cell] = [c for c in content["cells"] if c["metadata"].get("tags")]
    source = "".join(cell["source"])
    small = {"device": "cpu", "batch_size_per_gpu": 2, "warmup_steps": 1}
    return check_parameters([source], {**small, **given})


def test_a_data_set_is_measured_where_it_lies(nas):
    before = sorted(nas.rglob("*"))

    found = plan(parameters(data=f"nas={nas}"))

    [place] = found.places
    assert (place.name, place.is_ours) == ("nas", False)
    assert place.sources[0].images == 12
    assert list(found.arms) == ["nas, loader", "nas, as A100-80GB"]
    assert found.stage_of["nas, loader"] == ("load", "nas")
    loader, emulated = found.arms.values()
    assert (loader.task, loader.emulated_step_seconds) == ("load", 0)
    assert loader.epochs == 2
    assert found.emulated is not None
    assert emulated.emulated_step_seconds == pytest.approx(
        2 / found.emulated.images_per_second
    )
    assert "nothing is written there" in " ".join(found.notes)
    assert sorted(nas.rglob("*")) == before
    assert json.loads(json.dumps(found.facts))["cache"] == "cold"


def test_data_smaller_than_five_times_the_memory_are_called_a_cache_test(
    nas, monkeypatch
):
    assert any(
        note.startswith("Cache test, nas:")
        for note in plan(parameters(data=str(nas))).notes
    )

    monkeypatch.setattr(
        storage_plan, "describe_machine", lambda **_: {"memory_total_bytes": 100}
    )
    assert "Cache test" not in " ".join(plan(parameters(data=str(nas))).notes)


def test_a_place_is_called_by_its_folder_or_by_the_name_that_is_given(nas):
    [place] = plan(parameters(data=str(nas))).places

    assert place.name == "nas"


def test_training_comes_last_with_its_own_model(nas):
    found = plan(
        parameters(data=str(nas), stages="load,train", model="resnet18", gpu="V100")
    )

    assert [config.task for config in found.arms.values()] == ["load", "train"]
    assert found.arms["nas, training"].model == "resnet18"


def test_a_control_is_the_first_arm_again(nas):
    assert plan(parameters(data=str(nas), control=True)).control == "nas, loader"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cache": "lukewarm"}, "cache='lukewarm' is not one of cold, warm"),
        ({"read_engine": "dd"}, "read_engine='dd' is not one of auto, own, fio"),
        ({"stages": "load,sing"}, "'sing' is not one of load, emulate, train"),
        ({"forms": "zip"}, "'zip' is not one of files"),
        ({"engine": "slurm"}, "only this one's memory can be seen"),
        ({"replicate": 0}, "replicate=0 is below 1"),
        ({"batch_size_per_gpu": 12}, "1 steps of 12, but 1 steps are warm-up"),
    ],
)
def test_what_cannot_be_measured_is_refused(nas, given, said):
    with pytest.raises(ConfigError, match=said):
        plan(parameters(data=str(nas), **given))


def test_a_place_in_memory_is_never_called_cold(nas, monkeypatch):
    memory = {"kind": "memory", "file_system": "tmpfs"}
    monkeypatch.setattr(storage_places, "describe_place", lambda path: memory)

    with pytest.raises(ConfigError, match="nas lies on tmpfs, which is memory"):
        plan(parameters(data=str(nas)))

    planned = plan(parameters(data=str(nas), cache="warm", read_repeats=1))
    assert {speed.cache for _, speed in read(planned).found} == {"warm"}


def test_two_places_of_one_name_are_refused(nas):
    with pytest.raises(ConfigError, match="2 places are called 'nas', 1 may be"):
        plan(parameters(data=f"{nas},nas={nas}"))


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="nowhere is no folder"):
        plan(parameters(paths=f"nas={tmp_path / 'nowhere'}"))


def test_a_gpu_that_nobody_has_measured_is_refused_with_those_that_are(nas):
    with pytest.raises(NotEnoughDataError, match="use one of A10"):
        plan(parameters(data=str(nas), gpu="TPU"))
