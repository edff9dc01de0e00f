"""The engine of one machine: a detached supervisor that starts the ranks itself."""

from __future__ import annotations

import errno
import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from nbkit.config import ExperimentConfig
from nbkit.config.tf32 import tf32_problem
from nbkit.errors import ConfigError, DeviceError, LaunchError, StoreError
from nbkit.launch.code.command import supervisor_argv
from nbkit.launch.code.variables import CONTRACT
from nbkit.launch.devices.choice import request_devices
from nbkit.launch.devices.pool import QueueTicket
from nbkit.launch.devices.pool_folder import POOL_VARIABLE, pool_folder
from nbkit.launch.rendezvous import loopback_problem
from nbkit.launch.supervision.leftovers import sweep
from nbkit.packages import packages_of, pip_install
from nbkit.reading import read_end
from nbkit.store.ownership import make_folder, open_to_append
from nbkit.store.paths import RunPaths
from nbkit.store.processes import ProcessIdentity, run_markers
from nbkit.telemetry.storage import describe_storage
from nbkit.visible import visible

# The shell ends immediately, so the supervisor's parent is not the kernel: one that
# ends the kernel's tree of children does not find it, and no zombie waits for a busy
# kernel to look. $0 is the log; the rest is the command.
_DETACH = '"$@" </dev/null >>"$0" 2>&1 & echo $!'

_SHOWN_BYTES = 2_000

_NETWORK = {
    "9p",
    "beegfs",
    "ceph",
    "cifs",
    "fuse.sshfs",
    "gpfs",
    "lustre",
    "nfs",
    "nfs4",
    "smb3",
    "wekafs",
}
_PASSED_ON = {"NBKIT_HOME", POOL_VARIABLE, "CUDA_VISIBLE_DEVICES"}
"""Variables that a run sets for its ranks, and that the user sets for all of them."""


def passed_on() -> dict[str, str]:
    """Return this process's variables without those of a run or agent around it."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_ON or not CONTRACT.match(name)
    }


class LocalEngine:
    """Runs on this machine, outliving the process that launches them."""

    prefix: ClassVar[tuple[str, ...]] = ()
    """A command that starts the supervisor, for engines that are made of this one. It
    has to turn into the supervisor itself (exec), as ``nice`` does."""

    def check(self, config: ExperimentConfig) -> dict[str, Any]:
        """Return the devices that a run asks for on this machine."""
        if config.nnodes > 1:
            message = (
                f"nnodes={config.nnodes}: engine='local' supports one node. Use "
                "nnodes=1, or engine='slurm' or 'manual'."
            )
            raise ConfigError(message)
        if importlib.util.find_spec("torch") is None:
            message = (
                f"torch is not installed in the environment of {sys.executable}. Run "
                f"{pip_install(*packages_of('train'))}."
            )
            raise LaunchError(message)
        # The lone rank of a training needs no other, and opens no store.
        meets = config.world_size > 1 or config.has_entry
        if meets and (why := loopback_problem()):
            raise LaunchError(why)
        refuse_network_pool(pool_folder())
        request = request_devices(config)
        computes = config.task in ("train", "inference")
        # Other engines start ranks elsewhere, with another environment.
        is_tf32 = computes and config.precision == "tf32"
        if is_tf32 and (why := tf32_problem(request.device_type)):
            raise ConfigError(why)
        return {
            "device_type": request.device_type,
            "cpus_per_rank": request.cpus_per_rank,
            "request": asdict(request),
        }

    def submit(
        self, paths: RunPaths, attempt: int, requirements: dict[str, Any]
    ) -> dict[str, Any]:
        """Start the supervisor in its own session."""
        log = paths.supervisor_log(attempt)
        make_folder(log.parent)
        # Made here, so that runs are served in the order in which they were launched.
        claim = QueueTicket.enter(paths.run_id, requirements["request"])
        argv = [*self.prefix, *supervisor_argv(paths.root, claim.descriptor)]
        try:
            supervisor = detach(argv, paths, log, [claim.descriptor])
        except BaseException:
            claim.close()  # or all later claims would wait for this process
            raise
        claim.hand_over()
        return {"supervisor": supervisor, "job": None}

    def notify(self, paths: RunPaths) -> None:
        """Do nothing: the supervisor looks several times a second."""

    def reap(self, paths: RunPaths) -> None:
        """End what a dead supervisor left running."""
        sweep(paths.run_id)


def detach(
    argv: Sequence[str], paths: RunPaths, log: Path, pass_fds: Sequence[int] = ()
) -> dict[str, Any]:
    """Start a run's supervisor in its own session; return who it is."""
    open_to_append(log).close()  # the shell's own would follow the umask
    shell = subprocess.run(
        ["/bin/sh", "-c", _DETACH, str(log), *argv],
        env={**passed_on(), **run_markers(paths)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        pass_fds=pass_fds,
        start_new_session=True,
        check=False,
    )
    if shell.returncode:
        printed = shell.stderr.decode(errors="replace").strip()
        if "Resource temporarily" not in printed and "fork" not in printed:
            message = f"a background process of run {paths.run_id} could not be "
            message += f"started (sh: {printed or 'no output'})"
            raise LaunchError(message)
        raise BlockingIOError(errno.EAGAIN, printed)
    try:
        return ProcessIdentity.of(int(shell.stdout)).to_dict()
    except ProcessLookupError:
        # The caller removes the log with its folder.
        printed = b""
        with suppress(FileNotFoundError, StoreError):
            printed, _ = read_end(log, _SHOWN_BYTES)
        shown = visible(printed.decode(errors="replace").strip(), lines=True)
        message = f"a background process of run {paths.run_id} exited early and "
        message += f"printed: {shown or 'nothing'}"
        raise LaunchError(message) from None


def refuse_network_pool(pool: Path) -> None:
    """Raise if the pool's locks would be another host's business too."""
    file_system = describe_storage(pool)["file_system"]
    if file_system in _NETWORK:
        message = (
            f"{pool}, the device pool, is on a shared file system ({file_system}). Set "
            f"{POOL_VARIABLE} to a local folder, such as /run/lock/nbkit."
        )
        raise DeviceError(message)
