"""How cold a run began is what its tags say, unless too little arrived for it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from nbkit.questions.storage.epochs import epoch_row
from nbkit.readspeed.places import counter_of, kind_of
from nbkit.store.paths import RunPaths

BYTES_PER_IMAGE = 1000
PROVEN = {"cache": "cold", "cache_proven": "yes"}


@pytest.fixture
def run(tmp_path):
    """Return what makes a run of two epochs of 10 images, by what arrived meanwhile."""

    def make(number, arrived, tags=PROVEN):
        folder = tmp_path / str(number)
        (folder / "system").mkdir(parents=True)
        samples = [
            {"kind": "sample", "t": t, "host": {"disk_read_bytes": came}}
            for t, came in ((10, 0), (11, arrived))
        ]
        text = "".join(f"{json.dumps(line)}\n" for line in samples)
        (folder / "system" / "host.jsonl").write_text(text)
        lines = [
            {
                "kind": "step",
                "epoch": epoch,
                "images": 5,
                "step_time_seconds": 0.1,
                "warmup": False,
            }
            for epoch in (0, 0, 1, 1)
        ]
        return SimpleNamespace(
            paths=RunPaths(folder),
            metrics=lambda: lines,
            config=SimpleNamespace(emulated_step_seconds=0.0),
            summary=SimpleNamespace(data_wait_share=0.5),
            record={"tags": tags},
        )

    return make


def row(*runs, counter="disk_read_bytes"):
    return epoch_row(
        "nas, loader",
        runs,
        stage="load",
        source="nas",
        bytes_per_image=BYTES_PER_IMAGE,
        counter=counter,
    )


def test_a_run_into_which_its_first_epoch_arrived_is_proven(run):
    found = row(run(0, 10_000), run(1, 9_000))

    assert (found.cache, found.is_cold) == ("cold, proven", True)
    assert found.arrived_bytes == 9_500
    assert found.first_runs == (50.0, 50.0)


def test_a_run_into_which_too_little_arrived_is_not(run):
    found = row(run(0, 10_000), run(1, 2048))

    assert found.cache == "not proven (only 2 KiB of 10 KiB arrived)"
    assert not found.is_cold


@pytest.mark.parametrize(
    ("cache", "is_cold"),
    [
        ("client cold, server unknown", True),
        ("not provable", True),
        ("warm", False),
        ("40 % warm", False),
    ],
)
def test_what_was_never_proven_is_called_as_it_was(run, cache, is_cold):
    found = row(run(0, 0, {"cache": cache, "cache_proven": "no"}))

    assert (found.cache, found.is_cold) == (cache, is_cold)


def test_a_run_without_tags_is_not_known(run):
    found = row(run(0, 10_000, None))

    assert (found.cache, found.is_cold) == ("not known", False)


def test_what_no_counter_of_the_host_sees_is_unknown_and_not_zero(run):
    tags = {"cache": "client cold, server unknown", "cache_proven": "no"}

    assert row(run(0, 10_000, tags), counter=None).arrived_bytes is None
    # The first epoch did not come from this machine's memory.
    assert row(run(1, 0, tags)).arrived_bytes is None
    assert row(run(2, 9_000, tags)).arrived_bytes == 9_000
    # A proof that the counter denies is doubted, and both numbers are shown.
    assert row(run(3, 0)).arrived_bytes == 0
    # A later epoch, or a warm one, may come from memory.
    assert row(run(4, 0, {"cache": "warm", "cache_proven": "no"})).arrived_bytes == 0


@pytest.mark.parametrize(
    ("file_system", "source", "options", "counter"),
    [
        ("ext4", "/dev/sda1", "rw", "disk_read_bytes"),
        ("overlay", "overlay", "rw", "disk_read_bytes"),
        ("nfs4", "filer:/export", "rw,proto=tcp", "net_rx_bytes"),
        ("nfs4", "filer:/export", "rw,proto=rdma,port=20049", None),
        ("smb3", "//filer/share", "rw,vers=3.1.1,rdma", None),
        ("lustre", "10.0.0.1@tcp:/fs", "rw", "net_rx_bytes"),
        ("lustre", "10.0.0.1@o2ib:/fs", "rw", None),
        ("9p", "share", "trans=virtio", None),
        ("fuse.sshfs", "user@host:/data", None, None),
        ("beegfs", "beegfs_nodev", "rw", None),
    ],
)
def test_a_counter_is_believed_where_the_data_come_by_what_it_counts(
    file_system, source, options, counter
):
    storage = {"file_system": file_system, "source": source, "options": options}

    assert counter_of({**storage, "kind": kind_of(file_system)}) == counter
