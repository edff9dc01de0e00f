"""Trainings that are stopped where it takes long to get: in checks and evaluations."""

from __future__ import annotations

import os

from PIL import Image

import nbkit
from nbkit.questions.machines.facts import machine_facts
from nbkit.reproduction.cpu_bindings import bound_to
from nbkit.store.record import RunState, read_json
from nbkit.telemetry.topology import read_cpus
from tests.launch.conftest import plugins, small, store
from tests.launch.test_training import images
from tests.waiting import wait_until

__all__ = ["images", "plugins", "small", "store"]


def test_stop_while_checking_images(small, images):
    # One large photograph by many names: each is decoded, which takes minutes.
    large = images / "val" / "dark" / "zz.jpg"
    Image.effect_noise((3000, 3000), 50).convert("RGB").save(large)
    for number in range(2000):
        os.link(large, large.with_stem(f"zz{number}"))

    run = nbkit.launch(small(data=str(images), gpus=2))
    wait_until(lambda: "checked" in run.logs(stream="stdout"), "the first images")
    run.stop()

    assert run.state is RunState.STOPPED
    assert run.cause["forced"] is False
    assert "before its ranks were ready" in run.cause["message"]


def test_resume_before_evaluation(small):
    # Evaluating takes long in the first attempt, and a moment in the second.
    config = small(
        model="ponders",
        gpus=2,
        steps=2,
        warmup_steps=1,
        images_per_epoch=80_000,
        evaluation_period_epochs=1,
        stop_grace_seconds=100,
    )
    run = nbkit.launch(config)
    wait_until(lambda: len(run.metrics()) == 2, "the last step", 120)
    run.stop()
    assert run.state is RunState.STOPPED
    assert run.cause["forced"] is False
    assert not run.metrics("evaluation")

    run.resume().wait()

    (evaluation,) = run.metrics("evaluation")
    assert evaluation["images"] == 4_000
    assert [line["step"] for line in run.metrics()] == [1, 2]


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
