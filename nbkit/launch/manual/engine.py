"""The engine without a scheduler: users start torchrun manually on every host.

Launching prints one line, which is the same for all hosts. A supervisor on the host
that launches waits for the ranks that torchrun starts, and knows them by files alone
(`nbkit.worker.node_watch` writes them, `nbkit.launch.manual.ranks` reads them). The
pool of this host's GPUs knows nothing of such a run.
"""

from __future__ import annotations

import importlib.util
import shlex
import socket
import sys
from pathlib import Path
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, LaunchError
from nbkit.launch.code.command import node_torchrun
from nbkit.launch.devices.choice import threads_of_a_rank, visible_gpus
from nbkit.launch.local import detach
from nbkit.launch.manual.ranks import give_orders
from nbkit.launch.rendezvous import free_port, is_free
from nbkit.launch.supervision.leftovers import sweep
from nbkit.packages import packages_of, pip_install
from nbkit.reading import read_file
from nbkit.store.ownership import make_folder
from nbkit.store.paths import RunPaths
from nbkit.store.processes import hostname
from nbkit.store.record import read_json
from nbkit.telemetry.software import software

_TORCHRUN_PORT = 29_400
"""torchrun's own, where it is unknown which ones are free."""


def manual_line(
    config: ExperimentConfig,
    root: Path,
    attempt: int,
    *,
    host: str,
    port: int,
    python: str,
    threads: int | None,
) -> str:
    """Return the shell line that starts a run's ranks, the same for all hosts."""
    argv = [] if threads is None else ["env", f"OMP_NUM_THREADS={threads}"]
    meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint={host}:{port}"]
    if _is_loopback(host):
        meeting.append(f"--local-addr={host}")  # other names may lead elsewhere
    # Its own check may be slow: nbkit's check reports a failed rank to all hosts.
    meeting.append("--monitor-interval=1")
    argv += node_torchrun(config, root, attempt, meeting, python=python)
    return shlex.join(argv)


class ManualEngine:
    """Runs whose ranks users start, with one torchrun line on each host."""

    def check(self, config: ExperimentConfig) -> dict[str, Any]:
        """Return what every host needs to know of a run."""
        if importlib.util.find_spec("torch") is None:
            message = (
                f"torch is not installed for {sys.executable}, which must exist on "
                f"every host. Run {pip_install(*packages_of('train'))}."
            )
            raise LaunchError(message)
        _refuse_unsupported_fields(config)
        takes_part = _is_this_host(config.manual.rendezvous_host)
        port = config.manual.rendezvous_port
        if takes_part and port is not None and not is_free(port):
            message = (
                f"manual.rendezvous_port={port} is in use on this host. Use another "
                "port, or None for a free port."
            )
            raise ConfigError(message)
        device_type = config.device
        if device_type == "auto":
            if not takes_part:
                message = (
                    "device='auto' detects the GPUs of this host, but the ranks run "
                    f"on other hosts ({config.manual.rendezvous_host}). Set "
                    "device='cuda' or device='cpu'."
                )
                raise ConfigError(message)
            device_type = "cuda" if visible_gpus("auto") else "cpu"
        return {
            "device_type": device_type,
            "cpus_per_rank": threads_of_a_rank(config) if takes_part else None,
            "request": {"kind": device_type},
            "rendezvous_host": config.manual.rendezvous_host or hostname(),
            "software": software(),
        }

    def submit(
        self, paths: RunPaths, attempt: int, requirements: dict[str, Any]
    ) -> dict[str, Any]:
        """Start the supervisor; print what to paste on every host."""
        config = ExperimentConfig.from_store(read_file(paths.config))
        given = config.manual.rendezvous_port
        free = free_port() if _is_this_host(config.manual.rendezvous_host) else None
        line = manual_line(
            config,
            paths.root,
            attempt,
            host=requirements["rendezvous_host"],
            port=given or free or _TORCHRUN_PORT,
            python=sys.executable,
            threads=requirements["cpus_per_rank"],
        )
        log = paths.supervisor_log(attempt)
        make_folder(log.parent)
        argv = [sys.executable, "-P", "-m", "nbkit.launch.manual.job", str(paths.root)]
        supervisor = detach(argv, paths, log)
        hosts = f"each of {config.nnodes} hosts" if config.nnodes > 1 else "a host"
        sys.stdout.write(f"Paste this line on {hosts}:\n\n{line}\n\n")
        return {"supervisor": supervisor, "job": None, "torchrun_line": line}

    def notify(self, paths: RunPaths) -> None:
        """Do nothing: the supervisor looks several times a second."""

    def reap(self, paths: RunPaths) -> None:
        """End what a dead supervisor left running; other hosts see the order soon."""
        sweep(paths.run_id)
        submission = read_json(paths.submission)
        if submission is not None:
            give_orders(paths, submission["attempt"], ["kill"])


def _refuse_unsupported_fields(config: ExperimentConfig) -> None:
    if config.max_restarts:
        message = (
            f"max_restarts={config.max_restarts}: engine='manual' cannot restart "
            "torchrun. Use max_restarts=0, and Run.resume() after a failure."
        )
        raise ConfigError(message)
    if config.devices is not None:
        message = (
            f"devices={config.devices}: engine='manual' does not support devices. "
            "Remove it, and set CUDA_VISIBLE_DEVICES on each host before torchrun."
        )
        raise ConfigError(message)
    if config.device == "replay":
        message = "engine='manual' cannot run device='replay'. Use engine='local'."
        raise ConfigError(message)


def _is_this_host(host: str) -> bool:
    """Return whether a rendezvous host is this one, as far as its name tells."""
    own = (hostname(), socket.getfqdn())
    return not host or host in own or _is_loopback(host)


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "[::1]") or host.startswith("127.")
