"""nbkit's part of a torchrun that users or Slurm start on every host.

``torchrun --logs-specs=nbkit --log-dir=RUN_DIR/logs/ATTEMPT`` makes a `NodeLogs`. It
refuses a host that cannot take part; puts what the ranks print where it is with any
other engine, from their first import on; gives them what they need to know; and has
them watched.

References
----------
https://docs.pytorch.org/docs/stable/elastic/run.html (``--logs-specs``)
"""

from __future__ import annotations

import atexit
import ipaddress
import os
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, Std

from nbkit.config import ExperimentConfig
from nbkit.reading import read_file
from nbkit.store.ownership import make_folder
from nbkit.store.paths import RunPaths
from nbkit.store.private import read_entry
from nbkit.store.processes import ProcessIdentity, hostname, run_markers
from nbkit.store.record import read_json
from nbkit.telemetry.software import software, software_differences
from nbkit.worker.node_watch import NodeWatch, is_fresh


class NodeLogs(LogsSpecs):
    """Log files of the ranks of this host; see the module's docstring."""

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Std | dict[int, Std] = Std.NONE,
        tee: Std | dict[int, Std] = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:
        super().__init__(log_dir, redirects, tee, local_ranks_filter)
        self._folder = Path(log_dir or "").absolute()
        self._paths = RunPaths(self._folder.parents[1])
        if not self._paths.submission.exists():
            _refuse(
                f"{self._paths.root} does not exist on host {hostname()}. Set "
                "NBKIT_HOME to a folder on a shared file system, and launch again."
            )
        self._submission = read_json(self._paths.submission) or {}
        self._refuse_other_software()
        self._attempt = int(self._folder.name)
        self._config = ExperimentConfig.from_json(read_file(self._paths.config))
        self._refuse_old_line()
        self._is_started = False
        self._watch = NodeWatch(self._paths, self._attempt)
        self._watch.start()
        atexit.register(self._watch.finish)
        self._in_job = bool(self._submission.get("job"))
        if self._in_job:
            return  # srun has started one on every node
        self._refuse_further_host()
        _print(
            f"run {self._paths.run_id}: this host is ready "
            f"(nnodes={self._config.nnodes}); output of its ranks: {self._folder}"
        )
        self._hint_at_loopback()

    @property
    def root_log_dir(self) -> str:
        """The folder of the attempt's logs."""
        return str(self._folder)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Return the log files of each rank; called before the ranks are started."""
        world_size = int(envs[0]["WORLD_SIZE"])
        if self._is_started or world_size != self._config.world_size:
            _refuse(
                f"torchrun tried to start {world_size} ranks"
                f"{' again' * self._is_started}, but run {self._paths.run_id} starts "
                f"{self._config.world_size} ranks once. Call stop() and resume(), and "
                "paste the new line unchanged."
            )
        self._is_started = True
        group_rank = int(envs[0]["GROUP_RANK"])
        shared = self._environment(len(envs), group_rank)
        places = LogsDest()
        for local_rank, variables in envs.items():
            files = self._paths.rank(self._attempt, int(variables["RANK"]))
            make_folder(files.root, self._paths.root)
            places.stdouts[local_rank] = str(files.stdout)
            places.stderrs[local_rank] = str(files.stderr)
            places.error_files[local_rank] = str(files.error)
            variables |= {**shared, "TORCHELASTIC_ERROR_FILE": str(files.error)}
        return places

    def _environment(self, count: int, group_rank: int) -> dict[str, str]:
        """Return what all ranks of this host get, as with any other engine."""
        cwd = Path(self._submission["cwd"])
        if cwd.is_dir():
            os.chdir(cwd)  # the ranks begin where this process is
        elif self._config.has_entry:
            _refuse(
                f"{cwd}, the launch folder, does not exist on host {hostname()}. "
                "Launch from a folder that exists on every host."
            )
        name = hostname()
        if self._in_job:
            name = os.environ.get("SLURMD_NODENAME", name)
        elif name in [
            report["host"] for report in self._other_hosts()
        ]:  # it plays several
            name = f"{name}-{group_rank}"
        entry = read_entry(self._paths) or {}
        device_type = self._submission["device_type"]
        order = os.environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        visible = {"CUDA_VISIBLE_DEVICES": ""}
        if device_type == "cuda":
            visible = {"CUDA_DEVICE_ORDER": order}
        return {
            **entry.get("environment", {}),
            **visible,
            **self._watch.expect(count, name, group_rank),
            "PYTHONUNBUFFERED": "1",
            "NBKIT_HOME": str(self._paths.root.parents[1]),
            **run_markers(self._paths),
            "NBKIT_ATTEMPT": str(self._attempt),
            "NBKIT_DEVICE_TYPE": device_type,
            "NBKIT_NODE": name,
        }

    def _other_hosts(self) -> list[dict[str, Any]]:
        """Return what the torchruns of the other hosts tell, or others on this one."""
        mine = self._watch.file
        files = [file for file in mine.parent.glob("*.json") if file != mine]
        reports = [read_json(file) for file in files if is_fresh(file, mine)]
        return [
            report
            for report in reports
            if report
            and ProcessIdentity.from_dict(report["process"]).is_alive() is not False
        ]

    def _refuse_other_software(self) -> None:
        expected = self._submission["software"]
        if differences := software_differences(expected, software()):
            _refuse(
                f"host {hostname()} differs from the launch environment: "
                f"{'; '.join(differences)}. Use the same environment on every host."
            )

    def _refuse_old_line(self) -> None:
        orders = read_json(self._paths.orders(self._attempt)) or {}
        is_over = "kill" in orders.get("do", [])
        if is_over or self._attempt < self._submission["attempt"]:
            _refuse(
                f"attempt {self._attempt} of run {self._paths.run_id} has ended. "
                "Call resume(), and paste the line that it prints."
            )

    def _refuse_further_host(self) -> None:
        hosts = self._other_hosts()
        if len(hosts) >= self._config.nnodes or any(host["ranks"] for host in hosts):
            where = ", ".join(sorted(host["host"] for host in hosts))
            _refuse(
                f"torchrun already runs on {where}, with nnodes={self._config.nnodes}. "
                f"Paste the line once on each of {self._config.nnodes} hosts."
            )

    def _hint_at_loopback(self) -> None:
        """Say what to do if others would not find this host by its name."""
        try:
            own = socket.gethostbyname(socket.getfqdn())
            meeting = socket.gethostbyname(self._submission["rendezvous_host"])
        except OSError:
            return  # torchrun says it better
        if self._config.nnodes < 2 or ipaddress.ip_address(meeting).is_loopback:
            return
        if ipaddress.ip_address(own).is_loopback:
            _print(
                f"this host resolves its name to {own}, which other hosts cannot "
                "reach. If the rendezvous fails, fix /etc/hosts, or add "
                "--local-addr=ADDRESS to the line and put "
                "GLOO_SOCKET_IFNAME=INTERFACE in front of it."
            )


def _refuse(why: str) -> NoReturn:
    """End torchrun, with what to do instead of a traceback."""
    message = f"nbkit refuses: {why}"
    raise SystemExit(message)


def _print(text: str) -> None:
    sys.stdout.write(f"nbkit: {text}\n")
    sys.stdout.flush()
