"""A run on 512 nodes of eight GPUs: what a live view of it and its supervisor cost.

The run's files are written by a process of its own, a sample a second and node, as that
many samplers would. The agents of the nodes are lines of another one, which stands in
for srun: a line a second and node, as that many agents would print.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from nbkit.config import ExperimentConfig
from nbkit.launch.slurm.agents import NodeAgents
from nbkit.launch.slurm.messages import beats_lines, line
from nbkit.live.run import LiveRun
from nbkit.server.run_table import RunTable
from nbkit.store.heartbeat import Beat, Phase
from nbkit.store.paths import RunPaths
from nbkit.store.processes import ProcessIdentity
from nbkit.store.stored_runs import StoredRun
from nbkit.telemetry.sample import GpuSample, HostSample, Sample
from nbkit.widgets.follower import Follower
from tests.bench.rows import Row, row

__all__ = [
    "GPUS",
    "NODES",
    "look_row",
    "print_as_srun",
    "supervisor_row",
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
_CHUNKS = 20  # of a second: agents do not speak all at once


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
    follower.hear({"kind": "open", **choice})
    while len(sent) < 6:
        time.sleep(0.05)
    sent.clear()
    before, window = time.process_time(), time.monotonic()
    while (passed := time.monotonic() - window) < WINDOW_SECONDS:
        time.sleep(min(_STILL_HERE_SECONDS, WINDOW_SECONDS))
        follower.hear({"kind": "here", **choice})
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
    table = RunTable(None)
    assert table.look([]).rows[0]["state"] == "running"
    before = time.process_time()
    for _ in range(_LOOKS):
        table.look([])
    seconds = (time.process_time() - before) / _LOOKS
    what = f"one run of {NODES * GPUS:,} ranks on other hosts; a look every 2 s"
    return row("server's look at 512 nodes", 1e3 * seconds, "ms", LOOK_LIMIT_MS, what)


def supervisor_row(root: Path) -> Row:
    """Return what it costs a supervisor to hear the agents of all nodes."""
    paths = RunPaths(root)
    config = ExperimentConfig(gpus=GPUS, nnodes=NODES, task="allreduce")
    names = [f"n{node:03d}" for node in range(NODES)]
    paths.logs.mkdir(exist_ok=True)
    for name in names:
        paths.system(name).touch()
    argv = [sys.executable, "-m", "tests.bench.scale", "srun"]
    agents = NodeAgents(config, paths, 0, names, argv, {}, lambda: False)
    agents.start()
    try:
        beats = agents.beats()
        wakes, changes = 0, 0
        before, began = time.process_time(), time.monotonic()
        while (passed := time.monotonic() - began) < WINDOW_SECONDS:
            # What an attempt does while its ranks run.
            agents.wait(0.1)
            wakes += 1
            if (new := agents.beats()) != beats:
                beats, changes = new, changes + 1
        percent = 100 * (time.process_time() - before) / passed
    finally:
        agents.close()
    assert changes > passed, "the agents' lines have not come through"
    what = (
        f"{NODES} agents x {GPUS} ranks, a line a second each through one pipe; "
        f"{passed:.0f} s, {wakes / passed:.0f} looks a second"
    )
    name = "supervisor hears 512 nodes"
    return row(name, percent, "% of a core", SUPERVISOR_LIMIT_PERCENT, what)


def print_as_srun() -> None:
    """Print what the agents of all nodes would, until the input ends."""
    out = sys.stdout.buffer
    for node in range(NODES):
        name = f"n{node:03d}"
        place = {"host": name, "address": "127.0.0.1", "port": 1}
        out.write(line("ready", agent=node, name=name, software={}, **place))
    out.flush()
    os.read(0, 1 << 16)  # the order to start
    for node in range(NODES):
        for local in range(GPUS):
            rank = {"rank": node * GPUS + local, "pid": 1, "start_ticks": 1}
            out.write(line("started", agent=node, **rank))
    step = 0
    os.set_blocking(0, False)
    while not _is_over():
        step += 1
        for chunk in range(_CHUNKS):
            for node in range(chunk, NODES, _CHUNKS):
                ranks = [Beat(step, Phase.COMPUTE, 6 * step)] * GPUS
                out.write(b"".join(beats_lines(node, ranks)))
            out.flush()
            time.sleep(1 / _CHUNKS)
    for node in range(NODES):
        out.write(line("gone", agent=node, stuck=[]))
    out.flush()


def _is_over() -> bool:
    try:
        return os.read(0, 1 << 16) == b""
    except BlockingIOError:
        return False
