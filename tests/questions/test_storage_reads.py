"""Every place is read as its images are, and what arrives on a host is counted."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest

from nbkit.questions.storage.planning import plan
from nbkit.questions.storage.reads import Reads, prepare, read
from nbkit.questions.storage.timeline import arrived_bytes, epoch_moments
from nbkit.store.paths import RunPaths
from nbkit.studies import photo_copies
from nbkit.studies.kinds import before_start
from tests.datasets.images import write_folder, write_table
from tests.disk import tmp_path
from tests.questions.test_storage_plan import parameters

__all__ = ["tmp_path"]


@pytest.fixture
def images(tmp_path):
    return write_folder(tmp_path / "nas")


def test_a_data_set_of_files_is_read_whole_files_at_random(images, capsys):
    before = sorted(images.rglob("*"))
    sizes = [path.stat().st_size for path in images.rglob("*.*")]

    reads = read(plan(parameters(data=f"nas={images}", read_repeats=1)))

    speeds = {(one.pattern, one.cache): one for place, one in reads.speeds}
    assert list(speeds) == [
        ("sequential", "cold"),
        ("sequential", "warm"),
        ("random", "cold"),
        ("random", "warm"),
    ]
    random = speeds["random", "cold"]
    assert random.operation_bytes == max(sizes)
    assert random.num_operations == 16  # one a thread: 18 files, 16 threads
    assert speeds["sequential", "cold"].total_bytes == sum(sizes)
    mean = random.total_bytes / 16 / 1024
    assert [one[8] for one in reads.table.rows][2] == f"{mean:,.0f} KiB"
    assert "file by file, at most 512 KiB" in " ".join(reads.table.notes)
    assert all(one.engine == "python" for one in speeds.values())
    assert sorted(images.rglob("*")) == before
    assert "nas: 18 files, random, cold" in capsys.readouterr().out
    assert Reads.of(json.loads(json.dumps(reads.facts))) == reads


def test_labels_that_are_missing_are_read_by_the_rule_of_the_parameters(tmp_path):
    rows = [f"{n}.png,train,{n % 2},0,0" for n in range(20)]
    table = write_table(tmp_path / "xray", [*rows[:-1], "19.png,train,,0,0"])

    planned = plan(parameters(data=f"nas={table}", missing_labels="zero"))
    arm = next(iter(planned.arms.values())).model_dump()
    before_start("storage", {"cache": "warm"}, arm)

    assert planned.places[0].sources[0].images == 20
    assert len(read(planned).speeds) == 4


@pytest.mark.parametrize(("minutes", "repeats"), [(0.00001, 1), (0, 3)])
def test_reads_have_a_share_of_the_time_limit(images, minutes, repeats):
    asked = parameters(data=f"nas={images}", read_repeats=3, minutes=minutes)

    prepared = prepare(plan(asked))

    found = Reads.of(prepared.facts).speeds
    assert [len(speed.readings) for _, speed in found] == [repeats] * 4
    assert ("as few as 1 of 3 repeats" in " ".join(prepared.notes)) == (repeats == 1)


def test_a_folder_gets_photographs_and_a_test_file_that_is_removed(
    tmp_path, images, monkeypatch
):
    monkeypatch.setattr(photo_copies, "photos_folder", lambda: images)
    place = tmp_path / "place"
    place.mkdir()
    asked = parameters(
        paths=f"here={place}",
        forms="webdataset",
        replicate=2,
        read_bytes=2**20,
        read_repeats=1,
    )

    planned = plan(asked)
    reads = read(planned)

    [source] = planned.places[0].sources
    assert (source.name, source.kind) == ("here, webdataset", "webdataset")
    assert source.images == 24
    said = " ".join(planned.notes)
    assert "Remove them when no longer needed." in said
    assert re.search(r"Use -p replicate \d{4,} to test the storage", said)
    assert [path.name for path in place.iterdir()] == ["nbkit-photos-2"]
    random = next(one for _, one in reads.speeds if one.pattern == "random")
    # The mean image, in whole blocks.
    assert random.operation_bytes % 4096 == 0
    assert 0 <= random.operation_bytes - source.bytes_per_image < 4096


def run_with(folder, samples):
    """Return a run whose sampler wrote these (Unix time, bytes of disk, of network)."""
    (folder / "system").mkdir()
    lines = [{"kind": "header"}]
    lines += [
        {
            "kind": "sample",
            "t": t,
            "host": {"disk_read_bytes": disk, "net_rx_bytes": network},
        }
        for t, disk, network in samples
    ]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (folder / "system" / "host.jsonl").write_text(text)
    return SimpleNamespace(paths=RunPaths(folder))


def test_what_arrives_is_counted_by_disks_or_by_network_cards(tmp_path):
    run = run_with(tmp_path, [(10, 0, 0), (11, 5 * 10**6, 1), (13, 5 * 10**6, 7)])

    assert arrived_bytes(run, "disk_read_bytes") == 5 * 10**6
    assert arrived_bytes(run, "net_rx_bytes") == 7
    assert epoch_moments([("a", run)], {"a": "disk_read_bytes"}) == [
        {"series": "a", "seconds": 1, "value": 5.0},
        {"series": "a", "seconds": 3, "value": 0.0},
    ]


@pytest.mark.parametrize(("counted", "counter"), [(None, "disk_read_bytes"), (0, None)])
def test_arrived_bytes_without_counter(tmp_path, counted, counter):
    run = run_with(tmp_path, [(10, counted, counted), (11, counted, counted)])

    assert arrived_bytes(run, counter) is None
    assert epoch_moments([("a", run)], {"a": counter}) == []
