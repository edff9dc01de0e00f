"""Who gets which device when, on one host."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys

import pytest

import nbkit
from nbkit.launch.devices.claims import leases
from nbkit.launch.devices.pool import Lease, QueueTicket, Waiting
from nbkit.launch.devices.pool_folder import allocating, pool_folder
from nbkit.store.processes import ProcessIdentity

TWO = [("GPU-a", "GPU 0"), ("GPU-b", "GPU 1")]
ENTER = f"""
import os
from nbkit.launch.devices.pool import QueueTicket
request = dict(kind='cuda', candidates={TWO}, count=2, oversubscribe=%s)
claim = QueueTicket.enter('killed', request)
claim.take_over()
print(claim.attempt(), flush=True)
"""


@pytest.fixture(autouse=True)
def own_pool(tmp_path, monkeypatch):
    """Keep each test's claims apart."""
    monkeypatch.setenv("NBKIT_POOL", str(tmp_path / "pool"))


@pytest.fixture
def join():
    """Return a way into the queue; everything is given back at the end."""
    made = []

    def enter(run_id, count, *, oversubscribe=False, candidates=TWO, kind="cuda"):
        request = {
            "kind": kind,
            "candidates": candidates,
            "count": count,
            "oversubscribe": oversubscribe,
        }
        made.append(QueueTicket.enter(run_id, request))
        return made[-1]

    yield enter
    for claim in made:
        claim.close()


def user():
    return getpass.getuser()


def granted(claim, look=None):
    lease = claim.attempt(look)
    assert isinstance(lease, Lease), lease
    return lease


def test_claim_order(join):
    first, second, third = join("one", 2), join("two", 2), join("three", 1)

    # Whoever asks first: it is not their turn.
    assert third.attempt() == Waiting(3, 3, f"one of {user()} is next")
    lease = granted(first)

    waiting = second.attempt()
    assert (waiting.position, waiting.length) == (1, 2)
    assert waiting.reason == (
        f"2 GPUs requested, 0 of 2 free: one of {user()} holds GPU 0 and GPU 1"
    )
    assert third.attempt().position == 2
    lease.release()
    first.close()
    assert granted(second).devices == ("GPU-a", "GPU-b")


def test_claim_reason_names(join):
    first, second, third = join("id-1", 2), join("id-2", 2), join("id-3", 2)
    first.call("resnet50 in bf16")
    second.call("a\n" + 100 * "b\x1b[31m")
    granted(first)

    holds = f"resnet50 in bf16 of {user()} holds GPU 0 and GPU 1"
    assert second.attempt().reason.endswith(holds)
    (said,) = third.attempt().reason.splitlines()
    # Other users see it: in one line, and no longer than that.
    assert said.isprintable()
    assert said.endswith(f" of {user()} is next")
    assert len(said) < 100


def test_claim_other_kind(join):
    granted(join("one", 2))
    assert isinstance(join("two", 2).attempt(), Waiting)

    cpus = [("cpu-0", "CPU 0")]
    assert granted(join("three", 1, candidates=cpus, kind="cpu")).devices == ("cpu-0",)
    # A replay may bear the UUIDs of the GPUs of this machine.
    assert granted(join("four", 2, kind="replay")).devices == ("GPU-a", "GPU-b")


def test_claim_other_devices(join):
    granted(join("one", 1, candidates=TWO[:1]))
    assert isinstance(join("two", 1, candidates=TWO[:1]).attempt(), Waiting)

    assert granted(join("three", 1, candidates=TWO[1:])).devices == ("GPU-b",)


def test_claim_behind_takes_unwanted(join):
    three = [*TWO, ("GPU-c", "GPU 2")]
    granted(join("one", 1, candidates=TWO[:1]))
    assert isinstance(join("two", 1, candidates=TWO[:1]).attempt(), Waiting)
    assert isinstance(join("three", 2).attempt(), Waiting)

    # GPU-b is free, and "three" is the first that wants it.
    assert granted(join("four", 1, candidates=three)).devices == ("GPU-c",)
    behind = join("five", 1, candidates=three)
    assert behind.attempt() == Waiting(3, 3, f"two of {user()} is next")
    assert behind.attempt(lambda _: {}) == behind.attempt()


def test_claim_oversubscribe(join):
    granted(join("one", 1))

    lease = granted(join("two", 2, oversubscribe=True))

    assert lease.devices == ("GPU-b", "GPU-a")
    assert lease.shared is True
    assert leases("cuda") == {"GPU-a": ("one", "two"), "GPU-b": ("two",)}
    # Who does not share waits for both; who does is where fewer are.
    assert "0 of 2 free" in join("three", 1).attempt().reason
    assert granted(join("four", 1, oversubscribe=True)).devices == ("GPU-b",)


def test_lease_held_until_last_heir_ends(join):
    claim = join("one", 1, candidates=TWO[:1])
    lease = granted(claim)
    heir = subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        pass_fds=lease.descriptors,
    )
    lease.release()
    claim.close()
    waiting = join("two", 1, candidates=TWO[:1])

    assert "an orphaned process (nbkit.sweep()" in waiting.attempt().reason
    heir.communicate(b"\n")
    assert granted(waiting).devices == ("GPU-a",)


@pytest.mark.parametrize("closed", ["<&- >&-", "<&-", "<&- >&- 2>&-"])
def test_claim_enter_closed_standard_files(closed, pool, tmp_path):
    code = (
        "from nbkit.launch.devices.pool import QueueTicket\n"
        f"request = dict(kind='cpu', candidates={TWO}, count=1, oversubscribe=False)\n"
        "claim = QueueTicket.enter('closed', request)\n"
        f"open({str(tmp_path / 'descriptor')!r}, 'w').write(str(claim.descriptor))\n"
    )
    script = tmp_path / "enter.py"
    script.write_text(code)

    subprocess.run(["sh", "-c", f"{sys.executable} {script} {closed}"], check=True)

    assert int((tmp_path / "descriptor").read_text()) > 2


def test_claim_of_killed_process(join):
    argv = [sys.executable, "-c", ENTER % False + "input()"]
    with subprocess.Popen(argv, stdin=-1, stdout=-1) as holder:
        assert holder.stdout.readline().startswith(b"Lease")
        second = join("two", 1)
        assert "killed of" in second.attempt().reason
        holder.kill()

    assert granted(second).devices == ("GPU-a",)
    assert not list(pool_folder().glob("claims/*killed*"))


def test_claim_while_pool_is_locked(join):
    claim = join("one", 1)

    with allocating(pool_folder()):
        answer = claim.attempt()

    assert answer is None
    granted(claim)


def test_claim_used_by_strangers(join):
    claim = join("one", 1)

    def look(names):
        return {"GPU-a": "process 7 (python of ann)"} if "GPU-a" in names else {}

    assert granted(claim, look).devices == ("GPU-b",)
    busy = join("two", 1, candidates=TWO[:1])
    assert "process 7 (python of ann) holds GPU 0" in busy.attempt(look).reason


def test_claim_reason_device_held(join):
    granted(join("one", 1, candidates=TWO[:1]))
    # A run's file that somebody has removed does not make its device free.
    (pool_folder() / "devices" / "GPU-a").unlink()

    waiting = join("two", 2).attempt(lambda names: {})

    reason = f"2 GPUs requested, 1 of 2 free: one of {user()} holds GPU 0"
    assert waiting.reason == reason


@pytest.mark.parametrize(
    "planted",
    [
        "",
        "{",
        "[]",
        '{"schema": 99}',
        '{"schema": 1, "granted": ["/etc/planted"]}',
        "[" * 200_000,
        '{"schema": 1, "number": 1e999}',
        "{claim}",
    ],
)
def test_claim_planted_file(planted, join, tmp_path):
    claim = join("one", 1)
    (real,) = pool_folder().glob("claims/*")
    evil = json.loads(real.read_text()) | {"granted": [str(tmp_path / "planted")]}
    file = real.with_name("00000000-planted.json")
    file.write_text(planted.replace("{claim}", json.dumps(evil)))

    assert granted(claim).devices == ("GPU-a",)
    assert not file.exists()
    assert not (tmp_path / "planted").exists()


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_claim_planted_folder(make, join):
    claim = join("one", 1)
    make(pool_folder() / "claims" / "x.json")

    assert granted(claim).devices == ("GPU-a",)


def test_claim_beside_leftover(join, tmp_path):
    argv = [sys.executable, "-c", ENTER % True + "os.kill(os.getpid(), 9)"]
    shares = granted(join("shares", 1, candidates=TWO[:1]))
    done = subprocess.run(argv, stdout=subprocess.PIPE)
    assert done.stdout.startswith(b"Lease")

    assert granted(join("next", 1)).devices == ("GPU-b",)
    assert leases("cuda") == {"GPU-a": ("shares",), "GPU-b": ("next",)}
    shares.release()


def test_claim_lives_with_supervisor(join):
    join("one", 1, candidates=TWO[:1])
    behind = join("two", 1, candidates=TWO[:1])
    assert behind.attempt().position == 2

    # As if a child that somebody forked had the file open still.
    file = pool_folder() / "claims" / "00000001-one.json"
    gone = ProcessIdentity.of().to_dict() | {"start_ticks": 1}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"process": gone}))

    assert granted(behind).devices == ("GPU-a",)


def test_pool_folder_link(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("NBKIT_POOL", str(tmp_path / "link"))

    with pytest.raises(nbkit.NbkitError, match=r"cannot be used .*Set NBKIT_POOL"):
        pool_folder()
