"""How cold a run began is what its tags say, unless too little arrived for it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from nbkit.questions.storage.epochs import epoch_row
from nbkit.readspeed.places import counter_of, storage_kind
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


UNPROVEN = {"cache": "client cold, server unknown", "cache_proven": "no"}
WARM = {"cache": "warm", "cache_proven": "no"}


@pytest.mark.parametrize(
    ("arrived", "tags", "cache", "is_cold", "counted"),
    [
        ([10_000, 9_000], PROVEN, "cold, proven", True, 9_500),
        # A proof that the counter denies is doubted, and both numbers are shown.
        (
            [10_000, 2048],
            PROVEN,
            "not proven (only 2 KiB of 10 KiB read)",
            False,
            6_024,
        ),
        # The first epoch did not come from this machine's memory.
        ([0], UNPROVEN, "client cold, server unknown", True, None),
        ([9_000], UNPROVEN, "client cold, server unknown", True, 9_000),
        ([0], {**UNPROVEN, "cache": "not provable"}, "not provable", True, None),
        ([0], WARM, "warm", False, 0),
        ([0], {**WARM, "cache": "40 % warm"}, "40 % warm", False, 0),
        ([10_000], None, "not known", False, 10_000),
    ],
)
def test_epoch_row_cache_and_arrived_bytes(run, arrived, tags, cache, is_cold, counted):
    found = row(*(run(number, came, tags) for number, came in enumerate(arrived)))

    assert (found.cache, found.is_cold) == (cache, is_cold)
    assert found.arrived_bytes == counted
    assert found.first_runs == (50.0,) * len(arrived)


def test_epoch_row_of_runs_that_began_less_and_less_warm(run):
    cold = {**WARM, "cache": "37% warm"}

    assert row(run(0, 0, WARM), run(1, 0, cold)).cache == "37% warm"


def test_epoch_row_without_counter(run):
    assert row(run(0, 10_000, UNPROVEN), counter=None).arrived_bytes is None


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

    assert counter_of({**storage, "kind": storage_kind(file_system)}) == counter
