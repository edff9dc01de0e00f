"""What a run records of the CPUs that its ranks were bound to, and who shows it."""

from __future__ import annotations

import os
from types import SimpleNamespace

import nbkit
from nbkit.questions.machines.facts import machine_facts
from nbkit.reproduction.cpu_bindings import bound_to
from nbkit.store.record import read_json
from nbkit.telemetry.topology import read_cpus


def test_cpu_binding_numa(small):
    unbound = nbkit.launch(small(gpus=2, steps=4)).wait()

    run = nbkit.launch(small(gpus=2, steps=4, cpu_binding="numa")).wait()

    first, second = bindings = run.worker["bindings"]
    assert run.record["worker"]["bindings"] == bindings
    assert [one["rank"] for one in bindings] == [0, 1]
    assert {one["asked"] for one in bindings} == {"numa"}
    nodes = {cpu.number: cpu.numa_node for cpu in read_cpus()}
    for one, said in zip(bindings, run.worker["ranks"], strict=True):
        assert one["cpus"] == said["cpus"], "where it still was at its end"
        assert {nodes[cpu] for cpu in one["cpus"]} == {*(one["numa_nodes"] or [None])}
    if len(set(nodes.values())) == 1:
        assert first["cpus"] == second["cpus"] == sorted(os.sched_getaffinity(0))
        assert first["why_not"] is not None
        assert first["shared_by"] == 2
    words = bound_to(run)
    assert words.startswith("numa: ")
    assert machine_facts([run])["CPU binding"] == words
    differences = nbkit.compare(unbound, run).differences
    assert ("devices", "bound_to", "none", words) in [
        (one.part, one.name, one.a, one.b) for one in differences
    ]
    assert {one["asked"] for one in unbound.worker["bindings"]} == {"none"}


def test_cpu_binding_of_function(small):
    def cpus():
        import os

        return sorted(os.sched_getaffinity(0))

    fields = {"gpus": 2, "device": "cpu", "oversubscribe": True}
    run = nbkit.launch(cpus, cpu_binding="cores", **fields).wait()

    first, second = run.returns
    usable = sorted(os.sched_getaffinity(0))
    assert {*first, *second} <= {*usable}
    assert len(usable) < 2 or not {*first} & {*second}
    [told] = read_json(run.paths.worker)["bindings"]
    assert (told["rank"], told["cpus"]) == (0, first)


def test_bound_to_words():
    def told(asked, *bindings):
        config = nbkit.ExperimentConfig(cpu_binding=asked)
        lines = [
            {"rank": rank, "asked": asked, "cpus": cpus, **place}
            for rank, (cpus, place) in enumerate(bindings)
        ]
        return bound_to(SimpleNamespace(config=config, worker={"bindings": lines}))

    near = [([0, 1], {"sockets": [n], "numa_nodes": [n, 8]}) for n in (0, 0, 0, 1)]
    lost = ([5], {"sockets": None, "numa_nodes": None, "why_not": "nobody knows"})

    assert told("none", lost) == "none"
    assert told("numa") is None
    assert told("socket", *near, near[0]) == (
        "socket: 2 CPUs of socket 0 (ranks 0-2,4), 2 CPUs of socket 1 (rank 3)"
    )
    assert told("numa", near[0], lost) == (
        "numa: 2 CPUs of NUMA nodes 0 and 8 (rank 0), 1 CPU, nobody knows (rank 1)"
    )
