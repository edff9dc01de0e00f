"""What the notebook of concurrent jobs will measure follows from its parameters."""

from __future__ import annotations

import os
import shutil
from functools import partial

import pytest

from nbkit.datasets.image_folder import list_image_folder
from nbkit.errors import ConfigError, DeviceError, StoreError
from nbkit.launch.devices.choice import Candidate
from nbkit.questions.concurrent_jobs.copies import copy_data
from nbkit.questions.concurrent_jobs.layouts import Planned
from nbkit.questions.concurrent_jobs.planning import plan, prepare
from nbkit.telemetry.topology import read_cpus
from tests.datasets.images import CLASSES, write_folder
from tests.hostile.strangers import as_stranger, needs_root
from tests.questions.conftest import notebook_parameters
from tests.telemetry.fake_nvml.fake_driver import FakeGpu
from tests.telemetry.planted_topology import plant

parameters = partial(notebook_parameters, "concurrent_jobs")


@pytest.fixture
def cpus(monkeypatch):
    """Let this process have eight CPUs, as far as a plan looks."""

    def has(count):
        monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(count)))
        for module in (
            "studies.devices",
            "questions.concurrent_jobs.planning",
            "launch.devices.choice",
        ):
            monkeypatch.setattr(f"nbkit.{module}.usable_cpus", lambda: float(count))

    has(8)
    return has


def test_pinned_jobs_on_gpus_have_cpus_of_the_numa_node_of_theirs(
    cpus, drive, tmp_path, monkeypatch
):
    drive(*(FakeGpu(f"GPU-{letter}") for letter in "ab"))
    cores = [((0, 4), 0, 0), ((1, 5), 0, 0), ((2, 6), 1, 1), ((3, 7), 1, 1)]
    here = read_cpus(plant(tmp_path, cores), range(8))
    found = [
        Candidate("GPU-a", "GPU 0", numa_node=1),
        Candidate("GPU-b", "GPU 1", numa_node=0),
    ]
    monkeypatch.setattr(
        "nbkit.questions.concurrent_jobs.planning.read_cpus", lambda: here
    )
    monkeypatch.setattr(
        "nbkit.questions.concurrent_jobs.planning.visible_gpus", lambda _: found
    )

    planned = plan(parameters(device="auto", pinned=[False, True]))

    arms = planned.arms
    first, second = arms["1,1 job 1 (pinned)"], arms["1,1 job 2 (pinned)"]
    assert (first.devices, first.cpus) == (("GPU-a",), (2, 3, 6, 7))
    assert (second.devices, second.cpus) == (("GPU-b",), (0, 1, 4, 5))
    assert arms["1 alone (pinned)"].devices == ("GPU-a",)
    assert arms["2 alone (pinned)"].devices == ("GPU-a", "GPU-b")
    assert {arms[name].devices for name in arms if "pinned" not in name} == {None}
    assert "use GPUs and CPUs on the same NUMA nodes" in "".join(planned.notes)


@pytest.mark.parametrize(
    ("layout", "one_job", "named"),
    [
        ([2, 2], False, ["2,2"]),
        ([2, 2], True, ["2,2", "4"]),
        ([1, 3], False, ["1,3"]),
        ([2], False, ["1,1", "2"]),
    ],
)
def test_a_layout_is_what_was_asked_for(cpus, layout, one_job, named):
    found = plan(parameters(layout=layout, one_job=one_job, pinned=[False]))

    assert [Planned.of(one).name for one in found.facts["planned"]] == named


def test_jobs_that_do_not_fit_at_once_are_refused(cpus):
    with pytest.raises(DeviceError, match=r"layout=4,8 requires 12 dev.* 8 usable"):
        plan(parameters(layout=[4, 8]))


def test_one_gpu_is_too_few_and_no_smaller_layout_is_offered(drive, cpus):
    drive(FakeGpu("GPU-a"))

    said = "requires 2 devices; available: 1 GPU. Use a machine with 2 devices, or"
    with pytest.raises(DeviceError, match=f"{said} .* -mig 1; .* mig -cgi 9,9 -C"):
        plan(parameters(device="auto"))


def test_every_bad_value_is_named_at_once():
    with pytest.raises(ConfigError) as raised:
        plan(parameters(layout=[1], repeats=0, storage=["mine"]))

    said = str(raised.value)
    assert "layout=1 is a single job" in said
    assert "repeats=0 is below 1" in said
    assert "storage='mine' is not one of shared and separate" in said


def test_separate_storage_is_a_copy_for_each_job(cpus, tmp_path):
    data, copies = tmp_path / "images", tmp_path / "copies"
    write_folder(data, images_per_class=40)

    found = plan(
        parameters(
            data=str(data),
            storage=["shared", "separate"],
            copies=[str(copies)],
            pinned=[False],
            one_job=False,
        )
    )

    assert not copies.exists()
    said = prepare(found).notes[len(found.notes) :]
    first, second = copies / "images-job-1", copies / "images-job-2"
    assert list_image_folder(second).contents.classes == [*CLASSES]
    assert "Remove it when no longer needed" in said[0]
    assert "already exists, with the same" in prepare(found).notes[-2]
    arms = found.arms
    assert arms["1,1 job 1"].data == arms["1,1 job 2"].data == str(data)
    assert arms["1,1 job 1 (separate)"].data == str(first)
    assert arms["1,1 job 2 (separate)"].data == str(second)
    assert arms["1 alone (separate)"].data == str(first)
    workers = {config.loader_config.num_workers for config in arms.values()}
    assert workers == {3}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "data='synthetic' is not a folder"),
        ({"data": "."}, "copies has 0 folders for 2 jobs"),
        ({"data": ".", "copies": ["a", "b", "c"]}, "copies has 3 folders for 2"),
    ],
)
def test_separate_storage_needs_a_folder_and_places_for_its_copies(cpus, changes, said):
    with pytest.raises(ConfigError, match=said):
        plan(parameters(storage=["separate"], **changes))


def test_a_copy_within_the_data_is_refused_and_nothing_is_written(cpus, tmp_path):
    data = tmp_path / "images"
    (data / "cat").mkdir(parents=True)
    chosen = {"storage": ["separate"], "data": str(data), "copies": [str(data / "cat")]}

    with pytest.raises(ConfigError, match="become part of the data"):
        plan(parameters(**chosen))

    assert list(data.rglob("*")) == [data / "cat"]


def test_other_data_under_the_name_of_a_copy_is_refused_and_stays(cpus, tmp_path):
    data, other = tmp_path / "images", tmp_path / "copies" / "images-job-1"
    write_folder(data, images_per_class=40)
    other.mkdir(parents=True)
    (other / "1.txt").write_text("something else")
    chosen = {"storage": ["separate"], "data": str(data), "pinned": [False]}
    found = plan(parameters(**chosen, copies=[str(other.parent)], one_job=False))

    with pytest.raises(ConfigError, match=r"files that differ: 1\.txt, train/"):
        prepare(found)

    assert (other / "1.txt").read_text() == "something else"


def test_a_copy_that_cannot_be_finished_leaves_nothing(tmp_path):
    data, copy = tmp_path / "images", tmp_path / "copies" / "images-job-1"
    data.mkdir()
    (data / "1.txt").write_text("an image")
    os.mkfifo(data / "2.txt")

    with pytest.raises(StoreError):
        copy_data(str(data), [copy])

    assert not list(copy.parent.iterdir())
    (data / "2.txt").unlink()
    (data / "2.txt").symlink_to(data / "nowhere")
    copy_data(str(data), [copy])
    assert [path.name for path in copy.iterdir()] == ["1.txt"]


@needs_root
def test_a_copy_is_made_where_others_may_write_but_not_list(tmp_path):
    data, folder = tmp_path / "images", tmp_path / "copies"
    data.mkdir()
    (data / "1.txt").write_text("an image")
    folder.mkdir()
    folder.chmod(0o733)

    with as_stranger(tmp_path):
        copy_data(str(data), [folder / "images-job-1"])

    assert [path.name for path in (folder / "images-job-1").iterdir()] == ["1.txt"]


def test_a_copy_of_a_class_that_is_a_link_is_known_again(tmp_path):
    data, copy = tmp_path / "images", tmp_path / "copies" / "images-job-1"
    disk = tmp_path / "other disk"
    disk.mkdir()
    data.mkdir()
    (disk / "1.txt").write_text("an image")
    (data / "cat").symlink_to(disk)
    first, second = (copy_data(str(data), [copy]) for _ in range(2))
    (disk / "2.txt").write_text("another image")

    assert (first, second) == ({copy: True}, {copy: False})
    with pytest.raises(ConfigError, match=r"files that differ: cat/2\.txt\)\. Remove"):
        copy_data(str(data), [copy])


@pytest.mark.parametrize("other", ["the same", "something else"])
def test_of_two_processes_that_copy_at_once_the_second_looks_at_the_firsts_copy(
    tmp_path, monkeypatch, other
):
    data, copy = tmp_path / "images", tmp_path / "copies" / "images-job-1"
    half = copy.with_name(f"{copy.name}.unfinished")
    for folder in (data, half):
        folder.mkdir(parents=True)
        (folder / "1.txt").write_text("the same")
    copytree = shutil.copytree

    def copy_last(*given, **named):
        # Here the other process gives its copy the final name.
        copy.mkdir()
        (copy / "1.txt").write_text(other)
        return copytree(*given, **named)

    monkeypatch.setattr("shutil.copytree", copy_last)
    if other == "the same":
        copy_data(str(data), [copy])
    else:
        with pytest.raises(ConfigError, match="is not a copy of"):
            copy_data(str(data), [copy])

    assert (copy / "1.txt").read_text() == other
    assert sorted(copy.parent.iterdir()) == [copy, half]


def test_pinning_needs_a_cpu_for_every_device(drive, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    drive(FakeGpu("GPU-a"), FakeGpu("GPU-b"))

    with pytest.raises(ConfigError, match="pinned=true requires 2 CPUs"):
        plan(parameters(device="auto", pinned=[True]))
