"""Trainings that are stopped in checks and evaluations, bound, damaged or shared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from PIL import Image

import nbkit
from nbkit.config.pipeline import PIPELINES
from nbkit.datasets import pack
from nbkit.datasets.manifest import read_manifest
from nbkit.errors import RunFailedError
from nbkit.questions.machines.facts import machine_facts
from nbkit.reproduction.cpu_bindings import bound_to
from nbkit.store.bundle import files_of_run
from nbkit.store.predictions import read_predictions
from nbkit.store.record import RunState, read_json
from nbkit.telemetry.topology import read_cpus
from nbkit.worker.data import source
from tests.datasets.images import picture as numbered_picture
from tests.launch.conftest import plugins, small, store
from tests.launch.test_label_weighting import scores_of_rare, weighted
from tests.launch.test_training import images
from tests.training import train_here
from tests.waiting import wait_until
from tests.worker.conftest import flat, new_run
from tests.worker.images import CLASSES, config_of

__all__ = ["flat", "images", "new_run", "plugins", "small", "store", "weighted"]


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
    assert {one["requested"] for one in bindings} == {"numa"}
    nodes = {cpu.number: cpu.numa_node for cpu in read_cpus()}
    for one, said in zip(bindings, run.worker["ranks"], strict=True):
        assert one["cpus"] == said["cpus"], "where it still was at its end"
        assert {nodes[cpu] for cpu in one["cpus"]} == {*(one["numa_nodes"] or [None])}
    if len(set(nodes.values())) == 1:
        assert first["cpus"] == second["cpus"] == sorted(os.sched_getaffinity(0))
        assert first["reason"] is not None
        assert first["shared_by"] == 2
    words = bound_to(run)
    assert words.startswith("numa: ")
    assert machine_facts([run])["CPU binding"] == words
    differences = nbkit.compare(unbound, run).differences
    assert ("devices", "bound_to", "none", words) in [
        (one.part, one.name, one.a, one.b) for one in differences
    ]
    assert {one["requested"] for one in unbound.worker["bindings"]} == {"none"}


def test_pipeline_shared_by_two_ranks(small, tmp_path):
    data = pack(
        "photos",
        tmp_path / "data",
        "tfrecord",
        shard_megabytes=4,
        on_progress=lambda done, total: None,
    )

    run = nbkit.launch(
        small(
            gpus=2,
            data=str(data),
            loader="tfrecord",
            loader_config={"pipeline": "chexnet_new", "num_workers": 2},
            batch_size_per_gpu=32,
            epochs=2,
            steps=None,
            evaluation_period_epochs=2,
        )
    ).wait()

    assert run.state is RunState.FINISHED
    kept = run.worker["data"]
    steps = run.worker["steps_per_epoch"]
    assert kept["pipeline"] == PIPELINES["chexnet_new"]
    assert kept["train_images"] + kept["dropped_images"] == 400
    assert steps == kept["train_images"] // 64 > 1
    lines = run.metrics()
    assert [line["epoch"] for line in lines] == [0] * steps + [1] * steps
    [evaluated] = run.metrics("evaluation")
    assert 0 <= evaluated["top1_accuracy"] <= 1


def test_damaged_image_during_training(small, images):
    run = nbkit.launch(small(data=str(images), model="slow", steps=None, epochs=50))
    wait_until(lambda: len(run.metrics()) >= 2, "two steps", 120)
    (images / "train" / "bright" / "7.jpg").write_bytes(b"no image")

    with pytest.raises(
        RunFailedError, match=r"bright/7.jpg is no longer a readable image"
    ):
        run.wait()

    assert run.cause["kind"] == "config"


def named(manifest):
    images = manifest.evaluation
    return [images.name(number) for number in range(len(images))]


def test_predictions_of_classes(small, tmp_path):
    for split, count in (("train", 8), ("val", 5)):
        for name in ("one", "two, or three"):
            folder = tmp_path / "data" / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                numbered_picture(10 * number + len(name)).save(folder / f"{number}.png")

    run = nbkit.launch(
        small(
            data=str(tmp_path / "data"),
            gpus=2,
            num_classes=3,
            steps=2,
            warmup_steps=0,
            evaluation_period_epochs=1,
        )
    ).wait()

    evaluation = run.metrics("evaluation")[-1]
    found = read_predictions(run.paths.predictions)
    assert [*found.files] == named(read_manifest(run.paths.manifest))
    assert [name.split("/")[1] for name in found.files] == [*found.labels]
    right = [a == b for a, b in zip(found.labels, found.predicted, strict=True)]
    assert (sum(right), len(right)) == (evaluation["correct"], evaluation["images"])
    assert {*found.predicted} <= {"one", "two, or three", "output 2"}
    assert all(1 / 3 < score <= 1 for score in found.scores)
    assert "predictions.csv" in [
        name for name, _, why in files_of_run(run.paths.root) if why is None
    ]


def test_label_weighting_on_one_and_two_devices(weighted):
    one = train_here(weighted)
    two = nbkit.launch(weighted.replace(gpus=2, batch_size_per_gpu=4)).wait()

    alike = pytest.approx(scores_of_rare(one), rel=1e-4, abs=1e-5)
    assert scores_of_rare(two) == alike


WAITING = """
import signal, sys
from pathlib import Path
from nbkit.config import ExperimentConfig
from nbkit.store.paths import RunPaths
from nbkit.worker.data import source
from nbkit.worker.rank import Rank

rank = Rank(RunPaths(Path(sys.argv[1])), 1, 1, 2, 2, 0, None)
rank.answer_requests_to_stop()
answer = signal.getsignal(signal.SIGTERM)
print("ready", flush=True)
manifest = source.prepare(ExperimentConfig(data=sys.argv[2]), rank)
assert signal.getsignal(signal.SIGTERM) == answer != signal.SIG_DFL
print(len(manifest.train))
"""


def waiting_rank(root, run):
    return subprocess.Popen(
        [sys.executable, "-c", WAITING, str(run.paths.root), str(root)],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_ranks_wait_for_the_first_unless_stopped(flat, new_run):
    run = new_run()
    with waiting_rank(flat, run) as waiting, waiting_rank(flat, run) as stopped:
        for process in (waiting, stopped):
            assert process.stdout.readline() == "ready\n"
        stopped.send_signal(signal.SIGTERM)
        assert stopped.wait(60) == -signal.SIGTERM
        source.prepare(config_of(flat), new_run())

        output, _ = waiting.communicate(timeout=60)

    assert (waiting.returncode, output) == (0, f"{CLASSES}\n")


def test_a_run_that_is_stopped_while_it_is_profiled_ends_as_any_other(small):
    config = small(model="slow", profile=True, warmup_steps=1, steps=1_000, gpus=1)
    run = nbkit.launch(config)

    wait_until(lambda: len(run.metrics()) >= 2, "the profile has begun")
    run.stop()

    assert run.state is RunState.STOPPED
    assert any(run.paths.checkpoints.iterdir())
