"""`python -m nbkit.launch.slurm.node RUN_DIR`: the ranks of one node of a Slurm job.

An agent does on its node what a supervisor does on a machine, at the word of the
supervisor of the job, which is at the other end of standard input and output:

1. Say who this is, and whether the run's folder can be read and written from here.
2. Start the ranks once every node is ready, and the sampler beside them.
3. Say which ranks have ended, and once a second where the others are.
4. End everything on request, or when its input ends: no supervisor is left to ask.

It never imports torch.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.datasets.cache import NAMED, cache_path
from nbkit.errors import DeviceError, LaunchError, NbkitError
from nbkit.launch.code.command import NODE_VARIABLE, worker_argv
from nbkit.launch.code.container import in_container
from nbkit.launch.devices.choice import visible_gpus
from nbkit.launch.meeting import Meeting
from nbkit.launch.slurm.messages import beats_lines, line, parse
from nbkit.launch.supervision.leftovers import (
    end_leftovers,
    is_elsewhere,
    marked_processes,
)
from nbkit.launch.supervision.local_ranks import LocalRanks, Node
from nbkit.launch.supervision.supervisor import become_supervisor
from nbkit.store.ownership import FOLDER_MODE
from nbkit.store.paths import RunPaths, store_folder
from nbkit.store.processes import ProcessIdentity, run_markers
from nbkit.store.stored_runs import StoredRun
from nbkit.telemetry.software import software

__all__: list[str] = []

_TICK_SECONDS = 0.2
_BEAT_SECONDS = 1.0


class Agent:
    """One node of a run.

    Parameters
    ----------
    paths
        The run's files.
    node
        Which node this is.
    """

    def __init__(self, paths: RunPaths, node: Node) -> None:
        self._paths = paths
        self._node = node
        self._orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._ranks: LocalRanks | None = None
        self._meeting: Meeting | None = None
        self._last_beat = 0.0
        self._has_sigterm = False
        """Whether Slurm has asked the job to end, and the supervisor does not know."""

    def on_sigterm(self, number: int, frame: object) -> None:
        """Pass SIGTERM on: on preemption Slurm does not signal the supervisor."""
        self._has_sigterm = True

    def run(self) -> None:
        """Do everything that the module's text lists."""
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            self._say_ready()
            while self._obey():
                self._watch()
                self._pass_sigterm_on()
        except (NbkitError, OSError) as error:
            self._say("refused", reason=str(error))
        finally:
            self._end()

    def _say_ready(self) -> None:
        if not self._paths.config.is_file():
            message = (
                f"{self._paths.root} does not exist on this node: the store "
                "must be on a file system that all nodes share; set NBKIT_HOME to a "
                "folder of one, and launch again."
            )
            raise DeviceError(message)
        folder = self._paths.system(self._node.system_name)
        folder.parent.mkdir(FOLDER_MODE, exist_ok=True)
        folder.touch()  # the supervisor checks that it sees this
        if self._node.rank == 0:
            self._meeting = Meeting.here("")
        self._say(
            "ready",
            name=self._node.name,
            host=socket.gethostname(),
            # srun runs on the first node, and this is how all others reach it.
            address=os.environ.get("SLURM_LAUNCH_NODE_IPADDR", socket.gethostname()),
            port=self._meeting.port if self._meeting else None,
            software=software(),
        )

    def _obey(self) -> bool:
        """Do what was asked for; return whether to continue."""
        while True:
            try:
                order = self._orders.get(timeout=0 if self._ranks else _TICK_SECONDS)
            except queue.Empty:
                return True
            match order["kind"]:
                case "start":
                    self._start(order)
                case "terminate" if self._ranks:
                    self._ranks.terminate()
                case "kill" if self._ranks:
                    self._ranks.kill()
                case "stacks" if self._ranks:
                    self._ranks.print_stacks()
                case "end":
                    return False

    def _start(self, order: dict[str, Any]) -> None:
        run = StoredRun(self._paths.root)
        submission = {**run.submission}
        if submission.get("cpus_per_rank") is None:
            usable = len(os.sched_getaffinity(0))
            given = int(os.environ.get("SLURM_CPUS_ON_NODE") or usable)
            submission["cpus_per_rank"] = max(1, min(given, usable) // run.config.gpus)
        device_type = submission["device_type"]
        program = _container_program(run.config)
        folders = [store_folder(), *_data_folders(run.config.data)]
        self._ranks = LocalRanks(
            run.config,
            self._paths,
            order["attempt"],
            submission,
            self._node,
            devices=_devices(run.config, device_type),
            argv=in_container(
                run.config,
                worker_argv(self._paths.root),
                folders,
                cwd=submission["cwd"],
                device_type=device_type,
                program=program or "",
            ),
            container_program=program,
        )
        listener = self._meeting.listener if self._meeting else None
        self._ranks.start(Meeting(order["address"], order["port"], listener))
        for rank in self._ranks.ranks:
            self._say("started", **rank.to_dict())

    def _pass_sigterm_on(self) -> None:
        if self._has_sigterm:
            self._has_sigterm = False
            self._say("sigterm")

    def _watch(self) -> None:
        if self._ranks is None:
            return
        for rank in self._ranks.wait(_TICK_SECONDS):
            self._pass_sigterm_on()
            self._say_beats()  # whether it was done is read from these
            self._say(
                "ended",
                **rank.to_dict(),
                killed_by_us=rank.killed_by_us,
                kernel_ran_out_of_memory=rank.kernel_ran_out_of_memory,
            )
        if time.monotonic() - self._last_beat >= _BEAT_SECONDS:
            self._say_beats()

    def _say_beats(self) -> None:
        assert self._ranks is not None
        self._last_beat = time.monotonic()
        for one in beats_lines(self._node.rank, self._ranks.beats()):
            _write(one)

    def _end(self) -> None:
        """Leave no process of the run on this node but this one."""
        stuck = self._ranks.close() if self._ranks else []
        end_leftovers(self._leftovers)
        self._say("gone", stuck=[rank.rank for rank in stuck])

    def _leftovers(self) -> set[ProcessIdentity]:
        """Return what ranks have started here; Slurm itself ends what they detach."""
        me = ProcessIdentity.of()
        mine = f"{NODE_VARIABLE}={self._node.name}".encode()
        leftovers: set[ProcessIdentity] = set()
        for run_id, folder, process in marked_processes():
            is_mine = run_id == self._paths.run_id
            if is_mine and process != me and not is_elsewhere(folder, self._paths):
                try:
                    environment = Path(f"/proc/{process.pid}/environ").read_bytes()
                except OSError:
                    continue
                if mine in environment.split(b"\0"):
                    leftovers.add(process)
        return leftovers

    def _listen(self) -> None:
        """Take orders until the supervisor's end of the input closes."""
        # Without a buffer: its lock would be held for ever when this process ends.
        with open(0, "rb", buffering=0, closefd=False) as orders:
            for text in orders:
                if order := parse(text):
                    self._orders.put(order)
        self._orders.put({"kind": "end"})

    def _say(self, kind: str, **values: Any) -> None:
        _write(line(kind, agent=self._node.rank, **values))


def _write(text: bytes) -> None:
    # If no process listens any more, the end of the input says the same.
    with contextlib.suppress(OSError):
        os.write(sys.stdout.fileno(), text)


def _devices(config: ExperimentConfig, device_type: str) -> tuple[str, ...] | None:
    """Return the GPUs that the scheduler gave, by local rank; None if unknown."""
    if device_type != "cuda":
        return ()
    try:
        found = visible_gpus("cuda")
    except DeviceError:
        return None
    return tuple(gpu.name for gpu in found[: config.gpus])


def _data_folders(data: str) -> list[str]:
    """Return the folder of data, of a built-in set the one with all of them."""
    if data in NAMED:
        cache = cache_path(data).parent
        cache.mkdir(parents=True, exist_ok=True)  # a container mounts what is there
        return [str(cache)]
    path = Path(data)
    if not path.is_absolute():
        return []
    return [str(path if path.is_dir() else path.parent)]


def _container_program(config: ExperimentConfig) -> str | None:
    """Return what takes ranks into the run's image; None without an image."""
    image = config.slurm.container
    if not image:
        return None
    for program in ("apptainer", "singularity"):
        if shutil.which(program):
            return program
    message = (
        f"slurm.container={image!r}: neither apptainer nor singularity is on this "
        "node; load it by slurm.setup, or leave container out."
    )
    raise LaunchError(message)


def main() -> None:
    """Be the agent of the node on which srun has started this."""
    become_supervisor()
    paths = RunPaths(Path(sys.argv[1]))
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    os.environ.update({**run_markers(paths), NODE_VARIABLE: name})
    rank = int(os.environ.get("SLURM_NODEID", "0"))
    agent = Agent(paths, Node(name, rank, name))
    # Slurm sends SIGTERM to every process of a job that it ends, and any other signal
    # that scancel is used for. The ranks take it as a request to stop; what comes of
    # that is reported, so this process stays.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, agent.on_sigterm)
    agent.run()


if __name__ == "__main__":
    main()
