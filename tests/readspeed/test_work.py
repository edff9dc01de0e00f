"""The same operations for every engine, and no byte twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from stat import ST_INO

import pytest

from nbkit.readspeed.meter import Meter
from nbkit.readspeed.places import block_devices
from nbkit.readspeed.work import work_on

BLOCK = 64 * 1024


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / f"{number}.bin" for number in range(20)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes(BLOCK + 100 * number))
    return paths


def work(files, pattern, **changes):
    values = {
        "operation_bytes": BLOCK,
        "total_bytes": 2**30,
        "threads": 1,
        "direct": False,
        **changes,
    }
    return work_on(files, pattern, **values)


@pytest.mark.parametrize("pattern", ["sequential", "random"])
@pytest.mark.parametrize("threads", [1, 4])
def test_threads_share_a_file_in_equal_parts(file, pattern, threads):
    found = work([file], pattern, threads=threads)

    orders = list(found.in_order(seed=1))

    assert [len(order) for order in orders] == [128 // threads] * threads
    every = [operation for order in orders for operation in order]
    assert sorted(every) == [(0, n * BLOCK, BLOCK) for n in range(128)]
    for part, order in zip(found.parts, orders, strict=True):
        assert sorted(order) == sorted(part)
        assert (order == list(part)) is (pattern == "sequential")


def test_another_repeat_has_another_order_and_the_same_seed_the_same(file):
    found = work([file], "random", threads=2)

    assert list(found.in_order(1)) == list(found.in_order(1))
    assert list(found.in_order(1)) != list(found.in_order(2))


def test_a_rest_that_fills_no_operation_is_left_out_of_one_file(file):
    assert work([file], "sequential", total_bytes=BLOCK * 3 + 1).num_operations == 3
    assert work([file], "sequential", threads=3).num_operations == 126


def test_of_many_files_every_byte_is_read_to_the_end(files):
    found = work(files, "sequential")

    assert found.total_bytes == sum(path.stat().st_size for path in files)


def test_with_random_files_are_drawn_from_all_of_them(files):
    found = work(files, "random", operation_bytes=2 * BLOCK, total_bytes=5 * 2 * BLOCK)

    drawn = [number for number, _, _ in found.parts[0]]
    assert len(set(drawn)) == len(drawn)
    assert drawn != sorted(drawn)
    assert found.total_bytes <= 5 * 2 * BLOCK


def test_a_file_with_two_names_is_read_once(files, tmp_path):
    (tmp_path / "hard").hardlink_to(files[3])
    (tmp_path / "soft").symlink_to(files[4])
    named = [*files, tmp_path / "hard", tmp_path / "soft"]

    found = work(named, "random", operation_bytes=2 * BLOCK)

    assert found.num_operations == len(found.extents) == len(files)
    assert found.total_bytes == sum(path.stat().st_size for path in files)


@pytest.mark.parametrize("number", [0, 7])
def test_files_that_their_file_system_numbers_alike_are_all_read(
    files, tmp_path, monkeypatch, number
):
    (tmp_path / "soft").symlink_to(files[0])
    named = [*files, tmp_path / "soft"] if number else files
    stat = Path.stat

    def numbered_alike(path, **options):
        found = list(stat(path, **options))
        found[ST_INO] = number
        return os.stat_result(found)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", numbered_alike)
        found = work(named, "sequential")

    assert found.total_bytes == sum(path.stat().st_size for path in files)


READS = """
import os, sys
print("ready", flush=True)
os.read(0, 2), os.pread(os.open(sys.argv[1], os.O_RDONLY), 1000, 0)
print("done", flush=True)
os.read(0, 1)
"""


def test_another_process_is_counted_from_when_it_is_named(files):
    with subprocess.Popen(
        [sys.executable, "-c", READS, files[0]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdout.readline()
        with Meter([], 3600) as meter:
            meter.watch(process.pid)
            process.stdin.write(b"go")
            process.stdout.readline()

    [one] = meter.intervals
    assert one.operations_per_second * one.seconds == pytest.approx(2)
    assert one.operation_bytes == 1002 / 2


def test_without_a_device_the_reading_process_counts(file):
    nowhere = Path("/proc/self/status")  # of no device, like a file on a server
    with Meter(block_devices([file, nowhere])) as meter:
        file.read_bytes()

    assert meter.source == "reading process"
    assert meter.bytes_read is None
    read = [one.operations_per_second for one in meter.intervals]
    assert sum(read) > 0


def device(root, name, sectors, *below):
    """Make the folder of a block device, on others if they are named."""
    (root / name / "slaves").mkdir(parents=True, exist_ok=True)
    (root / name / "stat").write_text(f"7 0 {sectors} 0 0 0 0 0 0 0 0\n")
    for name_below in below:
        (root / name / "slaves" / name_below).symlink_to(root / name_below)
    return root / name


@pytest.mark.parametrize(
    ("before", "after", "metered", "sectors"),
    [
        ({"sda": 10}, {"sda": 50}, ["sda"], 40),
        ({"sda": 10, "sdb": 20}, {"sda": 50, "sdb": 21}, ["sda", "sdb"], 41),
        # RAID and multipath, counted by the driver or by its disks alone
        ({"sda": 1, "sdb": 2, "md0": 9}, {"sda": 7, "sdb": 8, "md0": 19}, ["md0"], 10),
        ({"sda": 1, "sdb": 2, "md0": 0}, {"sda": 7, "sdb": 8, "md0": 0}, ["md0"], 12),
    ],
)
def test_meter_sums_what_devices_deliver(tmp_path, before, after, metered, sectors):
    below = {"md0": ("sda", "sdb")}
    for name, count in before.items():
        device(tmp_path, name, count, *below.get(name, ()))
    ended = subprocess.Popen(["true"])
    ended.wait()

    with Meter([tmp_path / name for name in metered], 3600) as meter:
        meter.watch(ended.pid)  # which does not tell what it read
        for name, count in after.items():
            device(tmp_path, name, count)

    assert meter.bytes_read == 512 * sectors
    assert meter.source == f"device{'s' * (len(metered) > 1)} {', '.join(metered)}"


def test_meter_trusts_devices_no_more_than_the_reading_process(tmp_path):
    folder = device(tmp_path, "sda", 0)

    with Meter([folder], 3600) as meter:
        device(tmp_path, "sda", 2**40)  # read by others

    assert meter.bytes_read < 512 * 2**40
