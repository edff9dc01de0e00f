"""One store seen from two containers: each has its own processes and host name."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import nbkit
from nbkit.errors import RunError
from nbkit.launch.supervision.leftovers import processes_of_run
from nbkit.store.liveness import STALE_SECONDS
from nbkit.store.record import RunState
from tests.hostile.strangers import needs_root
from tests.launch.conftest import store
from tests.waiting import wait_until

__all__ = ["store"]

LAUNCH = """
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


def forget(run: nbkit.Run) -> None:
    """Let all signs of life of a run be old."""
    files = [run.paths.record, run.paths.submission, run.paths.metrics]
    for path in [*files, *run.paths.system_folder.glob("*.jsonl")]:
        before = path.stat().st_mtime - 2 * STALE_SECONDS
        os.utime(path, (before, before))


@needs_root
def test_run_of_another_container(tmp_path):
    script = tmp_path / "launch.py"
    script.write_text(LAUNCH)
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
