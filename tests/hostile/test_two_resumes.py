"""Two processes resume one run, which hosts of a shared store cannot see of each other.

Each has a temporary folder of its own, as containers and Slurm's jobs do.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import nbkit
from nbkit.errors import RunError
from nbkit.launch.resume import held_attempt
from nbkit.launch.supervision import leftovers as sweeping
from nbkit.launch.supervision.leftovers import sweep
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import read_json, write_json
from tests.hostile.written import write_run

HOLDS = """
import signal, sys
import nbkit
from nbkit.launch.resume import held_attempt

with held_attempt(nbkit.attach(sys.argv[1])) as attempt:
    print(attempt, flush=True)
    signal.pause()
"""

RESUMES = """
import sys
import nbkit
from nbkit.errors import RunError

run = nbkit.attach(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
try:
    run.resume()
except RunError as error:
    print(f"refused: {error}")
else:
    print("resumed")
"""


@contextmanager
def _elsewhere(
    program: str, run_id: str, folder: Path
) -> Iterator[subprocess.Popen[str]]:
    """Run a program that has its own temporary folder; end it."""
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", program, run_id],
        env={**os.environ, "TMPDIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_of_two_resumes_at_once_one_is_refused(tmp_path):
    run = write_run(task="function")
    with (
        _elsewhere(RESUMES, run.run_id, tmp_path / "a") as first,
        _elsewhere(RESUMES, run.run_id, tmp_path / "b") as second,
    ):
        both = (first, second)
        for process in both:
            assert process.stdout.readline() == "ready\n"
        for process in both:
            process.stdin.write("go\n")
            process.stdin.flush()
        said = sorted(process.stdout.read().partition(":")[0] for process in both)

    assert said == ["refused", "resumed\n"]
    assert nbkit.attach(run.run_id).wait().attempt == 1
    # Nothing but what Python itself may leave.
    assert [*(tmp_path / "a").iterdir(), *(tmp_path / "b").iterdir()] == []


def test_a_resume_that_was_killed_keeps_nobody_away(tmp_path):
    run = write_run(task="function")
    with _elsewhere(HOLDS, run.run_id, tmp_path / "a") as holder:
        assert holder.stdout.readline() == "1\n"
        who = rf"is being resumed by process {holder.pid} on {os.uname().nodename}"
        with pytest.raises(RunError, match=who):
            run.resume()
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    assert read_json(run.paths.resumer(1))["pid"] == holder.pid

    run.resume().wait()

    assert run.attempt == 2
    assert run.returns == [str(run.paths.root)]
    assert run.supervisor_log == run.paths.attempt(2) / "supervisor.log"
    assert [run.logs(attempt=number) for number in range(3)] == ["", "", ""]
    assert [one["number"] for one in run.record["attempts"]] == [2]


@pytest.mark.parametrize("is_told", [True, False])
def test_a_resume_elsewhere_is_passed_over_by_force_alone(is_told):
    run = write_run()
    run.paths.attempt(1).mkdir(parents=True)
    if is_told:
        other = {**ProcessIdentity.of().to_dict(), "host": "elsewhere", "time": "then"}
        write_json(run.paths.resumer(1), {**other, "boot_id": "b"})
    who = "by process .* on elsewhere, since then" if is_told else "an unknown process"

    with pytest.raises(RunError, match=who), held_attempt(run):
        pass
    if not is_told:  # its maker may be about to write who it is
        with pytest.raises(RunError, match=who), held_attempt(run, force=True):
            pass
        os.utime(run.paths.attempt(1), (0, 0))
    with held_attempt(run, force=True) as attempt:
        assert attempt == 2


@pytest.mark.parametrize("step", ["held", "submitted"])
def test_a_sweep_during_a_resume_elsewhere_ends_no_process(step, monkeypatch):
    run, ended = write_run(), []
    other = ProcessIdentity.of(os.getppid()).to_dict()

    def found_while_another_resumes(paths, sessions):
        paths.attempt(1).mkdir(parents=True)
        if step == "held":
            write_json(paths.resumer(1), other)
        else:
            told = {**run.submission, "attempt": 1, "supervisor": other}
            write_json(paths.submission, told)
        return [ProcessIdentity.of()]

    monkeypatch.setattr(sweeping, "processes_of_run", found_while_another_resumes)
    monkeypatch.setattr(sweeping, "end_processes", ended.extend)

    assert sweep(run.run_id) == []
    assert ended == []


@pytest.mark.parametrize("holder", ["this process", "one that is gone", "a restart"])
def test_a_sweep_ends_what_a_dead_supervisor_left_running(holder, monkeypatch):
    run, ended, me = write_run(), [], ProcessIdentity.of()
    run.paths.attempt(1).mkdir(parents=True)
    if holder != "a restart":
        ticks = me.start_ticks if holder == "this process" else -1
        write_json(run.paths.resumer(1), {**me.to_dict(), "start_ticks": ticks})
    monkeypatch.setattr(sweeping, "processes_of_run", lambda paths, sessions: [me])
    monkeypatch.setattr(sweeping, "end_processes", ended.extend)

    sweep(run.run_id)

    assert ended == [me]
