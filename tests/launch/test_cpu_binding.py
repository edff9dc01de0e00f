"""What a run records of the CPUs that its ranks were bound to, and who shows it."""

from __future__ import annotations

from types import SimpleNamespace

import nbkit
from nbkit.reproduction.cpu_bindings import bound_to


def test_bound_to_words():
    def told(requested, *bindings):
        config = nbkit.ExperimentConfig(cpu_binding=requested)
        lines = [
            {"rank": rank, "requested": requested, "cpus": cpus, **place}
            for rank, (cpus, place) in enumerate(bindings)
        ]
        return bound_to(SimpleNamespace(config=config, worker={"bindings": lines}))

    near = [([0, 1], {"sockets": [n], "numa_nodes": [n, 8]}) for n in (0, 0, 0, 1)]
    lost = ([5], {"sockets": None, "numa_nodes": None, "reason": "nobody knows"})

    assert told("none", lost) == "none"
    assert told("numa") is None
    assert told("socket", *near, near[0]) == (
        "socket: 2 CPUs of socket 0 (ranks 0-2,4), 2 CPUs of socket 1 (rank 3)"
    )
    assert told("numa", near[0], lost) == (
        "numa: 2 CPUs of NUMA nodes 0 and 8 (rank 0), 1 CPU, nobody knows (rank 1)"
    )
