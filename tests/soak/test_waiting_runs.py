"""Runs that wait for devices, hold them, or are seen from another container."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import nbkit
from nbkit.errors import ConfigError, RunError
from nbkit.launch.devices.choice import request_devices
from nbkit.launch.devices.claims import leases
from nbkit.launch.supervision.leftovers import processes_of_run
from nbkit.store.liveness import STALE_SECONDS
from nbkit.store.record import RunState
from tests.cli.conftest import nbkit_command
from tests.cli.test_runs import written
from tests.hostile.strangers import needs_root
from tests.launch.conftest import plugins, small, store
from tests.launch.test_gpu_pool import granted, join, own_pool
from tests.launch.test_stacks import held_by
from tests.notebooks.kernel import running_kernel
from tests.waiting import patient, wait_until

__all__ = ["join", "nbkit_command", "own_pool", "plugins", "small", "store", "written"]


def forget(run: nbkit.Run) -> None:
    """Let all signs of life of a run be old."""
    files = [run.paths.record, run.paths.submission, run.paths.metrics]
    for path in [*files, *run.paths.system_folder.glob("*.jsonl")]:
        before = path.stat().st_mtime - 2 * STALE_SECONDS
        os.utime(path, (before, before))


def test_waiting_run_resumed_and_stopped(small, join):
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
    assert run.record["launch"]["devices"] == []
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


LAUNCH = (
    "import nbkit\n"
    "run = nbkit.launch(model='slow', device='replay', devices=(7,), name='slow one', "
    "image_size=32, batch_size_per_gpu=4, steps=100_000, tensorboard=False)"
)


def test_waiting_run_of_two_kernels(monkeypatch):
    monkeypatch.setenv("NBKIT_GPU_SOURCE", "replay:eight-gpus")
    with running_kernel() as one, running_kernel() as other:
        first = nbkit.attach(one.execute(LAUNCH, "run.run_id"))
        wait_until(first.metrics, "a first step", 120)
        second = nbkit.attach(other.execute(LAUNCH, "run.run_id"))
        wait_until(lambda: second.state is RunState.QUEUED, "the second to wait", 120)

        reason = second.record["queue"]["reason"]
        assert reason.startswith("1 replayed GPU requested, 0 of 1 free: slow one of ")
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


def names_held() -> list[str]:
    return [Path(file).name for file in held_by(os.getpid())]


def names_held_by_workers(start_method):
    """Return what the rank holds, and what each of its loading processes holds."""
    import torch.utils.data

    class Held(torch.utils.data.Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return names_held()

    loader = torch.utils.data.DataLoader(
        Held(), batch_size=None, num_workers=1, multiprocessing_context=start_method
    )
    return names_held(), next(iter(loader))


def test_loading_process_holds_lease():
    run = nbkit.launch(
        names_held_by_workers, args=("fork",), device="cpu", oversubscribe=True
    ).wait(patient(120))

    ((by_rank, by_worker),) = run.returns
    assert by_rank
    assert by_worker == by_rank


def test_load_stop(small):
    config = small(task="load", steps=100_000, emulated_step_seconds=0.01)
    run = nbkit.launch(config)
    wait_until(run.metrics, "a step", 120)

    run.stop()

    assert run.state is RunState.STOPPED
    assert run.metrics()[-1]["step"] < 100_000
    with pytest.raises(RunError, match="checkpoint"):
        run.resume()


def test_stop_run_of_another_version(small, whole_torch):
    run = nbkit.launch(small(model="slow", steps=10_000))
    code = (
        "import nbkit, sys; run = nbkit.attach(sys.argv[1]); "
        "run.stop(); print(run.state, len(run.metrics()) > 0)"
    )
    wait_until(run.metrics, "a first step", 120)
    values = json.loads(run.paths.config.read_text())
    run.paths.config.write_text(json.dumps({**values, "field_of_tomorrow": 1}))

    argv = [sys.executable, "-c", code, run.run_id]
    printed = subprocess.check_output(argv, text=True)

    assert printed.split() == ["stopped", "True"]
    assert [other.run_id for other in nbkit.runs()] == [run.run_id]
    again = nbkit.attach(run.run_id)
    assert again.stop().state is RunState.STOPPED  # what is left is looked for
    assert processes_of_run(run.paths) == []
    with pytest.raises(ConfigError, match="field_of_tomorrow"):
        _ = again.config


def test_stop_all(small, written, nbkit_command):
    written.record("finished")
    damaged = written.run.paths.root.with_name("20200102-000000-damaged-bbbb")
    shutil.copytree(written.run.paths.root, damaged)
    (damaged / "record.json").write_text("")
    run = nbkit.launch(small(model="slow", steps=100_000, gpus=1))
    wait_until(lambda: run.metrics(), "its first step")
    # A rank has written that; its supervisor, which looks now and then, writes this.
    wait_until(lambda: run.state is RunState.RUNNING, "its state")

    shown = nbkit_command("show", run.run_id)
    done = nbkit_command("stop", "--all")

    assert f"{run.run_id}): running" in shown.stdout
    how = "stopped by user, after the current step"
    assert (done.returncode, done.stdout) == (0, f"{run.run_id} {how}\n")
    assert run.state is RunState.STOPPED
    assert run.cause["message"].startswith("stopped by user")


LAUNCH_IN_CONTAINER = """
import pathlib, sys, time, nbkit
def work(go):
    here = nbkit.context()
    saved = here.load_checkpoint()
    if saved is None:
        here.save_checkpoint({"done": 1}, 1)
    nbkit.log({"attempt": here.attempt})
    while saved is None and not pathlib.Path(go).exists():
        time.sleep(0.05)
run = nbkit.launch(work, args=(sys.argv[1],), device="cpu", oversubscribe=True)
print(run.run_id, flush=True)
time.sleep(600)
"""


@needs_root
def test_run_of_another_container(tmp_path):
    script = tmp_path / "launch.py"
    script.write_text(LAUNCH_IN_CONTAINER)
    container = ["unshare", "--pid", "--uts", "--fork", "--mount-proc", "--kill-child"]
    inside = f"hostname container; exec {sys.executable} {script} {tmp_path / 'go'}"
    with subprocess.Popen(
        [*container, "sh", "-c", inside], stdout=subprocess.PIPE, text=True
    ) as there:
        try:
            assert there.stdout is not None
            run = nbkit.attach(there.stdout.readline().strip())
            wait_until(lambda: run.state is RunState.RUNNING, "the run", 120)
            wait_until(lambda: run.metrics("log"), "a first line", 120)

            # It lives, and this side cannot see its processes.
            assert run.record["supervisor"]["host"] == "container"
            with pytest.raises(RunError, match="Call stop"):
                run.resume(force=True)
        finally:
            there.kill()
    # The kernel ends the container's processes behind the first, and they give signs.
    wait_until(lambda: not processes_of_run(run.paths), "the end of the container")
    forget(run)

    assert run.state is RunState.UNKNOWN
    assert "of container is not visible from" in run.cause["message"]
    for ask in (run.wait, run.stop, run.resume):
        with pytest.raises(RunError, match=r"is unknown: no heartbeat since"):
            ask()

    # Two at once, each with a handle of its own: one goes on.
    said: list[str] = []

    def resume() -> None:
        try:
            nbkit.attach(run.run_id).resume(force=True)
            said.append("resumed")
        except RunError as error:
            said.append(str(error))

    both = [threading.Thread(target=resume) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert said.count("resumed") == 1, said
    run.wait()
    assert [line["values"]["attempt"] for line in run.metrics("log")][-1] >= 1
    assert Path(run.paths.root / "checkpoints").is_dir()


def test_run_with_broken_package(small, tmp_path, monkeypatch):
    broken = tmp_path / "site" / "broken-1.0.dist-info"
    broken.mkdir(parents=True)
    (broken / "METADATA").write_bytes(b"Name: broken\nVersion: 1.0\nAuthor: \xe9\xff\n")
    monkeypatch.setenv("PYTHONPATH", str(broken.parent), prepend=os.pathsep)

    run = nbkit.launch(small()).wait()

    assert run.record["environment"] is None
    assert run.record["machine"] is not None
