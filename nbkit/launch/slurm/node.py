"""`python -m nbkit.launch.slurm.node RUN_DIR ATTEMPT PORT`: torchrun of one node.

srun starts it on every node of a job. It refuses a node that cannot take part, in
words that the supervisor finds in what srun prints; then torchrun starts the ranks,
watched as those of the engine without a scheduler (`nbkit.worker.torchrun_node`).
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
from pathlib import Path

from nbkit.datasets.cache import NAMED, cache_path
from nbkit.errors import DeviceError, LaunchError, NbkitError
from nbkit.launch.code.command import node_torchrun, thread_variables
from nbkit.launch.code.container import container_environment, in_container
from nbkit.launch.code.variables import CONTRACT
from nbkit.store.paths import RunPaths, store_folder
from nbkit.store.stored_runs import StoredRun
from nbkit.telemetry.software import software, software_differences

_NEVER_SECONDS = 1_000_000
"""Between two looks of torchrun at its ranks: the supervisor decides what follows from
the end of one."""


def node_command(
    paths: RunPaths, attempt: int, port: str
) -> tuple[list[str], dict[str, str]]:
    """Return the torchrun of this node, and its environment."""
    if not paths.config.is_file():
        message = (
            f"{paths.root} does not exist on this node. Set NBKIT_HOME to a folder on "
            "a shared file system, and launch again."
        )
        raise DeviceError(message)
    run = StoredRun(paths.root)
    config, submission = run.config, run.submission
    if differences := software_differences(submission["software"], software()):
        message = (
            "its environment differs from the launch environment: "
            f"{'; '.join(differences)}. Use the same environment on every node, at the "
            "same path or activated in slurm.setup."
        )
        raise LaunchError(message)
    device_type = submission["device_type"]
    cpus_per_rank = submission["cpus_per_rank"]
    if cpus_per_rank is None:
        usable = len(os.sched_getaffinity(0))
        given = int(os.environ.get("SLURM_CPUS_ON_NODE") or usable)
        cpus_per_rank = max(1, min(given, usable) // config.gpus)
    threads = thread_variables(config, device_type, cpus_per_rank, os.environ)
    environment = {**os.environ, **threads}
    # srun runs on the first node, and this is how all others reach it.
    first = os.environ.get("SLURM_LAUNCH_NODE_IPADDR", socket.gethostname())
    meeting = (
        "--rdzv-backend=static",
        f"--node-rank={os.environ.get('SLURM_NODEID', '0')}",
        f"--master-addr={first}",
        f"--master-port={port}",
        f"--monitor-interval={_NEVER_SECONDS}",
    )
    python = "python" if config.slurm.container else sys.executable
    argv = node_torchrun(config, paths.root, attempt, meeting, python=python)
    if not config.slurm.container:
        return argv, environment
    program = _container_program(config.slurm.container)
    needed = [
        name for name in environment if CONTRACT.match(name) or name.startswith("SLURM")
    ]
    argv = in_container(
        config,
        argv,
        [store_folder(), *data_folders(config.data)],
        cwd=submission["cwd"],
        device_type=device_type,
        program=program,
    )
    return argv, container_environment(environment, needed, program=program)


def data_folders(data: str) -> list[str]:
    """Return the folder of data, of a built-in set the one with all of them."""
    if data in NAMED:
        cache = cache_path(data).parent
        cache.mkdir(parents=True, exist_ok=True)  # a container mounts what is there
        return [str(cache)]
    path = Path(data)
    if not path.is_absolute():
        return []
    return [str(path if path.is_dir() else path.parent)]


def _container_program(image: str) -> str:
    """Return what takes torchrun into the run's image."""
    for program in ("apptainer", "singularity"):
        if shutil.which(program):
            return program
    message = (
        f"slurm.container={image!r}: neither apptainer nor singularity is installed on "
        "this node. Load one of them in slurm.setup, or remove slurm.container."
    )
    raise LaunchError(message)


def main() -> None:
    """Become the torchrun of the node on which srun has started this."""
    root, attempt, port = sys.argv[1:]
    # Slurm sends SIGTERM to every process of a job that it ends. Blocked, it waits for
    # the watch of the node, which tells the supervisor, and in each rank until that is
    # ready to answer; torchrun's own handler would end the ranks within 30 s.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        argv, environment = node_command(RunPaths(Path(root)), int(attempt), port)
        os.execvpe(argv[0], argv, environment)
    except (NbkitError, OSError) as error:
        sys.exit(f"nbkit refuses: {error}")


if __name__ == "__main__":
    main()
