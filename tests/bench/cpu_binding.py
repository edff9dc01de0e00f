"""What it gives to bind ranks to CPUs: the same training bound and unbound."""

from __future__ import annotations

import nbkit
from nbkit.study.cpu_bindings import bound_to
from nbkit.telemetry.cpus import usable_cpus
from nbkit.telemetry.topology import read_cpus
from tests.bench.rows import Row, ratio_row
from tests.bench.settings import RANKS, SETTINGS, THREADS_PER_RANK, nbkit_fields

ARMS = ("none", "numa", "cores")


def binding_rows(rounds: int) -> list[Row]:
    """Return images/s of bound ranks over those of unbound ones, for each binding.

    Parameters
    ----------
    rounds
        How often every arm runs; forward and backward in turn.
    """
    rates: dict[str, list[float]] = {arm: [] for arm in ARMS}
    places: dict[str, str | None] = {}
    for number in range(rounds):
        for arm in ARMS if number % 2 == 0 else reversed(ARMS):
            run = nbkit.launch(**nbkit_fields(cpu_binding=arm)).wait()
            rate = run.summary.images_per_second
            assert rate is not None
            rates[arm].append(rate)
            places[arm] = bound_to(run)
            print(
                f"round {number + 1}/{rounds} cpu_binding={arm}: {rate:.1f} images/s",
                flush=True,
            )
    return [
        ratio_row(
            f"cpu_binding {arm} / none, images/s",
            rates[arm],
            rates["none"],
            0.97,
            f"{rounds} interleaved rounds, {_host()}, {RANKS} gloo ranks with "
            f"OMP_NUM_THREADS={THREADS_PER_RANK}, {SETTINGS['model']} "
            f"{SETTINGS['image_size']} px, batch {SETTINGS['batch_size_per_gpu']}, "
            f"{SETTINGS['steps']} steps; bound by {places[arm]}; ",
        )
        for arm in ARMS[1:]
    ]


def _host() -> str:
    """Return what there was to choose from."""
    cpus = read_cpus()
    nodes = {cpu.numa_node for cpu in cpus if cpu.numa_node is not None}
    sockets = {cpu.socket for cpu in cpus if cpu.socket is not None}
    return (
        f"{usable_cpus():g} usable CPUs of {len(cpus)}, NUMA nodes: "
        f"{len(nodes) or 'unknown'}, sockets: {len(sockets) or 'unknown'}"
    )
