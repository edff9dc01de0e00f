"""A sampler's process that a test directs: it writes the lines of a real one.

``STAND_IN`` in the environment holds JSON: ``gpus`` and ``cores`` (how many), ``past``
(rows to answer ``read_history`` with), ``heard`` (a file that gets every command),
``garbage`` (whether a line is none of a sampler once there were three samples).
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import sys
import threading
import time
from pathlib import Path

GPU_COLUMNS = [
    "utilization_percent",
    "memory_used_mib",
    "memory_reserved_mib",
    "power_watts",
    "temperature_celsius",
]
HOST_COLUMNS = ["cpu_percent", "memory_used_mib"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--interval", type=float)
    parser.add_argument("--parent-fd", type=int)
    arguments = parser.parse_args()
    plan = json.loads(os.environ.get("STAND_IN", "{}"))
    threading.Thread(target=listen, args=(plan,), daemon=True).start()
    say(inventory(arguments.interval, plan.get("gpus", 2)))
    number = 0
    while True:
        number += 1
        if number > 3 and plan.get("garbage"):
            sys.stdout.write("{no JSON\n")
            sys.stdout.flush()
            threading.Event().wait()
        say(sample(number, plan.get("gpus", 2), plan.get("cores", 64)))
        if select.select([arguments.parent_fd], [], [], arguments.interval)[0]:
            return


def listen(plan: dict) -> None:
    for line in sys.stdin:
        command = json.loads(line)
        if "heard" in plan:
            with Path(plan["heard"]).open("a") as file:
                file.write(line)
        if command.get("read_history") and "past" in plan:
            say({"kind": "past", "rows": plan["past"]})


def inventory(interval_seconds: float, gpus: int) -> dict:
    return {
        "kind": "inventory",
        "t": now(),
        "host": socket.gethostname(),
        "interval_seconds": interval_seconds,
        "gpu_columns": GPU_COLUMNS,
        "host_columns": HOST_COLUMNS,
        "gpus_unavailable": None,
        "gpus": [
            {
                "index": index,
                "uuid": f"GPU-{index}",
                "name": "a GPU",
                "error": None,
                "memory_total_mib": 80_000,
                "memory_unified": False,
                "power_limit_watts": 700,
                "holders": [],
            }
            for index in range(gpus)
        ],
        "cpus": 64,
        "usable_cpus": None,
        "memory_total_mib": 1_000_000,
        "memory_limit_mib": None,
    }


def sample(number: int, gpus: int, cores: int) -> dict:
    return {
        "kind": "sample",
        "t": now(),
        "host": socket.gethostname(),
        "gpus": [[number % 100, 40_000, 500, 350.0, 60] for _ in range(gpus)],
        "holders": [[] for _ in range(gpus)],
        "cores": [number % 100] * cores,
        "host_values": [50, 250_000],
    }


def say(values: dict) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def now() -> float:
    return round(time.time(), 3)


if __name__ == "__main__":
    main()
