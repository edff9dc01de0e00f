"""A report says of each arm what bounds it."""

from __future__ import annotations

import json
from itertools import count

import pytest

import nbkit
from nbkit.questions.study_report import make
from nbkit.reports.bottlenecks import ArmBottlenecks
from nbkit.review.causes import Cause, Diagnosis
from nbkit.telemetry.sample import GpuProcess
from tests.review.written_run import gpu, on_cpus, rank, samples, write_run
from tests.studies.written_study import write_runs

STORES = count()


@pytest.fixture
def run(tmp_path):
    """Return what writes a finished run; its ranks wait for input in a part of it."""

    def write(data_wait=0.0, **files):
        ranks = [rank(number, data_wait=data_wait) for number in (0, 1)]
        store = tmp_path / str(next(STORES))
        return write_run(store, **{"worker": {"ranks": ranks}, **files})

    return write


def test_bottlenecks_of_most_runs(run):
    arms = {
        "starved": [run(0.5), run(0.3), run(0.4), run()],
        "fp32": [run(), run(), run(0.2)],
        "bf16": [run()],
        "one": [run(0.3)],
    }

    bottlenecks = ArmBottlenecks(arms)
    table = bottlenecks.table()

    assert table is not None
    assert [row[:4] for row in table.rows] == [
        ["starved", "input", "40%", "3 of 4"],
        ["one", "input", "30%", "1 of 1"],
    ]
    starved = dict(zip(table.columns, table.rows[0], strict=True))
    assert starved["evidence"].startswith("Every rank waited for images 40% of the mea")
    assert starved["expected speedup"].startswith("up to 1.67x")
    assert bottlenecks.summary() == ["Bottlenecks: input (2 arms)."]


def test_bottlenecks_table_answered_cause(run):
    bottlenecks = ArmBottlenecks({"a": [run(0.5)]})

    table = bottlenecks.table(answered=["input"])

    assert table is not None
    [[*_, advice, speedup]] = table.rows
    assert (advice, speedup) == (None, None)
    assert bottlenecks.summary(answered=["input"]) == []
    assert bottlenecks.summary() == ["Bottlenecks: input (a)."]


def test_bottlenecks_to_dict(run):
    values = json.loads(
        json.dumps(ArmBottlenecks({"one": [run(0.5), run()]}).to_dict())
    )

    assert [one["bottleneck"] for one in values["one"]] == [
        "input (50% of the time)",
        None,
    ]


def test_bottlenecks_table_of_function(run):
    assert (
        ArmBottlenecks({"f": [run(0.5, config={"task": "function"})]}).table() is None
    )


def test_bottlenecks_without_disturbed_runs(run):
    others = samples(gpu(0, processes=(GpuProcess(4_001), GpuProcess(77))), gpu(1))
    disturbed = [run(0.5, sampled=others), run(0.4, sampled=others)]

    few = ArmBottlenecks({"fp32": [run(), run(), run(0.3), *disturbed]})
    starved = ArmBottlenecks({"fp32": [run(0.3), run(0.3), run(), *disturbed]})

    assert few.bottlenecks() == []
    [bottleneck] = starved.bottlenecks()
    assert bottleneck.cause.code == "input"
    assert bottleneck.runs == "2 of 3 undisturbed"


def test_disturbed_concurrent_jobs(run):
    strangers = samples(gpu(0, processes=(GpuProcess(4_001), GpuProcess(77))), gpu(1))
    starved = {"ranks": [rank(n, data_wait=0.3, cpu_queue=0.45) for n in (0, 1)]}
    arms = {
        "gpus": [run(sampled=strangers)],
        "cpus": [run(worker=starved, sampled=samples(cpu_percent=99))],
    }

    assert set(ArmBottlenecks(arms).disturbed()) == {"gpus", "cpus"}
    assert set(ArmBottlenecks(arms, concurrent_arms=arms).disturbed()) == {"gpus"}


def test_disturbed_round_by_other_processes(run):
    def disturbed(*cpus, cpu_percent=99, **values):
        alike = {"communication_exposed": 0.0, "cpu_queue": 0.45, **values}
        full = samples(cpu_percent=cpu_percent)
        jobs = [
            run(worker=on_cpus(rank(0, cpu=cpu, **alike)), sampled=full) for cpu in cpus
        ]
        arms = {f"job {number}": [job] for number, job in enumerate(jobs)}
        found = ArmBottlenecks(arms, concurrent_arms=arms, rounds=[jobs])
        assert {*found.disturbed()} in ({*arms}, set())
        return [one.evidence for [[one]] in found.disturbed().values()]

    same = disturbed(24, 20)
    assert same == 2 * [
        "Other processes used 19.4 of 64 CPUs, these 2 jobs 44.0; a rank was runnable "
        "but off-CPU 45% of the time."
    ]
    assert disturbed(31, 30) == []  # what each lacks, the other one has
    assert disturbed(24, 20, cpu_queue=0.05) == []
    # Others may all have been on CPUs that the jobs may not use.
    assert disturbed(2.4, 2.4, cpu_percent=70, cpus=[0, 1, 2, 3, 4, 5]) == []
    assert disturbed(24, 20, cpu_seconds=None) == []


def test_bottlenecks_damaged_round(run):
    damaged = run(worker=on_cpus(rank(0, cpus=5)))
    arms = {"job 0": [run(0.3)]}

    found = ArmBottlenecks(
        arms, concurrent_arms=arms, rounds=[[*arms["job 0"], damaged]]
    )

    assert found.disturbed() == {}
    assert "waited for images 30% of" in found.bottlenecks()[0].cause.evidence


def test_disturbed_round_on_gpus(run):
    def disturbed(*waits):
        full = samples(cpu_percent=99)
        told = [
            {"ranks": [rank(n, data_wait=wait, cpu_queue=0.2) for n in (0, 1)]}
            for wait in waits
        ]
        jobs = [run(worker=one, sampled=full) for one in told]
        arms = {f"job {number}": [job] for number, job in enumerate(jobs)}
        return {*ArmBottlenecks(arms, concurrent_arms=arms, rounds=[jobs]).disturbed()}

    assert disturbed(0.0, 0.0) == set()
    assert disturbed(0.4, 0.0) == {"job 0", "job 1"}


def test_disturbed_runs_in_report(store, monkeypatch):
    base = nbkit.ExperimentConfig(model="resnet18", batch_size_per_gpu=8, steps=20)
    study = nbkit.Study.create("few", {"a": base}, repeats=3)
    write_runs(study, {"a": 100.0})
    runs = [run.run_id for run in study.runs_by_arm()["a"]]
    held = Cause.of("throttled", 0.4, "Clocks were held down.", "Leave.", None)

    def method_if(disturbed):
        monkeypatch.setattr(
            "nbkit.reports.bottlenecks.diagnose",
            lambda run: Diagnosis("a run", [held] * (run.run_id in disturbed)),
        )
        lines = make(study).method
        return [line for line in lines if line.startswith("Disturbed: ")]

    [line] = method_if(runs[1:2])
    assert line.startswith(f"Disturbed: 1 of 3 runs ({runs[1]}). ")
    assert "remove their folders and call resume()" in line
    assert method_if(runs[1:]) == []
    assert ArmBottlenecks(study.runs_by_arm()).disturbed_runs == []
    assert method_if([]) == []
