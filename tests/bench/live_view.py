"""What a live view costs the kernel: 64 ranks that write ten times a second.

A process of its own writes a run's files at that rate: steps, a sample of the GPUs each
second, and ten lines a second in each rank's log. This process follows the run as a
kernel does, for one viewer that reads a log, and counts its own time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from nbkit.live.follower import Follower
from nbkit.live.run import LiveRun
from nbkit.store.metrics import to_json_line
from nbkit.store.processes import ProcessIdentity
from nbkit.store.stored_runs import StoredRun
from nbkit.telemetry.sample import GpuSample, HostSample, Sample
from tests.bench.rows import Row, row

RANKS = 64
GPUS_PER_HOST = 8
STEPS_PER_SECOND = 10
EARLIER_STEPS = 100_000
WINDOW_SECONDS = float(os.environ.get("NBKIT_BENCH_WINDOW", "15"))
STILL_HERE_SECONDS = 10.0
"""A page says so often that it is there."""
LIMIT_PERCENT = 5.0


def live_view_row() -> Row:
    """Measure one view, in percent of a core."""
    with tempfile.TemporaryDirectory() as home:
        root = Path(home) / "runs" / "20200101-000000-live-aaaa"
        prepare(root)
        command = [sys.executable, "-m", "tests.bench.live_view", str(root)]
        writer = subprocess.Popen(command)
        try:
            return _measure(StoredRun(root))
        finally:
            writer.kill()
            writer.wait()


def _measure(run: StoredRun) -> Row:
    sent: list[int] = []
    # As the kernel's comm does it.
    follower = Follower(LiveRun(run), lambda m: sent.append(len(json.dumps(m))))
    choice = {"view": "a", "rank": 0, "stream": "stderr", "text": ""}
    follower.handle({"kind": "open", **choice})
    while len(sent) < 10:
        time.sleep(0.1)
    sent.clear()
    before, began = time.process_time(), time.monotonic()
    while (passed := time.monotonic() - began) < WINDOW_SECONDS:
        time.sleep(min(STILL_HERE_SECONDS, WINDOW_SECONDS))
        follower.handle({"kind": "here", **choice})
    percent = 100 * (time.process_time() - before) / passed
    follower.close()
    kilobytes = sum(sent) / passed / 1e3
    what = (
        f"{RANKS} ranks x {STEPS_PER_SECOND} Hz behind {EARLIER_STEPS:,} steps, "
        f"{passed:.0f} s; {kilobytes:.1f} kB/s to the page"
    )
    return row("live view in the kernel", percent, "% of a core", LIMIT_PERCENT, what)


def prepare(root: Path) -> None:
    """Write the files of a run whose supervisor is this process."""
    me = ProcessIdentity.of().to_dict()
    root.mkdir(parents=True)
    submission = {"attempt": 0, "supervisor": me, "owner": me, "devices": []}
    launch = {"devices": [], "device_type": "cuda"}
    record = {
        "attempt": 0,
        "state": "running",
        "name": "live",
        "supervisor": me,
        "launch": launch,
        "time": {"running": "2020-01-01T00:00:00.000Z", "ended": None},
        # As long as a record is that has an environment and a machine.
        "environment": {"packages": {f"package-{n}": "1.2.3" for n in range(400)}},
    }
    config = {"steps": 10_000_000, "gpus": GPUS_PER_HOST, "nnodes": 8}
    for name, values in (
        ("submission", submission),
        ("record", record),
        ("config", config),
    ):
        (root / f"{name}.json").write_text(json.dumps(values))
    (root / "system").mkdir()
    steps = range(1, EARLIER_STEPS + 1)
    (root / "metrics.jsonl").write_text("".join(map(_step, steps)))


def _write(root: Path) -> None:
    """Write as the run's processes do, until this one is ended."""
    logs = [root / "logs" / "0" / str(rank) for rank in range(RANKS)]
    for folder in logs:
        folder.mkdir(parents=True)
    files = [(folder / "stderr.log").open("a", buffering=1) for folder in logs]
    hosts = [root / "system" / f"host{n}.jsonl" for n in range(RANKS // GPUS_PER_HOST)]
    samples = [path.open("a", buffering=1) for path in hosts]
    with (root / "metrics.jsonl").open("a", buffering=1) as metrics:
        step = EARLIER_STEPS
        while True:
            step += 1
            metrics.write(_step(step))
            for rank, file in enumerate(files):
                file.write(f"step {step} on rank {rank}: loss 0.123, all is well\n")
            if step % STEPS_PER_SECOND == 0:
                for file in samples:
                    file.write(_sample())
            time.sleep(1 / STEPS_PER_SECOND)


def _step(step: int) -> str:
    return to_json_line(
        {
            "kind": "step",
            "attempt": 0,
            "epoch": 0,
            "step": step,
            "t": time.time(),
            "loss": 1 / step,
            "learning_rate": 0.1,
            "images": 4096,
            "step_time_seconds": 0.1,
            "data_wait_seconds": 0.001,
            "compute_seconds": 0.09,
            "communication_exposed_seconds": 0.009,
            "warmup": False,
        }
    )


def _sample() -> str:
    gpus = tuple(
        GpuSample(
            n,
            uuid=f"GPU-{n}",
            gpu_utilization_percent=97,
            memory_used_bytes=70 << 30,
            memory_total_bytes=80 << 30,
            power_watts=650.0,
            power_limit_watts=700.0,
        )
        for n in range(GPUS_PER_HOST)
    )
    sample = Sample(t=time.time(), gpus=gpus, host=HostSample(cpu_percent=50.0))
    return to_json_line({"kind": "sample", **sample.to_dict()})


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _write(Path(sys.argv[1]))
    else:
        print(json.dumps(live_view_row()))
