"""Cold is proven, never assumed."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nbkit.errors import PageCacheError
from nbkit.reading import open_regular
from nbkit.readspeed import cache, check_cold, drop_page_cache, places, resident_share
from nbkit.readspeed.places import storage_kind, unproven_because
from nbkit.telemetry.storage import read_mounts


def test_a_file_that_was_just_written_is_in_memory_and_can_be_proven_gone(file):
    assert resident_share(file) == 1.0

    known = drop_page_cache(file)

    assert (known.state, known.proven, known.resident_share) == ("cold", True, 0.0)
    assert str(known).startswith("cold, proven")
    assert resident_share(file) == 0.0


def test_what_was_read_in_part_is_in_memory_in_part(file):
    drop_page_cache(file)
    descriptor = os.open(file, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no readahead
    os.pread(descriptor, 2 * 2**20, 4 * 2**20)
    os.close(descriptor)

    share = resident_share(file)

    assert share is not None
    assert 0 < share < 1


def test_a_forgotten_page_cache_is_caught_and_left_as_it_is(file):
    with pytest.raises(
        PageCacheError, match=r"100\.0% is in the page cache"
    ) as refused:
        check_cold(file)

    assert "use cache='warm'" in str(refused.value)
    assert resident_share(file) == 1.0


def test_pages_that_another_process_has_mapped_stay_and_are_refused(file, held):
    with held(file), pytest.raises(PageCacheError, match="maps or locks"):
        drop_page_cache(file)

    assert drop_page_cache(file).proven


def test_one_warm_file_among_many_is_enough(tmp_path, held):
    files = [tmp_path / f"{number}.bin" for number in range(600)]
    for path in files:
        path.write_bytes(b"x" * 10_000)
    assert drop_page_cache(files).proven

    with (
        held(files[599]),
        pytest.raises(PageCacheError, match=r"0\.bin and 599 more files: 0\.2%"),
    ):
        drop_page_cache(files)


def test_warming_up_says_how_much_stayed(file):
    drop_page_cache(file)

    known = cache.fill_page_cache(file)

    assert (known.state, known.proven, known.resident_share) == ("warm", False, 1.0)
    assert known.name == "warm"


def test_what_stayed_in_part_is_called_so_and_what_is_not_read_does_not_count(file):
    drop_page_cache(file)
    descriptor = os.open(file, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no readahead
    os.pread(descriptor, 2 * 2**20, 0)
    os.close(descriptor)

    assert cache.check_warm(file).name == "25% warm"
    assert cache.check_warm(file, {file: 2 * 2**20}).name == "warm"


@pytest.mark.parametrize(
    ("share", "said"),
    [(1e-5, "less than 0.1%"), (0.0009, "less than 0.1%"), (0.001, "0.1%")],
)
def test_a_page_in_memory_is_not_nothing(file, monkeypatch, share, said):
    monkeypatch.setattr(cache, "resident_share", lambda *_: share)

    with pytest.raises(PageCacheError, match=f"{said} is in the page cache"):
        cache.check_cold(file)
    known = cache.check_warm(file)
    assert known.reason.endswith(f"; {said} in memory")
    assert known.name == "less than 1% warm"


def test_an_empty_file_is_cold(tmp_path):
    (tmp_path / "empty").touch()

    assert drop_page_cache(tmp_path / "empty").proven


@contextmanager
def _in_memory() -> Iterator[Path]:
    """Give a file in memory."""
    folder = next(
        mount.mount_point
        for mount in read_mounts()
        if mount.file_system == "tmpfs" and os.access(mount.mount_point, os.W_OK)
    )
    with tempfile.NamedTemporaryFile(dir=folder) as made:
        made.write(b"x" * 10_000)
        yield Path(made.name)


def test_memory_is_never_cold():
    with (
        _in_memory() as path,
        pytest.raises(PageCacheError, match="tmpfs, which is in memory and never cold"),
    ):
        drop_page_cache(path)


def test_who_may_not_write_a_file_is_not_told_and_nothing_is_guessed():
    with _ordinary_user():
        known = drop_page_cache(Path("/etc/passwd"))

    assert (known.state, known.proven, known.resident_share) == (
        "not provable",
        False,
        None,
    )
    assert "visible only to its owner and to users" in str(known)


def test_root_that_is_not_told_is_told_nothing_wrong(file):
    # In a user namespace, files of users outside it are nobody's; the kernel then
    # reports all pages as in memory.
    theirs = Path("/etc/passwd")
    if os.geteuid() == 0:
        os.chown(file, 1234, 1234)
        theirs = file
    program = (
        "import os, sys, pathlib; from nbkit.readspeed import resident_share\n"
        "print(os.geteuid(), resident_share(pathlib.Path(sys.argv[1])))"
    )
    command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", program]

    done = subprocess.run([*command, theirs], capture_output=True, text=True)

    if "unshare failed" in done.stderr:
        pytest.skip("this machine has no user namespaces for this user")
    assert done.stdout == "0 None\n"


def test_a_file_system_without_mmap_is_not_told():
    assert resident_share(Path("/sys/devices/system/cpu/online")) is None


@contextmanager
def _ordinary_user() -> Iterator[None]:
    """Be somebody to whom a system file does not belong."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.parametrize(
    ("file_system", "said"),
    [
        ("nfs4", "client cold, server unknown (nfs4"),
        ("fuse.sshfs", "client cold, server unknown (fuse.sshfs"),
        ("zfs", "not provable (zfs has a separate cache"),
        ("overlay", "not provable (overlay is not known to read"),
        (None, "not provable (this file system is not known to read"),
    ],
)
def test_what_lies_beyond_the_page_cache_is_not_claimed(
    file, monkeypatch, file_system, said
):
    # A server of one's own would need root; the name of the file system decides.
    named = {"file_system": file_system}
    monkeypatch.setattr(cache, "describe_storage", lambda path: named)

    known = drop_page_cache(file)

    assert str(known).startswith(said)
    assert not known.proven


@pytest.mark.parametrize(
    ("file_system", "kind"),
    [
        ("ext4", "local"),
        ("xfs", "local"),
        (None, "unknown"),
        ("overlay", "unknown"),
        ("lustre", "network"),
        ("fuse", "network"),
        ("fuseblk", "unknown"),
        ("ramfs", "memory"),
        ("zfs", "own cache"),
    ],
)
def test_kinds_of_file_systems(file_system, kind):
    assert storage_kind(file_system) == kind


@pytest.mark.parametrize("name", ["loop7", "loop7p1", "nbd0", "rbd1p2", "zram0"])
def test_a_device_that_is_no_disk_proves_nothing(file, tmp_path, monkeypatch, name):
    # Root alone can have a loop device; the names in /sys decide.
    volume, loop = tmp_path / "dm-0", tmp_path / name
    (volume / "slaves").mkdir(parents=True)
    loop.mkdir()
    (volume / "slaves" / name).symlink_to(loop)
    ext4 = {"file_system": "ext4"}
    assert unproven_because(ext4, file) is None

    monkeypatch.setattr(places, "block_device", lambda path: volume)

    assert str(unproven_because(ext4, file)).startswith(f"{name} is a virtual device")


def test_every_file_system_of_the_files_is_looked_at(file):
    with _in_memory() as other, pytest.raises(PageCacheError, match="never cold"):
        drop_page_cache([file, other])


def test_what_cannot_be_written_has_nothing_to_write_back(file, monkeypatch):
    """As of squashfs, whose files have no fsync, where the kernel tells nothing."""
    drop_page_cache(file)

    def fsync(_):
        raise OSError(errno.EINVAL, "Invalid argument")

    def fcntl_of_another_user(descriptor, command, flags=0):
        if flags:
            raise PermissionError
        return 0

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    monkeypatch.setattr(fcntl, "fcntl", fcntl_of_another_user)

    assert drop_page_cache(file).state == "not provable"


def test_an_interrupt_ends_the_reading_of_large_files(tmp_path, monkeypatch):
    files = [tmp_path / name for name in "abc"]
    for path in files:
        with path.open("wb") as file:
            file.truncate(2**40)
    begun = threading.Barrier(3)

    def look(path):
        begun.wait(60)
        if path is files[0]:
            raise KeyboardInterrupt
        return open_regular(path)

    monkeypatch.setattr(cache, "open_regular", look)

    with pytest.raises(KeyboardInterrupt):
        cache.fill_page_cache(files)
