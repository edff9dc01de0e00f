"""Runs are judged by what their files say."""

from __future__ import annotations

import json
import random
import re
from itertools import count

import pytest

from nbkit.review.findings import Audit
from nbkit.review.run_checks import arm_findings, run_findings
from tests.widgets.stored_run import WrittenRun, step

STORES = count()
WORKER = {
    "device_type": "cuda",
    "devices": [{"name": "NVIDIA A100-SXM4-80GB", "compute_capability": [8, 0]}] * 2,
    "world_size": 2,
    "batch_size_per_gpu": 50,
    "global_batch_size": 100,
    "torch": "2.9.0",
    "data": {"fingerprint": {"files": 1_000, "bytes": 100_000_000}},
}
RECORD = {
    "time": {
        "started": "2020-01-01T00:00:00.000Z",
        "running": "2020-01-01T00:00:05.000Z",
        "ended": "2020-01-01T00:02:00.000Z",
    },
    "launch": {"oversubscribed": False, "replayed": False},
    "machine": {"hostname": "node1", "usable_memory_bytes": 10_000_000},
    "system": {
        "seconds": 100.0,
        "driver_version": "580.65.06",
        "other_gpu_processes": 0,
        "gpus": {"GPU-1": {"slowed_seconds": 0.0}, "GPU-2": {"slowed_seconds": 0.5}},
    },
}
BOUND = [
    {"rank": 0, "requested": "numa", "reason": None},
    {"rank": 1, "requested": "numa", "reason": "the kernel reports no NUMA nodes"},
]
MIXED = [
    {"name": "NVIDIA A100-SXM4-80GB", "compute_capability": [8, 0]},
    {"name": "NVIDIA H100 80GB HBM3", "compute_capability": [9, 0]},
]
CONFIG = {"precision": "fp16", "memory_format": "channels_last", "data": "/images"}


def idle(number, seconds):
    """Return a step that does not wait for data."""
    return step(number, step_time_seconds=seconds, data_wait_seconds=0.0)


@pytest.fixture
def written(tmp_path):
    """Return what writes the files of a finished run of two GPUs without a fault."""

    def write(*, config=(), worker=(), record=(), state="finished", steps=None):
        store = tmp_path / str(next(STORES))
        run = WrittenRun(store, **(CONFIG | dict(config)))
        run.record(state, **(RECORD | dict(record)))
        run.run.paths.worker.write_text(json.dumps(WORKER | dict(worker)))
        lines = [step(number, data_wait_seconds=0.01) for number in range(1, 61)]
        run.append(*(lines if steps is None else steps))
        return run.run

    return write


def found(run):
    return [finding.code for finding in run_findings(run)]


def test_a_healthy_run_has_no_finding(written):
    assert found(written()) == []


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"state": "failed"}, "unfinished"),
        ({"config": {"memory_format": "channels_first"}}, "layout"),
        ({"worker": {"device_type": "cpu"}}, "cpu"),
        ({"record": {"launch": {"replayed": True}}}, "replayed"),
        ({"record": {"launch": {"oversubscribed": True}}}, "oversubscribed"),
        ({"worker": {"devices": MIXED}}, "mixed-gpus"),
        (
            {
                "record": {
                    "launch": {"unverified_devices": {"GPU-1": "process 7, maybe ..."}}
                }
            },
            "shared-gpu",
        ),
        ({"record": {"machine": {"usable_memory_bytes": 10**12}}}, "cached-data"),
        ({"record": {"system": {"other_gpu_processes": 2}}}, "shared-gpu"),
        (
            {
                "record": {
                    "system": {"seconds": 9.0, "gpus": {"1": {"slowed_seconds": 3}}}
                }
            },
            "reduced-clocks",
        ),
        ({"worker": {"global_batch_size": 128}}, "batch"),
        ({"worker": {"bindings": BOUND}}, "unbound"),
        (
            {
                "record": {
                    "time": RECORD["time"] | {"ended": "2020-01-01T00:00:30.000Z"}
                }
            },
            "step-sum",
        ),
        (
            {"steps": [step(n, data_wait_seconds=0.0) for n in range(1, 20)]},
            "few-steps",
        ),
        ({"steps": [step(n) for n in range(1, 61)]}, "input-bound"),
        ({"steps": [idle(n, 0.02 if n % 4 else 1.0) for n in range(1, 61)]}, "bursts"),
        (
            {"steps": [idle(n, 20.0 if n == 30 else 1.0) for n in range(1, 61)]},
            "bursts",
        ),
        (
            {
                "steps": [
                    step(n, data_wait_seconds=0.0, loss=None) for n in range(1, 61)
                ]
            },
            "divergence",
        ),
    ],
)
def test_what_is_wrong_with_a_run_is_found_and_nothing_else(written, files, code):
    assert found(written(**files)) == [code]


def drawn(change, scatter=0.02):
    """Return ninety steps of a tenth of a second that change, with a seeded scatter."""
    noise = random.Random(1)
    return [
        idle(n, 0.1 * change(n / 90) * noise.lognormvariate(0, scatter))
        for n in range(1, 91)
    ]


@pytest.mark.parametrize(
    ("change", "first", "last"),
    [
        (lambda part: 1 + part, 100 / 0.1167, 100 / 0.1833),
        (lambda part: 1 if part < 0.7 else 1.1, 1000, 100 / 0.11),
        (lambda part: 3 if part < 0.2 else 1, 3000 / 6.4, 1000),
        (lambda part: 1.06 - 0.06 * part, 100 / 0.105, 100 / 0.101),
    ],
    ids=["slowing", "throttled at the end", "long warm-up", "warming up"],
)
def test_drift_within_a_run_is_found_with_both_rates(written, change, first, last):
    [finding] = [
        one for one in run_findings(written(steps=drawn(change))) if one.code == "drift"
    ]

    rates = [
        float(rate.replace(",", ""))
        for rate in re.findall(r"[\d.,]+\d", finding.evidence)
    ]
    assert rates == pytest.approx([first, last], rel=0.02)


@pytest.mark.parametrize(
    "steps",
    [
        drawn(lambda part: 1, scatter=0.3),
        drawn(lambda part: 1.01 - 0.01 * part, scatter=0.001),
        [idle(n, 3.0 if n % 8 == 0 else 0.01) for n in range(1, 91)],
        [idle(n, 0.1 * n) for n in range(1, 15)],
    ],
    ids=["scatter", "within the margin", "bursts", "too few steps"],
)
def test_drift_is_not_found_within_the_scatter(written, steps):
    assert "drift" not in found(written(steps=steps))


def test_how_many_ranks_are_not_bound_and_why_is_said(written):
    [finding] = run_findings(written(worker={"bindings": BOUND}))

    assert finding.evidence == (
        "cpu_binding=numa, 1 of 2 ranks; rank 1: the kernel reports no NUMA nodes"
    )
    free = [{"rank": 0, "requested": "none", "reason": None}]
    assert found(written(worker={"bindings": free})) == []


@pytest.mark.parametrize(
    ("config", "devices", "codes"),
    [
        ({"model": "vit_b_16"}, WORKER["devices"], []),
        ({"precision": "fp32"}, WORKER["devices"], []),
        ({"compile": True}, WORKER["devices"], ["layout"]),
        ({}, [{"name": "Tesla P100", "compute_capability": [6, 0]}] * 2, []),
    ],
)
def test_layout_costs_convolutions_on_tensor_cores(written, config, devices, codes):
    config = {"memory_format": "channels_first", **config}

    assert found(written(config=config, worker={"devices": devices})) == codes


def test_faster_than_the_gpu_can_be_is_an_error(written):
    fast = [
        step(n, data_wait_seconds=0.0, step_time_seconds=1e-3) for n in range(1, 61)
    ]

    audit = Audit(
        "run", run_findings(written(config={"model": "resnet50"}, steps=fast))
    )

    assert [finding.code for finding in audit.errors] == ["impossible-throughput"]
    assert "50,000 images/s per GPU" in audit[0].evidence
    assert found(written(config={"image_size": 64}, steps=fast)) == []


def test_a_run_that_says_next_to_nothing_is_judged_all_the_same(written):
    run = written(worker={"devices": [], "data": None}, record={"system": None})

    assert found(run) == []


def arms_found(**arms):
    return {finding.code: finding.evidence for finding in arm_findings(arms)}


def test_fewer_than_five_runs_have_no_verdict(written):
    four, five = ([written() for _ in range(size)] for size in (4, 5))

    assert arms_found(a=five) == {}
    assert arms_found(a=five, b=four) == {
        "few-runs": "b: 4; a verdict needs 5 runs per arm",
    }
    assert arms_found() == {}


def test_a_run_that_measured_nothing_is_no_run_of_an_arm(written):
    five = [written() for _ in range(5)]
    four = [*five[:4], written(state="failed", steps=[])]

    assert arms_found(a=four)["few-runs"] == "a: 4; a verdict needs 5 runs per arm"


def test_a_run_that_failed_at_its_start_does_not_hide_another_host(written):
    other = {"machine": RECORD["machine"] | {"hostname": "node2"}}
    failed = written(state="failed", steps=[])
    failed.paths.worker.unlink()

    seen = arms_found(a=[written(), failed], b=[written(record=other)])

    assert seen["mixed-environment"] == "host: node1, node2"


def test_data_are_judged_by_five_times_the_memory_of_all_hosts(written):
    def memory(total, **config):
        machine = RECORD["machine"] | {"usable_memory_bytes": total}
        run = written(record={"machine": machine}, config=config)
        return {finding.code: finding.evidence for finding in run_findings(run)}

    assert memory(20_000_000) == {}
    assert memory(30_000_000)["cached-data"] == (
        "dataset (0.1 GB) is 3.3x memory (0.03 GB); MLPerf Storage requires 5x; 1 epoch"
    )
    assert "2.5x" in memory(20_000_000, nnodes=2)["cached-data"]


@pytest.mark.parametrize(
    ("record", "worker", "evidence"),
    [
        (
            {"system": RECORD["system"] | {"driver_version": "450.80.02"}},
            {},
            "driver: 580.65.06, 450.80.02",
        ),
        ({"machine": {"hostname": "node2"}}, {}, "host: node1, node2"),
        # Two kinds of GPU are in two machines.
        ({"machine": {"hostname": "node2"}}, {"devices": MIXED[1:]}, None),
    ],
)
def test_arms_of_two_environments(written, record, worker, evidence):
    found = arms_found(a=[written()], b=[written(record=record, worker=worker)])

    assert found.get("mixed-environment") == evidence


def test_settings_that_change_together_are_noted(written):
    fp32 = {"precision": "fp32", "batch_size_per_gpu": 128}
    half = {"precision": "fp16", "batch_size_per_gpu": 256}
    cross = {"precision": "fp32", "batch_size_per_gpu": 256}
    full = {"precision": "fp16", "batch_size_per_gpu": 128}
    two = {"a": [written(config=fp32)], "b": [written(config=half)]}
    four = {**two, "c": [written(config=cross)], "d": [written(config=full)]}

    assert arms_found(**two)["confounded"] == (
        "precision and batch_size_per_gpu: fp16 with 256, fp32 with 128"
    )
    assert "confounded" not in arms_found(**four)


def sized(written, world_size, images, scatter=(0.0,), config=(), worker=()):
    return [
        written(
            config=config,
            worker={
                "world_size": world_size,
                "global_batch_size": None,
                **dict(worker),
            },
            steps=[
                step(n, images=images, step_time_seconds=1 + part) for n in range(1, 61)
            ],
        )
        for part in scatter
    ]


def test_more_than_linear_is_found_where_it_is_beyond_the_scatter(written):
    one = sized(written, 1, 100)
    more, less = sized(written, 8, 830), sized(written, 8, 790)
    loose = sized(written, 8, 830, scatter=(-0.1, 0.0, 0.1))
    ones = sized(written, 1, 100, scatter=(-0.1, 0.0, 0.1))

    assert arms_found(a=one, b=more)["superlinear"].startswith("8.30x speedup on 8x")
    assert "superlinear" not in arms_found(a=one, b=less)
    assert "superlinear" not in arms_found(a=ones, b=loose)


def test_runs_of_other_gpus_or_other_work_are_no_curve(written):
    v100 = {"devices": [{"name": "Tesla V100", "compute_capability": [7, 0]}]}
    function = {"task": "function"}
    load = {"task": "load"}

    for one in (
        sized(written, 1, 100, worker=v100),
        sized(written, 1, 100, config=load),
    ):
        assert "superlinear" not in arms_found(a=one, b=sized(written, 8, 3_000))
    one = sized(written, 1, 100, config=function)
    more = sized(written, 8, 3_000, config=function)
    assert "superlinear" not in arms_found(a=one, b=more)
