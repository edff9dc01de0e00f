"""The ranks of one attempt on the nodes of a Slurm job: srun starts torchrun there."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence

from nbkit.config import ExperimentConfig
from nbkit.errors import LaunchError
from nbkit.launch.manual.ranks import ManualRanks, TorchrunNodes
from nbkit.launch.supervision.ranks import WatchedRank
from nbkit.launch.supervision.requests import StopRequests
from nbkit.reading import read_end
from nbkit.store.ownership import make_folder, open_to_append
from nbkit.store.paths import RunPaths

_LESS = {"SLURM_EXACT", "SLURM_EXCLUSIVE"}
"""Variables by which srun would give nodes less than their job has."""
_TICK_SECONDS = 0.1
_LOG_BYTES = 262_144
_WORDS_SECONDS = 1.0
"""What a node has printed may arrive so much later than its end."""


class SlurmRanks(ManualRanks):
    """As `ManualRanks`, with the torchruns started, in a step of the job."""

    kind_of_host = "node"
    ready_seconds = 300.0
    """Python takes minutes to start from a file server that a hundred nodes ask."""
    end_seconds = 10.0
    """Slurm may soon end this process."""
    step_seconds = 5.0

    def __init__(
        self,
        config: ExperimentConfig,
        paths: RunPaths,
        attempt: int,
        names: Sequence[str],
        argv: Sequence[str],
        requests: StopRequests,
        write_heartbeat: Callable[[], None],
    ) -> None:
        super().__init__(config, paths, attempt, TorchrunNodes(paths, attempt))
        self._log = paths.supervisor_log(attempt)
        self.advice = f"see {self._log}"
        self._names = names
        self._argv = argv
        self._requests = requests
        self._write_heartbeat = write_heartbeat
        self._srun: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start a torchrun on every node; wait until all have started their ranks."""
        make_folder(self._log.parent, self._paths.root)
        with open_to_append(self._log) as log:
            # Its own session: Slurm's signals to the job are answered by the
            # supervisor, and srun would end the step by itself.
            self._srun = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={n: text for n, text in os.environ.items() if n not in _LESS},
                start_new_session=True,
            )
        deadline = time.monotonic() + self.ready_seconds
        while True:
            self._write_heartbeat()
            has_ended = self._srun.poll() is not None
            is_new = self._read_reports()
            if all(rank.pid for rank in self.ranks):
                return
            is_late = time.monotonic() > deadline
            if why := self._problem(has_ended=has_ended and is_new, is_late=is_late):
                raise LaunchError(why)
            time.sleep(_TICK_SECONDS)

    def _problem(self, *, has_ended: bool, is_late: bool) -> str | None:
        """Return why ranks will not start; None as long as they may."""
        if self._requests.look():
            return "stopped before all nodes were ready. Launch the run again."
        if self._failure():
            time.sleep(_WORDS_SECONDS)
        refusal = re.search(
            r"^ *(\d+): nbkit refuses: (.+)", self._output(), re.MULTILINE
        )
        if refusal:
            return f"node {self._names[int(refusal[1])]}: {refusal[2]}"
        if failure := self._failure():
            advice = "check that its environment exists there, and"
            return "node {}: {}; {} {}.".format(*failure, advice, self.advice)
        if has_ended:
            return f"Slurm ended the job step of the ranks; {self.advice}."
        if is_late:
            absent = [name for name in self._names if name not in self._nodes.names]
            which = ", ".join(absent or self._names)
            return (
                f"ranks not started after {self.ready_seconds:.0f} s on {which}; "
                f"{self.advice}."
            )
        return None

    def close(self) -> list[WatchedRank]:
        """End ranks, samplers and torchruns; return the ranks that could not be."""
        stuck = super().close()
        if self._srun is None:
            return stuck
        # It would wait for a node that was lost; SIGTERM lets it end the step.
        for end in (lambda: None, self._srun.terminate, self._srun.kill):
            end()
            try:
                self._srun.wait(self.step_seconds)
            except subprocess.TimeoutExpired:
                continue
            break
        return stuck

    def _read_reports(self) -> bool:
        has_ended = self._srun is not None and self._srun.poll() is not None
        if not super()._read_reports():
            return False
        if self._nodes.signalled is not None:
            # On preemption Slurm does not signal the supervisor.
            self._requests.note_sigterm()
        name, how = self._failure() or ("", "")
        for node in self._nodes.started:
            if node.report["is_over"]:
                continue
            if node.name == name:
                self._lose(node, how)
            elif has_ended:
                self._lose(node, "Slurm has ended its task")
        return True

    def _failure(self) -> tuple[str, str] | None:
        """Return which node's torchrun has failed, and what it said last."""
        text = self._output()
        end = re.search(r"^srun: error: .*\btasks? (\d+).*", text, re.MULTILINE)
        if end is None:
            return None
        words = re.findall(rf"^ *{end[1]}: (.+)", text, re.MULTILINE)
        return self._names[int(end[1])], words[-1] if words else end[0]

    def _output(self) -> str:
        """Return what srun and the nodes have printed."""
        return read_end(self._log, _LOG_BYTES)[0].decode(errors="replace")
