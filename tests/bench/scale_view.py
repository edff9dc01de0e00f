"""A run on 512 nodes of eight GPUs: what a live view of it and its supervisor cost.

The run's files are written by a process of its own, a sample a second and node, as that
many samplers would. The files of the nodes' torchruns are written by another one: one
a second and node, as that many would.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from nbkit.config import ExperimentConfig
from nbkit.launch.manual.ranks import ManualRanks, TorchrunNodes
from nbkit.live.follower import Follower
from nbkit.live.run import LiveRun
from nbkit.server.run_table import StoredRunTable
from nbkit.store.heartbeat import Phase
from nbkit.store.paths import RunPaths
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import write_json
from nbkit.store.stored_runs import StoredRun
from nbkit.telemetry.sample import GpuSample, HostSample, Sample
from tests.bench.rows import Row, row

__all__ = [
    "GPUS",
    "NODES",
    "look_row",
    "supervisor_row",
    "tell_as_torchruns",
    "view_rows",
    "write_samples",
]

NODES = 512
GPUS = 8
WINDOW_SECONDS = float(os.environ.get("NBKIT_BENCH_WINDOW", "15"))
VIEW_LIMIT_PERCENT = 10.0
VIEW_LIMIT_KILOBYTES = 100.0
OPEN_LIMIT_SECONDS = 3.0
SUPERVISOR_LIMIT_PERCENT = 10.0
LOOK_LIMIT_MS = 50.0
_EARLIER_SECONDS = 60
_STILL_HERE_SECONDS = 10.0
_LOOKS = 5


def view_rows(root: Path) -> list[Row]:
    """Return what one view costs the kernel, and sends to the page."""
    _prepare(root)
    command = [sys.executable, "-m", "tests.bench.scale", "samples", str(root)]
    writer = subprocess.Popen(command)
    try:
        return _watch(StoredRun(root))
    finally:
        writer.kill()
        writer.wait()


def _watch(run: StoredRun) -> list[Row]:
    sent: list[int] = []
    opened: list[tuple[float, float]] = []

    def send(message: dict[str, object]) -> None:
        opened.append((time.process_time(), time.monotonic()))
        sent.append(len(json.dumps(message)))

    follower = Follower(LiveRun(run), send)
    choice = {"view": "a", "rank": 0, "stream": "stderr", "text": ""}
    cpu, began = time.process_time(), time.monotonic()
    follower.handle({"kind": "open", **choice})
    while len(sent) < 6:
        time.sleep(0.05)
    sent.clear()
    before, window = time.process_time(), time.monotonic()
    while (passed := time.monotonic() - window) < WINDOW_SECONDS:
        time.sleep(min(_STILL_HERE_SECONDS, WINDOW_SECONDS))
        follower.handle({"kind": "here", **choice})
    percent = 100 * (time.process_time() - before) / passed
    follower.close()
    what = (
        f"{NODES} nodes x {GPUS} GPUs, a sample a second and node, behind "
        f"{_EARLIER_SECONDS} s of them; {passed:.0f} s"
    )
    return [
        row("live view of 512 nodes, kernel", percent, "% of a core",
            VIEW_LIMIT_PERCENT, what),
        row("live view of 512 nodes, to the page", sum(sent) / passed / 1e3, "kB/s",
            VIEW_LIMIT_KILOBYTES, what),
        row("live view of 512 nodes, first picture", opened[0][0] - cpu, "CPU s",
            OPEN_LIMIT_SECONDS, f"{opened[0][1] - began:.1f} s in all; {what}"),
    ]  # fmt: skip


def _prepare(root: Path) -> None:
    """Write the files of a run whose supervisor is this process."""
    me = ProcessIdentity.of().to_dict()
    (root / "system").mkdir(parents=True)
    job = {"id": "1", "cluster": None}
    submission = {"attempt": 0, "supervisor": None, "job": job, "owner": me}
    record = {
        "attempt": 0,
        "state": "running",
        "name": "scale",
        "supervisor": me,
        "launch": {"devices": [], "device_type": "cuda"},
        "time": {"running": "2020-01-01T00:00:00.000Z", "ended": None},
    }
    config = {"steps": 10_000_000, "gpus": GPUS, "nnodes": NODES}
    for name, values in (
        ("submission", submission),
        ("record", record),
        ("config", config),
    ):
        (root / f"{name}.json").write_text(json.dumps(values))
    now = time.time()
    template = _template()
    for node in range(NODES):
        lines = [
            _line(template, now - before, node)
            for before in range(_EARLIER_SECONDS, 0, -1)
        ]
        _file(root, node).write_text("".join(lines))


def write_samples(root: Path) -> None:
    """Write a line a second and node, until this process is ended."""
    template = _template()
    while True:
        began = time.time()
        for node in range(NODES):
            with _file(root, node).open("a") as file:
                file.write(_line(template, began, node))
        time.sleep(max(0.0, 1 - (time.time() - began)))


def _file(root: Path, node: int) -> Path:
    return root / "system" / f"n{node:03d}.jsonl"


def _template() -> str:
    """Return the line of a node whose GPUs are busy, without its time and name."""
    gpus = tuple(
        GpuSample(
            n,
            uuid=f"GPU-@n-{n}",
            gpu_utilization_percent=101,
            memory_used_bytes=70 << 30,
            memory_total_bytes=80 << 30,
            power_watts=650.0,
            power_limit_watts=700.0,
            sm_clock_mhz=1_755,
            energy_joules=123_456_789.0,
        )
        for n in range(GPUS)
    )
    sample = Sample(t=0.5, gpus=gpus, host=HostSample(cpu_percent=50.0))
    text = json.dumps({"kind": "sample", **sample.to_dict()}, separators=(",", ":"))
    text = text.replace('"t":0.5', '"t":@t', 1)
    return text.replace('_percent":101', '_percent":@u') + "\n"


def _line(template: str, t: float, node: int) -> str:
    """Return the line of a node, whose GPUs are now more and now less busy."""
    busy = str(90 + int(t) % 7)
    text = template.replace("@t", f"{t:.3f}").replace("@n", str(node))
    return text.replace("@u", busy)


def look_row(root: Path) -> Row:
    """Return what a run of that many ranks costs the server at each of its looks."""
    paths = RunPaths(root)
    elsewhere = {"pid": 1, "start_ticks": 1, "host": "a-node", "boot_id": "another"}
    for rank in range(NODES * GPUS):
        process = paths.rank(0, rank).process
        process.parent.mkdir(parents=True)
        process.write_text(json.dumps(elsewhere))
    table = StoredRunTable(None)
    assert table.poll([]).rows[0]["state"] == "running"
    before = time.process_time()
    for _ in range(_LOOKS):
        table.poll([])
    seconds = (time.process_time() - before) / _LOOKS
    what = f"one run of {NODES * GPUS:,} ranks on other hosts; a look every 2 s"
    return row("server's look at 512 nodes", 1e3 * seconds, "ms", LOOK_LIMIT_MS, what)


def supervisor_row(root: Path) -> Row:
    """Return what it costs a supervisor to hear the torchruns of all nodes."""
    paths = RunPaths(root)
    config = ExperimentConfig(gpus=GPUS, nnodes=NODES, task="allreduce")
    ranks = ManualRanks(config, paths, 0, TorchrunNodes(paths, 0))
    command = [sys.executable, "-m", "tests.bench.scale", "torchruns", str(root)]
    teller = subprocess.Popen(command)
    try:
        ranks.start()
        beats = ranks.beats()
        wakes, changes = 0, 0
        before, began = time.process_time(), time.monotonic()
        while (passed := time.monotonic() - began) < WINDOW_SECONDS:
            # What an attempt does while its ranks run.
            ranks.wait(0.1)
            wakes += 1
            if (new := ranks.beats()) != beats:
                beats, changes = new, changes + 1
        percent = 100 * (time.process_time() - before) / passed
    finally:
        teller.kill()
        teller.wait()
    assert changes > passed / 2, "what the torchruns tell has not come through"
    what = (
        f"{NODES} torchruns x {GPUS} ranks, a file a second each; "
        f"{passed:.0f} s, {wakes / passed:.0f} looks a second"
    )
    name = "supervisor hears 512 nodes"
    return row(name, percent, "% of a core", SUPERVISOR_LIMIT_PERCENT, what)


def tell_as_torchruns(root: Path) -> None:
    """Write what the torchruns of all nodes would, until this process is ended."""
    folder = RunPaths(root).torchrun(0)
    folder.mkdir(parents=True)
    step = 0
    while True:
        step += 1
        began = time.monotonic()
        for node in range(NODES):
            write_json(folder / f"n{node:03d}-1.json", _told(node, step))
        time.sleep(max(0.0, 1 - (time.monotonic() - began)))


def _told(node: int, step: int) -> dict[str, object]:
    """Return what the torchrun of a node tells at one of its looks."""
    rank = {
        "pid": 1,
        "start_ticks": 1,
        "has_ended": False,
        "returncode": None,
        "killed_by_us": False,
        "kernel_ran_out_of_memory": False,
        "beat": [step, int(Phase.COMPUTE), 6 * step, step - 1],
    }
    elsewhere = {"pid": 1, "start_ticks": 1, "host": "a-node", "boot_id": "another"}
    return {
        "host": f"n{node:03d}",
        "name": f"n{node:03d}",
        "group_rank": node,
        "process": elsewhere,
        "signal": None,
        "obeyed": [],
        "is_over": False,
        "looks": step,
        "ranks": [{"rank": node * GPUS + local, **rank} for local in range(GPUS)],
    }
