"""What ranks have started ends with their run, or does not: the table of README.md."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

import nbkit
from nbkit.launch.supervision.leftovers import processes_of_run, sweep
from nbkit.store.metrics import read_json_lines
from nbkit.store.processes import JOB_VARIABLE, ProcessIdentity, run_markers
from tests.hostile.written import write_run
from tests.launch.test_functions import launch
from tests.waiting import patient, wait_until

SLEEP = ["sleep", "600"]
PROCESSES = ("own", "bare", "twice", "shell")


def leave_processes(folder: str, how: str) -> None:
    """Leave two processes in this session, and three in their own."""
    subprocess.Popen(SLEEP)
    subprocess.Popen(SLEEP, env={})
    own = subprocess.Popen(SLEEP, start_new_session=True)
    Path(folder, "own").write_text(str(own.pid))
    bare = subprocess.Popen(SLEEP, start_new_session=True, env={})
    Path(folder, "bare").write_text(str(bare.pid))
    twice = "import os, sys; os.fork() and os._exit(0); os.setsid(); "
    twice += "os.fork() and os._exit(0); open(sys.argv[1], 'w').write(f'{os.getpid()}')"
    twice += "; os.execvp('sleep', ['sleep', '600'])"
    subprocess.run([sys.executable, "-c", twice, f"{folder}/twice"], check=True)
    while not Path(folder, "twice").exists() or not Path(folder, "twice").read_text():
        time.sleep(0.01)
    # It closes no descriptor that this process hands down.
    os.system(f"setsid sleep 600 & echo $! > {folder}/shell")
    nbkit.log({"started": 1})
    if how == "failed":
        raise ValueError(how)
    while how == "stopped":
        nbkit.log({"alive": 1})


@pytest.mark.parametrize("how", ["finished", "failed", "stopped"])
def test_detached_processes_after_run(how, tmp_path, lasting):
    run = launch(leave_processes, args=(str(tmp_path), how))
    if how == "stopped":
        wait_until(lambda: run.metrics("log"), "a first line")
        run.stop(grace_seconds=600)
        assert "immediately" in run.cause["message"]
    run.wait(patient(60), raise_on_failure=False)

    assert run.state == how
    pids = [int((tmp_path / name).read_text()) for name in PROCESSES]
    alive = [pid for pid in pids if psutil.pid_exists(pid)]
    told = [
        {one["pid"] for one in event["processes"]}
        for event in read_json_lines(run.paths.events)
        if event["event"] == "leftovers_ended"
    ]
    log = run.paths.supervisor_log(0).read_text()
    assert "killed at the end of the run: " in log
    if how != "finished":
        assert alive == []
        assert len(told) == 1
        assert set(pids) <= told[0]
        return
    try:
        assert alive == pids
        assert len(told[0]) == 2
        # Nor does it hold what was the run's, such as the leases of its devices.
        open_files = Path(f"/proc/{pids[-1]}/fd").iterdir()
        assert {path.name for path in open_files} <= {"0", "1", "2"}
        # Nor does what comes later end them.
        run.stop()
        assert sweep(run.run_id) == []
        assert all(map(psutil.pid_exists, pids))
    finally:
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(map(psutil.pid_exists, pids)), "the end of all")


@pytest.fixture
def running(lasting) -> Iterator[Callable[[dict[str, str]], ProcessIdentity]]:
    """Start processes with a run's markers and other variables."""
    with ExitStack() as stack:

        def start(variables: dict[str, str]) -> ProcessIdentity:
            program = [sys.executable, "-c", "print(flush=True); input()"]
            process = subprocess.Popen(program, env=variables, stdin=-1, stdout=-1)
            stack.callback(process.communicate)
            process.stdout.readline()
            return ProcessIdentity.of(process.pid)

        yield start


@pytest.mark.parametrize(
    ("own_job", "variables", "is_of_run"),
    [
        ("", {}, True),
        ("", {"SLURM_JOB_ID": "12"}, False),
        ("", {"PBS_JOBID": "12.host"}, False),
        ("11", {"SLURM_JOB_ID": "11"}, True),
        ("11", {"SLURM_JOB_ID": "12"}, False),
        ("11", {}, True),  # such as a container that lets no other variable in
    ],
)
def test_processes_of_run_of_other_jobs(running, own_job, variables, is_of_run):
    run = write_run(state="running")
    markers = {**run_markers(run.paths), JOB_VARIABLE: own_job}
    process = running({**markers, **variables})

    assert processes_of_run(run.paths) == ([process] if is_of_run else [])


FORCED = """
import signal
from multiprocessing.shared_memory import SharedMemory
signal.signal(signal.SIGTERM, signal.SIG_IGN)
memory = SharedMemory(f"torch_{os.getpid()}_own", create=True, size=100)
"""

BY_FILES = """
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.multiprocessing.set_sharing_strategy("file_system")
batches = iter(DataLoader(TensorDataset(torch.ones(99, 99)), num_workers=1))
kept = [next(batches) for _ in range(3)]
"""


@pytest.mark.parametrize("code", [FORCED, BY_FILES])
def test_stopped_run_leaves_no_shared_memory(code, tmp_path):
    script = tmp_path / "train.py"
    alive = "import nbkit\nwhile True:\n    nbkit.log({'alive': 1})\n"
    script.write_text(f"import os\n{code}{alive}")
    run = launch(script)
    wait_until(lambda: run.metrics("log"), "a first line")
    pids = [process.pid for process in processes_of_run(run.paths)]

    def files() -> list[Path]:
        return [one for pid in pids for one in Path("/dev/shm").glob(f"torch_{pid}_*")]

    assert files()
    run.stop(grace_seconds=0.2)

    assert files() == []
    assert processes_of_run(run.paths) == []
