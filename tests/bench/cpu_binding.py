"""What it gives to bind ranks to CPUs: one training, bound and unbound in turn."""

from __future__ import annotations

import json
from collections.abc import Sequence

from nbkit.telemetry.cpus import usable_cpus
from nbkit.telemetry.topology import read_cpus
from tests.bench.rows import Row, ratio_row, spread
from tests.bench.settings import RANKS, SETTINGS, THREADS_PER_RANK, run_loop

ARMS = ("none", "numa", "cores")
ROUNDS = 60


def binding_rows() -> list[Row]:
    """Return images/s of bound ranks over those of unbound ones, for each binding."""
    found = run_loop("bound_loop.py", arms=ARMS, rounds=ROUNDS)
    rates: dict[str, list[float]] = found["rates"]
    return [
        ratio_row(
            f"cpu_binding {arm} / none, images/s",
            rates[arm],
            rates["none"],
            0.97,
            f"{ROUNDS} rounds of {found['steps']} steps with each, interleaved within "
            f"one training; {_host()}, {RANKS} gloo ranks with "
            f"OMP_NUM_THREADS={THREADS_PER_RANK}, {SETTINGS['model']} "
            f"{SETTINGS['image_size']} px, batch {SETTINGS['batch_size_per_gpu']}; "
            f"rank 0 on CPU {_listed(found['cpus'][arm])}; {arm} {spread(rates[arm])}, "
            f"none {spread(rates['none'])} images/s; ",
        )
        for arm in ARMS[1:]
    ]


def _listed(cpus: Sequence[int]) -> str:
    return ", ".join(map(str, cpus))


def _host() -> str:
    """Return what there was to choose from."""
    cpus = read_cpus()
    nodes = {cpu.numa_node for cpu in cpus if cpu.numa_node is not None}
    sockets = {cpu.socket for cpu in cpus if cpu.socket is not None}
    return (
        f"{usable_cpus():g} usable CPUs of {len(cpus)}, NUMA nodes: "
        f"{len(nodes) or 'unknown'}, sockets: {len(sockets) or 'unknown'}"
    )


if __name__ == "__main__":
    print(json.dumps(binding_rows(), indent=1))
