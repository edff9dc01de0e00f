"""Other users of a host who want its GPUs, or want nobody to have them."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nbkit.errors import DeviceError
from nbkit.launch.devices.claims import leases
from nbkit.launch.devices.pool import Lease, QueueTicket
from nbkit.launch.devices.pool_folder import allocating, pool_folder
from tests.hostile.strangers import STRANGER, as_stranger, needs_root

ONE = [("GPU-a", "GPU 0")]
REQUEST = {"kind": "cuda", "candidates": ONE, "count": 1, "oversubscribe": False}


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch) -> Path:
    """Return where each test's own pool will be."""
    monkeypatch.setenv("NBKIT_POOL", str(tmp_path / "pool"))
    return tmp_path / "pool"


@contextmanager
def planted(name: str, **values: object) -> Iterator[None]:
    """Have a claim in the pool that is locked, as a living one is."""
    claim = {
        "schema": 1,
        "number": 1,
        "run_id": "planted",
        **REQUEST,
        "since": "",
        "process": None,
        "granted": None,
        **values,
    }
    path = pool_folder() / "claims" / name
    path.write_text(json.dumps(claim))
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize("number", [-5, 0, True, "1", 1.0, 10**300, None])
def test_a_claim_with_an_absurd_number_blocks_nobody(number):
    name = f"{number:08d}" if isinstance(number, int) else "00000001"
    with planted(f"{name[:20]}-planted.json", number=number):
        claim = QueueTicket.enter("mine", REQUEST)
        try:
            lease = claim.attempt()
            assert isinstance(lease, Lease), lease
            lease.release()
        finally:
            claim.close()


def test_a_claim_that_is_not_what_its_file_is_called_blocks_nobody():
    with planted("00000009-planted.json", number=1), planted("other.json", number=2):
        claim = QueueTicket.enter("mine", REQUEST)
        try:
            assert (pool_folder() / "claims" / "00000001-mine.json").exists()
            assert leases("cuda") == {}
            lease = claim.attempt()
            assert isinstance(lease, Lease), lease
            lease.release()
        finally:
            claim.close()


def test_allocating_while_the_pool_is_locked(own):
    with (
        allocating(pool_folder()),
        pytest.raises(DeviceError, match=r"pool\.lock has been locked for 0 s"),
        allocating(own, 0.0),
    ):
        pass


def test_a_pool_is_made_for_all_users_whatever_the_umask(own):
    before = os.umask(0o077)
    try:
        assert pool_folder() == own
    finally:
        os.umask(before)

    for folder in (own, own / "devices", own / "claims"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert [path.name for path in own.parent.iterdir()] == ["pool"]


@needs_root
def test_a_pool_that_a_stranger_made_right_serves_everybody(own):
    own.parent.chmod(0o777)
    with as_stranger(own.parent):
        pool_folder()

    assert pool_folder().stat().st_uid == STRANGER


@needs_root
def test_an_empty_folder_for_a_pool_is_refused_with_what_makes_it_one(own):
    own.parent.chmod(0o777)
    own.mkdir()
    own.chmod(0o1777)
    with as_stranger(own.parent), pytest.raises(DeviceError) as caught:
        pool_folder()
    (_, command, _) = str(caught.value).split("`")

    subprocess.run(shlex.split(command), check=True)

    with as_stranger(own.parent):
        assert pool_folder() == own


@needs_root
@pytest.mark.parametrize("which", ["", "devices", "claims"])
def test_a_strangers_pool_in_which_files_can_be_taken_away_is_refused(own, which):
    pool_folder()
    for folder in (own, own / "devices", own / "claims"):
        os.chown(folder, STRANGER, STRANGER)
    (own / which).chmod(0o777)

    with pytest.raises(DeviceError) as caught:
        pool_folder()

    said = str(caught.value)
    assert f"{own / which} belongs to {STRANGER} and has mode 777" in said
    assert "require mode 1777 and the same owner" in said
    assert f"root to remove {own}, or set" in said
