"""A real Slurm of two nodes on this host, for tests: one controller, two node daemons.

It is the Slurm that is installed, with the settings beside this file, ports that are
free and a folder of its own: two can run side by side, as any user. There is no
accounting: what a job did, `squeue` and `scontrol` say.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.ports import free_port
from tests.waiting import patient, wait_until

__all__ = ["NODES", "SlurmCluster", "slurm_variables"]

NODES = ("n1", "n2")

_SETTINGS = Path(__file__).parent
_START_SECONDS = 60.0
_END_SECONDS = 30.0
_JOB_SECONDS = 20.0
"""More than KillWait: for a job to end itself, or for Slurm to end it by force."""
_PROCESS_SECONDS = 6.0

_WHOLE_LINES = {"Command", "Comment", "StdErr", "StdIn", "StdOut", "WorkDir"}
"""What has a line to itself where scontrol shows a job, since it may hold blanks."""

_WATCHER = "slurmstepd"
"""Slurm's own process beside each step on each node."""


class SlurmCluster:
    """One controller, and the nodes n1 and n2 with two GPUs each that are none."""

    def __init__(self) -> None:
        # Not below pytest's folders: the path of a socket has 108 characters at most.
        self.root = Path(tempfile.mkdtemp(prefix="nbkit-slurm-"))
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def conf(self) -> Path:
        """The settings; ``SLURM_CONF`` names them for every command of Slurm."""
        return self.root / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment for commands of this Slurm."""
        return {**_without_slurm(), "SLURM_CONF": str(self.conf)}

    @property
    def pids(self) -> dict[str, int]:
        """The daemons that run, by ``slurmctld``, ``n1`` and ``n2``."""
        return {name: daemon.pid for name, daemon in self._daemons.items()}

    def start(self) -> None:
        """Start everything; return when both nodes are idle."""
        self._write_settings()
        self._start_daemon("slurmctld", ["slurmctld", "-D"])
        for node in NODES:
            self._start_daemon(node, ["slurmd", "-D", "-N", node])
        try:
            self.wait_until_idle()
        except BaseException:
            self._end_daemons()
            print(f"Slurm's logs are in {self.root / 'log'}")
            raise

    def command(self, *argv: str, check: bool = True) -> str:
        """Run one command of Slurm; return what it prints."""
        ran = subprocess.run(
            argv,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=patient(120),
        )
        if check and ran.returncode != 0:
            message = f"{argv} ended with {ran.returncode}: {ran.stderr or ran.stdout}"
            raise AssertionError(message)
        return ran.stdout

    def node_states(self) -> dict[str, str]:
        """Return the state of each node in sinfo's words: ``idle`` or ``down*``."""
        said = self.command("sinfo", "--noheader", "--Node", "--format=%N %t")
        return dict(line.split() for line in said.splitlines())

    def job(self, job_id: str) -> dict[str, str]:
        """Return what scontrol says of a job; empty once Slurm has forgotten it."""
        said = self.command("scontrol", "show", "job", job_id, check=False)
        found: dict[str, str] = {}
        for line in map(str.strip, said.splitlines()):
            first, _, rest = line.partition("=")
            if first in _WHOLE_LINES:
                found[first] = rest
            elif first == "JobId":
                found["JobId"], _, found["JobName"] = rest.partition(" JobName=")
            else:
                pairs = (part.partition("=") for part in line.split())
                found.update({name: value for name, _, value in pairs})
        return found

    def wait_for_job(self, job_id: str, *states: str) -> dict[str, str]:
        """Wait until a job is in one of the states, such as ``RUNNING``; return it."""

        def look() -> dict[str, str] | None:
            job = self.job(job_id)
            return job if job.get("JobState") in states else None

        what = f"job {job_id} is {' or '.join(states)}"
        try:
            return wait_until(look, what) or {}
        except AssertionError as error:
            error.add_note(f"{self.job(job_id)}\n{self.node_states()}")
            raise

    def wait_until_idle(self) -> None:
        """Wait until both nodes are idle, with nothing left of any job on them."""
        wait_until(self._is_idle, "both nodes are idle", _START_SECONDS)

    def _is_idle(self) -> bool:
        for name, daemon in self._daemons.items():
            if daemon.poll() is not None:
                said = (self.root / "log" / f"{name}.out").read_text()
                message = f"{name} ended with {daemon.returncode}: {said}"
                raise AssertionError(message)
        try:
            states = self.node_states()
        except AssertionError:
            return False  # the controller does not answer yet
        return states == dict.fromkeys(NODES, "idle")

    def clear(self) -> list[str]:
        """End every job and bring every node back: the next test finds it as new."""
        for node in NODES:
            if node not in self._daemons:
                self.restart_node(node)
        left = self._end_jobs()
        self.wait_until_idle()
        return left

    def _end_jobs(self) -> list[str]:
        everything = f"--user={getpass.getuser()}"
        self.command("scancel", everything, check=False)
        with suppress(AssertionError):
            wait_until(lambda: not self._has_jobs(), "no job is left", _JOB_SECONDS)
        with suppress(AssertionError):
            wait_until(lambda: not self.processes(), "all have gone", _PROCESS_SECONDS)
        # Such as have left the tree of their step; it waits for what they print.
        left = [_end(process) for process in self.processes()]
        wait_until(lambda: not self._has_jobs(), "no job is left", _END_SECONDS)
        return left

    def _has_jobs(self) -> bool:
        return bool(self.command("squeue", "--noheader").strip())

    def kill_node(self, node: str) -> None:
        """End everything on a node at once, as if it had lost its power."""
        daemon = self._daemons.pop(node)
        daemon.kill()
        daemon.wait()
        # The watchers first: nobody on this node says another word.
        for process in sorted(self.processes(node), key=lambda it: not _watches(it)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        wait_until(lambda: not self.processes(node), f"nothing is left of {node}")

    def restart_node(self, node: str) -> None:
        """Start the daemon of a killed node again; return when jobs can run there."""
        self._start_daemon(node, ["slurmd", "-D", "-N", node])
        wait_until(lambda: self._takes_jobs(node), f"{node} is back")

    def _takes_jobs(self, node: str) -> bool:
        return self.node_states().get(node) in ("idle", "mix", "alloc")

    def processes(self, node: str | None = None) -> list[psutil.Process]:
        """Return what runs in the place of a node, or of both, but its daemon.

        These are the watchers of steps, and everything that jobs have started: whatever
        inherited the variables of a job, however it left the tree of children.
        """
        daemons = set(self.pids.values())
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, psutil.Error):
                where = self._node_of(folder)
                if where and node in (None, where) and int(folder.name) not in daemons:
                    found.append(psutil.Process(int(folder.name)))
        return found

    def _node_of(self, process: Path) -> str | None:
        """Return the node on which a process plays, by its folder in /proc."""
        # Other processes may have any bytes as their name.
        if (process / "comm").read_bytes() == f"{_WATCHER}\n".encode():
            # It has written over its variables, and stays in its daemon's folder.
            folder = (process / "cwd").readlink()
            return folder.name if folder.parent == self.root else None
        variables = (process / "environ").read_bytes().split(b"\0")
        if f"SLURM_CONF={self.conf}".encode() not in variables:
            return None
        names = [it for it in variables if it.startswith(b"SLURMD_NODENAME=")]
        return names[0].partition(b"=")[2].decode() if names else None

    def stop(self, *, keep: bool = False) -> None:
        """End everything, and check that nothing is left."""
        left: list[str] = []
        try:
            left += self._end_jobs()
        finally:
            left += self._end_daemons()
            left += [_end(process) for process in self.processes()]
            if keep or left:
                print(f"Slurm's logs are in {self.root / 'log'}")
            else:
                shutil.rmtree(self.root)
        assert not left, f"left behind by Slurm, or only ended by force: {left}"

    def _end_daemons(self) -> list[str]:
        """End the nodes, then the controller; return those that had to be killed."""
        killed = []
        for name, daemon in reversed(self._daemons.items()):
            daemon.terminate()
            try:
                daemon.wait(patient(_END_SECONDS))
            except subprocess.TimeoutExpired:
                killed.append(name)
                daemon.kill()
                daemon.wait()
        self._daemons.clear()
        return killed

    def _write_settings(self) -> None:
        for name in ("state", "log", "dev", "slurmctld", *NODES):
            (self.root / name).mkdir()
        # Slurm wants devices, and takes a link to one: nobody needs to be root.
        (self.root / "dev/nvidia0").symlink_to("/dev/null")
        (self.root / "dev/nvidia1").symlink_to("/dev/zero")
        words = {
            "ROOT": str(self.root),
            "HOST": socket.gethostname().partition(".")[0],
            "USER": getpass.getuser(),
            "CONTROLLER_PORT": str(free_port()),
            "N1_PORT": str(free_port()),
            "N2_PORT": str(free_port()),
        }
        for name in ("slurm.conf", "gres.conf", "cgroup.conf"):
            text = (_SETTINGS / name).read_text()
            for word, value in words.items():
                text = text.replace(f"@{word}@", value)
            (self.root / name).write_text(text)

    def _start_daemon(self, name: str, argv: list[str]) -> None:
        with (self.root / "log" / f"{name}.out").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                argv,
                env={**self.environment, "PATH": f"{os.environ['PATH']}:/usr/sbin"},
                cwd=self.root / name,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def _without_slurm() -> dict[str, str]:
    """Return this environment without what a job around the tests would have set."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLURM", "SBATCH_", "SRUN_"))
    }


def _watches(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.name() == _WATCHER
    return False


def _end(process: psutil.Process) -> str:
    described = str(process.pid)
    with suppress(psutil.Error):
        described = f"{process.pid} ({' '.join(process.cmdline())[:200]})"
        process.kill()
    return described


@contextmanager
def slurm_variables(cluster: SlurmCluster) -> Iterator[None]:
    """Let every command of Slurm in this process mean the cluster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(cluster.conf))
        yield
