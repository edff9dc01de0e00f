"""Reading speeds: what is read, in which state, by which engine, with nothing left."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

import nbkit
from nbkit.errors import ConfigError, PageCacheError, StoreError
from nbkit.readspeed import (
    PageCacheState,
    ReadSpeed,
    drop_page_cache,
    measure,
    reader,
    resident_share,
)
from nbkit.readspeed.work import ReadWork
from tests.waiting import wait_until

MEGABYTE = 2**20


@pytest.mark.parametrize("engine", ["python", "fio"])
@pytest.mark.parametrize("pattern", ["sequential", "random"])
def test_a_folder_gets_a_test_file_which_is_read_cold_and_removed(
    tmp_path, engine, pattern
):
    found = measure(
        tmp_path,
        pattern=pattern,
        engine=engine,
        repeats=2,
        total_bytes=16 * MEGABYTE,
        operation_bytes=128 * 1024,
    )

    assert list(tmp_path.iterdir()) == []
    assert found.total_bytes == 16 * MEGABYTE
    assert found.num_operations == 128
    assert found.threads == (1 if pattern == "sequential" else 16)
    assert found.engine.startswith("python" if engine == "python" else "fio-")
    assert found.engine_reason == "requested"
    assert "test file" in found.what
    assert len(found.readings) == found.bytes_per_second.n == 2
    assert found.bytes_per_second.ci_low is None
    for one in found.readings:
        assert one.bytes_per_second * one.seconds == pytest.approx(16 * MEGABYTE)
        assert one.page_cache.state == "cold"
        # Proven needs a device that counts.
        assert one.page_cache.proven == (one.device_bytes is not None)
        assert one.device_bytes is None or one.device_bytes >= 16 * MEGABYTE
    assert found.storage["file_system"]
    assert found.page_cache.name == "cold"


def _truncated(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(8 * MEGABYTE)


def _reserved(path: Path) -> None:
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 8 * MEGABYTE)


@pytest.mark.parametrize("made", [_truncated, _reserved])
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("pattern", ["sequential", "random"])
def test_measure_what_no_device_delivered(tmp_path, made, direct, pattern):
    made(tmp_path / "f")

    found = measure(
        tmp_path / "f", direct=direct, pattern=pattern, repeats=1, engine="python"
    )

    if found.readings[0].device_bytes is None:
        pytest.skip("no device counts here")
    assert (found.page_cache.state, found.page_cache.proven) == ("not proven", False)
    assert found.page_cache.reason.endswith(" came from the device")


@pytest.mark.parametrize(
    ("state", "proven", "device_bytes", "name"),
    [
        ("cold", True, 2**28, "cold, proven (empty)"),
        ("cold", True, 2**27, "cold, proven (empty; 50% of the bytes came from the "),
        ("cold", True, 2**27 - 1, "not proven (128 MiB of 256 MiB came from the "),
        ("cold", True, 4096, "not proven (4 KiB of 256 MiB came from the device)"),
        ("cold", True, None, "cold (empty; no device counter covers these reads)"),
        ("not provable", False, 0, "not proven (0 B of 256 MiB came from the device)"),
        ("client cold", False, None, "client cold, server unknown (empty)"),
        ("warm", False, 0, "warm (empty)"),
    ],
)
def test_after_reading_the_bytes_belong_to_the_proof(state, proven, device_bytes, name):
    known = PageCacheState(state, proven, "empty", 1.0 if state == "warm" else 0.0)

    assert str(known.after_reading(device_bytes, 2**28)).startswith(name)


def test_one_reading_that_is_not_proven_counts_for_all(tmp_path):
    found = measure(tmp_path, repeats=2, total_bytes=MEGABYTE, engine="python")
    first, second = found.readings
    doubted = replace(
        second, page_cache=PageCacheState("not proven", False, "why", 0.0)
    )

    both = replace(found, readings=(replace(first), doubted))
    assert both.page_cache.state == "not proven"


@pytest.mark.parametrize(
    ("changes", "is_said"),
    [
        ({}, True),
        ({"engine": "fio-3.33"}, False),
        ({"cache": "warm"}, False),
        ({"threads": 1}, False),
    ],
)
def test_fio_is_proposed_where_one_process_may_be_the_limit(file, changes, is_said):
    found = measure(file, engine="python", pattern="random", repeats=1, threads=2)

    for rate, is_fast in ((70_000.0, True), (40_000.0, False)):
        reading = replace(found.readings[0], operations_per_second=rate)
        speed = replace(found, readings=(reading,), **changes)

        assert ("fio is faster" in str(speed)) is (is_said and is_fast)


def test_a_record_survives_json(tmp_path):
    found = measure(tmp_path, repeats=1, total_bytes=MEGABYTE, engine="python")

    assert ReadSpeed.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_a_file_is_read_and_nothing_is_written(file):
    before = hashlib.sha256(file.read_bytes()), file.stat().st_mtime_ns

    found = measure(file, repeats=1, engine="python", operation_bytes=MEGABYTE)

    assert (found.what, found.num_files) == ("1 file", 1)
    assert found.total_bytes == 8 * MEGABYTE
    after = hashlib.sha256(file.read_bytes()), file.stat().st_mtime_ns
    assert (before[0].digest(), before[1]) == (after[0].digest(), after[1])
    assert list(file.parent.iterdir()) == [file]


def test_many_files_are_read_whole_by_the_python_reader(tmp_path):
    files = [tmp_path / f"{number}.jpg" for number in range(40)]
    for number, path in enumerate(files):
        path.write_bytes(bytes(1000 + number))

    found = measure(
        tmp_path,
        files=files,
        pattern="random",
        operation_bytes=2000,
        threads=4,
        repeats=1,
    )

    assert found.num_operations == 40
    assert found.total_bytes == sum(1000 + number for number in range(40))
    assert found.num_files == 40
    assert found.mean_operation_bytes == 1000 + 39 / 2
    assert (found.engine, found.engine_reason) == ("python", "many-files")
    assert sorted(tmp_path.iterdir()) == sorted(files)


def test_warm_is_what_was_read_just_before(file):
    found = measure(file, cache="warm", repeats=2, engine="python")

    assert found.page_cache.state == "warm"
    assert found.page_cache.resident_share == 1.0
    assert "warm (read once before" in str(found)


def test_only_what_is_timed_is_warmed(file):
    drop_page_cache(file)

    found = measure(file, cache="warm", repeats=1, total_bytes=MEGABYTE, threads=1)

    assert found.page_cache.name == "warm"
    share = resident_share(file)
    assert share is not None
    assert share < 1


@pytest.mark.parametrize("engine", ["python", "fio"])
def test_a_warm_file_that_is_declared_cold_is_refused(file, held, engine):
    with held(file), pytest.raises(PageCacheError, match="is in the page cache"):
        measure(file, engine=engine)


def test_direct_reads_leave_nothing_in_memory(file):
    found = measure(file, direct=True, engine="python", repeats=1)

    assert found.direct
    assert resident_share(file) == 0.0


@pytest.mark.parametrize("engine", ["python", "fio"])
def test_a_name_that_is_no_utf8_is_read(file, engine):
    odd = file.rename(file.with_name(os.fsdecode(b"caf\xe9:1.bin")))

    found = measure(odd, engine=engine, repeats=1, operation_bytes=4096)

    assert found.total_bytes == 8 * MEGABYTE


def test_a_test_file_that_is_cut_off_is_an_error_and_removed(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3 * MEGABYTE, hard))
    try:
        with pytest.raises(StoreError):
            measure(tmp_path, engine="python", repeats=1, total_bytes=4 * MEGABYTE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("engine", ["python", "fio"])
def test_an_interrupt_leaves_neither_file_nor_process(tmp_path, engine):
    program = (
        "import sys, nbkit\n"
        "say = lambda number: print(number, flush=True)\n"
        "nbkit.readspeed.measure(sys.argv[1], engine=sys.argv[2], repeats=10**6,\n"
        "    total_bytes=2**22, on_repeat=say)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path), engine],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == "0\n"
        assert len(list(tmp_path.iterdir())) == 1
        fio = None
        if engine == "fio":
            parent = psutil.Process(process.pid)
            fio = wait_until(lambda: stopped_fio(parent), "fio reads")
            # Python loses a child if it is interrupted while it starts it.
            waits = Path(f"/proc/{parent.pid}/wchan")
            wait_until(lambda: "poll" in waits.read_text(), "its answer is awaited")
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert "KeyboardInterrupt" in process.stderr.read()

    assert list(tmp_path.iterdir()) == []
    assert fio is None or not fio.is_running()


def stopped_fio(parent):
    """Return the fio that reads now, which goes no further by itself; None yet."""
    for child in parent.children():
        try:
            child.suspend()
            has_ended = child.status() == psutil.STATUS_ZOMBIE
            if child.name() == "fio" and not has_ended:
                return child
            child.resume()  # it is about to become one
        except psutil.NoSuchProcess:
            continue
    return None


def test_too_little_space_is_said_before_anything_is_written(tmp_path):
    with pytest.raises(ConfigError, match=r"total_bytes=.* has room"):
        measure(tmp_path, total_bytes=2**60)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"pattern": "zigzag"}, "'zigzag' is unknown. Use one of sequential, random"),
        ({"cache": "lukewarm"}, "'lukewarm' is unknown. Use one of cold, warm"),
        ({"repeats": 0}, "repeats=0 is below 1"),
        ({"threads": -1}, "threads=-1 is below 1"),
        ({"threads": 0}, "threads=0 is below 1"),
        ({"operation_bytes": 0}, "operation_bytes=0 is below 1"),
        ({"direct": True, "operation_bytes": 1000}, "not a multiple of 4096"),
        ({"direct": True, "cache": "warm"}, "bypasses the page cache"),
        ({"files": []}, r"files=\[\] is empty"),
        (
            {"operation_bytes": 2**30},
            r"8,388,608 bytes, but .*\(1 thread\).* larger files",
        ),
        (
            {"total_bytes": 9, "threads": 2},
            r"total_bytes=9, but .*\(2 threads\) requires 1,048,",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(file, arguments, said):
    with pytest.raises(ConfigError, match=said):
        measure(file, **arguments)


@pytest.mark.parametrize(
    ("path", "arguments", "message"),
    [
        ("", {"engine": "fio", "threads": 1}, "engine='fio' supports 1 file, not 2"),
        ("", {"direct": True}, "supports 1 file, not 2"),
        ("nowhere", {}, "nowhere is not a folder"),
    ],
)
def test_measure_refuses_folders(file, path, arguments, message):
    files = None if path else [file, file]
    with pytest.raises(ConfigError, match=message):
        measure(file.parent / path, files=files, **arguments)


@pytest.mark.parametrize(
    ("operation_bytes", "offset", "length", "message"),
    [
        (MEGABYTE, 8 * MEGABYTE, MEGABYTE, "truncated during"),
        (9 * MEGABYTE, 8 * MEGABYTE, 9 * MEGABYTE, "truncated during"),
        (2**60, 0, 1, "Cannot allocate memory"),
    ],
)
def test_reader_error_ends_every_thread(file, operation_bytes, offset, length, message):
    operations = ((0, 0, 1),), ((0, offset, length),)
    work = ReadWork((file,), "sequential", operation_bytes, 2, False, operations)

    with pytest.raises(OSError, match=message):
        reader.read(work, 0)

    assert not [thread for thread in threading.enumerate() if "(run)" in thread.name]


def test_the_room_is_reached_through_the_facade_without_torch(tmp_path):
    assert nbkit.readspeed.measure is measure
    assert "readspeed" in dir(nbkit)
    with pytest.raises(AttributeError, match="no attribute 'mesure'"):
        nbkit.readspeed.mesure(tmp_path)


def test_measure_engine_by_size(monkeypatch, file):
    few = measure(file, repeats=1)
    monkeypatch.setattr("nbkit.readspeed.measuring.FIO_FROM_BYTES", 8 * MEGABYTE)
    many = measure(file, repeats=1, cache="warm")

    assert few.engine == "python"
    assert few.engine_reason == "small-file"
    assert many.engine.startswith("fio-")
    assert many.engine_reason == "installed"
