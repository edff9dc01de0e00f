"""Who gets which device when, on one host."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import subprocess
import sys

import pynvml
import pytest

import nbkit
from nbkit.launch.claims import leases
from nbkit.launch.devices import request_devices
from nbkit.launch.gpu_pool import Claim, Lease, Waiting
from nbkit.launch.pool_folder import allocating, pool_folder
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import RunState
from tests.notebooks.kernel import running_kernel
from tests.telemetry.conftest import FAKE_NVML
from tests.telemetry.fake_nvml.fake_driver import FakeDriver, FakeGpu
from tests.waiting import wait_until

TWO = [("GPU-a", "GPU 0"), ("GPU-b", "GPU 1")]


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
        made.append(Claim.enter(run_id, request))
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


def test_claims_are_served_in_the_order_in_which_they_came(join):
    first, second, third = join("one", 2), join("two", 2), join("three", 1)

    # Whoever asks first: it is not their turn.
    assert third.attempt() == Waiting(3, 3, f"one of {user()} is next")
    lease = granted(first)

    waiting = second.attempt()
    assert (waiting.position, waiting.length) == (1, 2)
    assert waiting.reason == (
        f"2 GPUs wanted, 0 of 2 free: one of {user()} holds GPU 0 and GPU 1"
    )
    assert third.attempt().position == 2
    lease.release()
    first.close()
    assert granted(second).devices == ("GPU-a", "GPU-b")


def test_devices_of_another_kind_are_another_queue(join):
    granted(join("one", 2))
    assert isinstance(join("two", 2).attempt(), Waiting)

    cpus = [("cpu-0", "CPU 0")]
    assert granted(join("three", 1, candidates=cpus, kind="cpu")).devices == ("cpu-0",)
    # A replay may bear the UUIDs of the GPUs of this machine.
    assert granted(join("four", 2, kind="replay")).devices == ("GPU-a", "GPU-b")


def test_whoever_wants_other_devices_does_not_wait(join):
    granted(join("one", 1, candidates=TWO[:1]))
    assert isinstance(join("two", 1, candidates=TWO[:1]).attempt(), Waiting)

    assert granted(join("three", 1, candidates=TWO[1:])).devices == ("GPU-b",)


def test_who_shares_waits_for_nobody_and_takes_free_devices_first(join):
    granted(join("one", 1))

    lease = granted(join("two", 2, oversubscribe=True))

    assert lease.devices == ("GPU-b", "GPU-a")
    assert lease.shared is True
    assert leases("cuda") == {"GPU-a": ("one", "two"), "GPU-b": ("two",)}
    # Who does not share waits for both.
    assert "0 of 2 free" in join("three", 1).attempt().reason


def test_a_device_is_held_until_the_last_heir_ends(join):
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

    assert "a left-over process (nbkit.sweep()" in waiting.attempt().reason
    heir.communicate(b"\n")
    assert granted(waiting).devices == ("GPU-a",)


def test_the_place_of_a_killed_process_is_free(join):
    code = (
        "from nbkit.launch.gpu_pool import Claim\n"
        f"request = dict(kind='cuda', candidates={TWO}, count=2, oversubscribe=False)\n"
        "claim = Claim.enter('killed', request)\n"
        "print(claim.attempt(), flush=True)\n"
        "input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline().startswith(b"Lease")
        second = join("two", 1)
        assert "killed of" in second.attempt().reason
        holder.kill()

    assert granted(second).devices == ("GPU-a",)
    assert not list(pool_folder().glob("claims/*killed*"))


def test_nobody_waits_long_for_the_pool_itself(join):
    claim = join("one", 1)

    with allocating(pool_folder()):
        answer = claim.attempt()

    assert answer is None
    granted(claim)


def test_what_strangers_use_is_not_given_away(join):
    claim = join("one", 1)

    def look(names):
        return {"GPU-a": "process 7 (python of ann)"} if "GPU-a" in names else {}

    assert granted(claim, look).devices == ("GPU-b",)
    busy = join("two", 1, candidates=TWO[:1])
    assert "process 7 (python of ann) holds GPU 0" in busy.attempt(look).reason


def test_a_device_whose_file_was_removed_is_held_still(join):
    granted(join("one", 1, candidates=TWO[:1]))
    (pool_folder() / "devices" / "GPU-a").unlink()

    assert "one of" in join("two", 1, candidates=TWO[:1]).attempt().reason


@pytest.mark.parametrize(
    "planted",
    [
        "",
        "{",
        "[]",
        '{"schema": 99}',
        '{"schema": 1, "granted": ["/etc/planted"]}',
        "{claim}",
    ],
)
def test_what_others_wrote_into_the_pool_is_not_trusted(planted, join, tmp_path):
    claim = join("one", 1)
    (real,) = pool_folder().glob("claims/*")
    evil = json.loads(real.read_text()) | {"granted": [str(tmp_path / "planted")]}
    file = real.with_name("00000000-planted.json")
    file.write_text(planted.replace("{claim}", json.dumps(evil)))

    assert granted(claim).devices == ("GPU-a",)
    assert not file.exists()
    assert not (tmp_path / "planted").exists()


def test_what_can_never_be_served_is_refused(join):
    with pytest.raises(nbkit.NbkitError, match="3 devices of 2 are wanted"):
        join("one", 3)


def test_a_pool_that_is_a_link_is_refused(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("NBKIT_POOL", str(tmp_path / "link"))

    with pytest.raises(nbkit.NbkitError, match=r"cannot be used .*set NBKIT_POOL"):
        pool_folder()


# Whole runs


def test_a_gpu_that_a_stranger_uses_is_waited_for(small, monkeypatch):
    # Five processes of 1 GiB each on 80 GiB: more than bare contexts.
    pids = (os.getppid(), *(2**22 + n for n in range(4)))
    FakeDriver([FakeGpu("GPU-a", pids=pids)]).install(pynvml, monkeypatch.setattr)
    described = {"gpus": [{"uuid": "GPU-a", "pids": pids}]}
    monkeypatch.setenv("FAKE_NVML", json.dumps(described))
    monkeypatch.setenv("PYTHONPATH", str(FAKE_NVML), prepend=os.pathsep)

    run = nbkit.launch(small(device="cuda", gpus=1, oversubscribe=False))

    wait_until(lambda: run.state is RunState.QUEUED, "the run to wait")
    queue = run.record["queue"]
    assert (queue["position"], queue["length"]) == (1, 1)
    assert f"process {os.getppid()} (" in queue["reason"]
    assert "and 4 more holds GPU 0" in queue["reason"]
    run.stop()
    assert run.state is RunState.STOPPED
    assert run.cause["message"] == "stopped by user, before its ranks were started"
    assert run.record["queue"] is None
    assert leases("cuda") == {}


@pytest.fixture
def all_cpus_are_held(join, small):
    config = small(gpus=1, oversubscribe=False)
    wanted = request_devices(config)
    lease = granted(
        join("holder", len(wanted.candidates), candidates=wanted.candidates, kind="cpu")
    )
    yield config
    lease.release()


def test_a_waiting_run_ends_with_its_owner(all_cpus_are_held):
    code = (
        "import nbkit, sys\n"
        "config = nbkit.ExperimentConfig.from_json(sys.argv[1])\n"
        "print(nbkit.launch(config, on_owner_exit='stop').run_id, flush=True)\n"
        "input()"
    )
    argv = [sys.executable, "-c", code, all_cpus_are_held.to_json()]
    with subprocess.Popen(argv, stdin=-1, stdout=-1, text=True) as owner:
        run = nbkit.attach(owner.stdout.readline().strip())
        wait_until(lambda: run.state is RunState.QUEUED, "the run to wait")
        owner.communicate("\n")

    run.wait(raise_on_failure=False)
    assert run.state is RunState.STOPPED
    assert run.cause["by"] == "owner exit"


def test_a_waiting_run_whose_supervisor_is_killed_is_lost_and_out_of_the_queue(
    all_cpus_are_held, join
):
    run = nbkit.launch(all_cpus_are_held)
    wait_until(lambda: run.state is RunState.QUEUED, "the run to wait")
    behind = join("behind", 1, candidates=[("cpu-0", "CPU 0")], kind="cpu")
    assert behind.attempt().position == 2

    os.kill(run.record["supervisor"]["pid"], signal.SIGKILL)

    wait_until(lambda: run.state is RunState.LOST, "its end")
    assert behind.attempt().position == 1


def test_a_waiting_run_whose_folder_is_removed_leaves_the_queue(all_cpus_are_held):
    run = nbkit.launch(all_cpus_are_held)
    wait_until(lambda: run.state is RunState.QUEUED, "the run to wait")
    supervisor = ProcessIdentity.from_dict(run.submission["supervisor"])

    shutil.rmtree(run.paths.root)

    wait_until(lambda: not supervisor.is_alive(), "its supervisor to end")


def test_a_launch_that_fails_leaves_no_place_in_the_queue(small, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("nbkit.launch.local.subprocess.run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        nbkit.launch(small())

    assert not list(pool_folder().glob("claims/*"))


def test_a_resumed_run_that_is_stopped_in_the_queue_keeps_what_it_knew(small, join):
    config = small(
        model="slow", gpus=1, steps=10_000, oversubscribe=False, warmup_steps=1
    )
    run = nbkit.launch(config)
    wait_until(run.metrics, "a first step", 120)
    run.stop()
    before = run.record
    cpus = request_devices(config).candidates
    lease = granted(join("holder", len(cpus), candidates=cpus, kind="cpu"))
    run.resume()
    wait_until(lambda: run.state is RunState.QUEUED, "the run to wait")
    os.kill(run.record["supervisor"]["pid"], signal.SIGTERM)

    run.wait(raise_on_failure=False)
    lease.release()

    after = run.record
    assert after["state"] == "stopped"
    assert "SIGTERM" in after["cause"]["by"]
    for part in ("code", "environment", "machine", "worker"):
        assert after[part] == before[part]
        assert after[part] is not None
    assert after["launch"]["torchrun"] == before["launch"]["torchrun"]
    assert [one["number"] for one in after["attempts"]] == [0, 1]


def launch_another():
    nbkit.launch(nbkit.context, gpus=2, device="cpu", oversubscribe=False)


def test_a_run_that_would_wait_for_itself_is_refused():
    run = nbkit.launch(launch_another, device="cpu").wait(raise_on_failure=False)

    assert "it would wait for itself" in run.cause["message"]


LAUNCH = (
    "import nbkit\n"
    "run = nbkit.launch(model='slow', device='replay', gpus=2, devices=(0, 1), "
    "image_size=32, batch_size_per_gpu=4, steps=100_000, tensorboard=False)"
)


def test_two_kernels_that_want_the_same_gpus_run_one_after_the_other(monkeypatch):
    monkeypatch.setenv("NBKIT_GPU_SOURCE", "replay:eight-gpus")
    with running_kernel() as one, running_kernel() as other:
        first = nbkit.attach(one.execute(LAUNCH, "run.run_id"))
        wait_until(first.metrics, "a first step", 120)
        second = nbkit.attach(other.execute(LAUNCH, "run.run_id"))
        wait_until(lambda: second.state is RunState.QUEUED, "the second to wait", 120)

        assert first.run_id in second.record["queue"]["reason"]
        assert "2 replayed GPUs wanted, 0 of 2 free" in second.record["queue"]["reason"]
        held = first.record["launch"]
        assert held["device_type"] == "cpu"
        assert held["replayed"] is True
        assert list(leases("replay")) == held["devices"]

        os.kill(first.record["supervisor"]["pid"], signal.SIGKILL)

        wait_until(second.metrics, "the second to run", 120)
        assert first.state is RunState.LOST
        assert second.record["queue"] is None
        assert second.record["launch"]["devices"] == held["devices"]
        second.stop()
    assert leases("replay") == {}
