"""How large the store of a cluster grows: a real run's files, and what follows."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import nbkit
from nbkit.store.paths import RunPaths
from tests.bench.rows import Row, row
from tests.bench.settings import RANKS, nbkit_fields
from tests.bench.watching import gpu_variables

__all__ = ["Sizes", "measured_sizes", "store_rows"]

DAY_SECONDS = 86_400
STEPS_PER_SECOND = 4
"""Of a run of many nodes."""
STEP_LIMIT_BYTES = 512
SAMPLE_LIMIT_BYTES = 6_144
RANK_LIMIT_BYTES = 4_096
_SAMPLER_SECONDS = 5


@dataclass(frozen=True)
class Sizes:
    """Bytes that a run writes."""

    once: int
    """Configuration, submission, record and events."""
    rank: float
    """Of each rank: who it is, its logs and its part of ``worker.json``."""
    step: float
    sample: float
    """Of one node with eight GPUs."""

    def of_day(
        self, nodes: int, gpus: int, seconds_between_samples: float = 1.0
    ) -> float:
        """Return what one run of a day on so many nodes writes."""
        samples = nodes * DAY_SECONDS / seconds_between_samples
        steps = STEPS_PER_SECOND * DAY_SECONDS
        return (
            self.once
            + nodes * gpus * self.rank
            + steps * self.step
            + samples * self.sample
        )


def measured_sizes() -> Sizes:
    """Run something small, sample eight simulated GPUs, and look at the files."""
    run = nbkit.launch(**nbkit_fields(tensorboard=False)).wait()
    paths = run.paths
    ranks = [_folder_bytes(paths.rank(0, rank).root) for rank in range(RANKS)]
    told = [len(json.dumps(rank)) for rank in run.worker["ranks"]]
    once = (paths.config, paths.submission, paths.record, paths.events)
    return Sizes(
        once=sum(path.stat().st_size for path in once),
        rank=statistics.fmean(ranks) + statistics.fmean(told),
        step=_line_bytes(paths.metrics),
        sample=_sample_bytes(paths),
    )


def store_rows(sizes: Sizes, nodes: int, gpus: int, runs: int) -> list[Row]:
    """Return the sizes, and what a cluster of many runs and nodes would have."""
    a_run = sizes.of_day(nodes, gpus)
    bounded = sizes.of_day(nodes, gpus, 5.0)
    # Nodes that are shared make as many samples as there are nodes, however many runs.
    shared = a_run + (runs - 1) * (sizes.once + STEPS_PER_SECOND * DAY_SECONDS
                                   * sizes.step)  # fmt: skip
    what = (
        f"projected: one run on {nodes} nodes x {gpus} GPUs for a day, "
        f"{STEPS_PER_SECOND} steps and a sample of each node a second; every 5 s "
        f"instead, {bounded / 1e9:.0f} GB"
    )
    many = (
        f"projected: {runs} runs that share {nodes} nodes for a day; if each had "
        f"{nodes} nodes to itself, {runs * a_run / 1e12:.0f} TB"
    )
    return [
        row("a step in the store", sizes.step, "bytes", STEP_LIMIT_BYTES,
            "a line of metrics.jsonl, one for all ranks"),
        row("a node's sample in the store", sizes.sample, "bytes", SAMPLE_LIMIT_BYTES,
            f"{gpus} simulated GPUs; {60 * sizes.sample / 1e3:.0f} kB a minute"),
        row("a rank in the store", sizes.rank, "bytes", RANK_LIMIT_BYTES,
            f"{RANKS} ranks: logs, process.json, its part of worker.json; a run has "
            f"{sizes.once / 1e3:.0f} kB besides"),
        {**row("store, one run of a day", a_run / 1e9, "GB", 0, what),
         "limit": None, "ok": True},
        {**row("store, a cluster's day", shared / 1e9, "GB", 0, many),
         "limit": None, "ok": True},
    ]  # fmt: skip


def _line_bytes(path: Path) -> float:
    return statistics.median(map(len, path.read_bytes().splitlines(keepends=True)))


def _sample_bytes(paths: RunPaths) -> float:
    """Return the length of a line that the sampler writes of eight simulated GPUs."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "node.jsonl"
        sampler = subprocess.Popen(
            [sys.executable, "-m", "nbkit.telemetry.sampler", "--output", str(output)],
            env={**os.environ, **gpu_variables()},
        )
        time.sleep(_SAMPLER_SECONDS)
        sampler.terminate()
        sampler.wait()
        lines = output.read_bytes().splitlines(keepends=True)
    samples = [one for one in lines if json.loads(one)["kind"] == "sample"]
    assert len(samples) > 2
    return statistics.median(map(len, samples))


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
