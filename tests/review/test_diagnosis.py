"""What bounds a run is read from its folder: here from folders written by hand."""

from __future__ import annotations

import pytest

import nbkit
from nbkit.telemetry.sample import GpuProcess
from tests.review.written_run import (
    STEP_SECONDS,
    diagnosed,
    gpu,
    on_cpus,
    rank,
    samples,
    steps,
    write_run,
)

__all__ = ["diagnosed"]

PLANTED = {
    "starved input": (
        "input",
        {"worker": {"ranks": [rank(0, data_wait=0.6), rank(1, data_wait=0.62)]}},
    ),
    "a rank whose input is slow": (
        "slow-rank",
        {
            "worker": {
                "ranks": [
                    rank(0, communication_exposed=0.4),
                    rank(1, data_wait=0.4),
                ]
            }
        },
    ),
    # The others get the buffers of rank 0, and wait for it before they compute.
    "rank 0 whose input is slow": (
        "slow-rank",
        {"worker": {"ranks": [rank(0, data_wait=0.4), rank(1)]}},
    ),
    "a rank that computes longer": (
        "slow-rank",
        {"worker": {"ranks": [rank(0, communication_exposed=0.3), rank(1)]}},
    ),
    "a slow exchange": (
        "communication",
        {
            "worker": {
                "ranks": [
                    rank(0, communication_exposed=0.35),
                    rank(1, communication_exposed=0.34),
                ]
            }
        },
    ),
    "a tiny batch": (
        "batch",
        {"lines": steps(update=0.3)},
    ),
    "kernels issued too slowly": (
        "batch",
        {
            "sampled": samples(
                *(gpu(n, gpu_utilization_percent=40) for n in (0, 1)),
            )
        },
    ),
    "others on all CPUs": (
        "other-cpu-processes",
        {
            "worker": on_cpus(
                rank(0, communication_exposed=0.0, cpu=30, cpu_queue=0.45)
            ),
            "sampled": samples(cpu_percent=99),
        },
    ),
    "others on the GPUs": (
        "other-gpu-processes",
        {
            "sampled": samples(
                gpu(0, processes=(GpuProcess(4_001), GpuProcess(77))), gpu(1)
            )
        },
    ),
    "heat": (
        "throttled",
        {
            "sampled": samples(
                gpu(0),
                gpu(1, sm_clock_mhz=900, clock_event_reasons=("thermal (hardware)",)),
            )
        },
    ),
    "channels_first": ("layout", {"config": {"memory_format": "channels_first"}}),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_was_planted_is_named_and_nothing_else(diagnosed, planted):
    code, files = PLANTED[planted]

    found = diagnosed(**files)

    assert [cause.code for cause in found] == [code], str(found)
    assert not found.is_healthy


def test_a_script_on_one_of_several_gpus_is_named(diagnosed):
    files = {
        "config": {"task": "script"},
        "lines": [],
        "worker": {"world_size": 1, "ranks": None},
        "record": {"machine": {"num_cpus": 64}, "system": {"devices": [{}] * 8}},
    }

    [cause] = diagnosed(**files)

    assert cause.code == "one-gpu"
    assert "gpus=8" in cause.action
    assert list(diagnosed(**files | {"worker": {"ranks": None}})) == []


def test_a_run_without_a_fault_has_no_cause(diagnosed):
    found = diagnosed()

    assert list(found) == []
    assert found.is_healthy
    assert found.bottleneck is None
    assert found.sentence.endswith("written-aaaa: no bottleneck detected.")
    assert found.unknown == ()


@pytest.mark.parametrize(
    "files",
    [
        # All that a host has is no small part of it.
        {
            "worker": on_cpus(rank(0, communication_exposed=0.0, cpu=63)),
            "sampled": samples(cpu_percent=99.5),
        },
        # Others compute on CPUs that the run does not ask for.
        {
            "worker": on_cpus(rank(0, communication_exposed=0.0, cpu=4.0)),
            "sampled": samples(cpu_percent=60),
        },
        # They are busy on CPUs that the run may not use.
        {
            "worker": on_cpus(
                rank(
                    0,
                    communication_exposed=0.0,
                    cpu=31,
                    cpu_queue=0.2,
                    cpus=list(range(32)),
                )
            ),
            "record": {"machine": {"num_cpus": 33, "usable_cpus": 33}},
            "sampled": samples(cpu_percent=99.9),
        },
        # Beside busy GPUs, busy CPUs cost nothing.
        {"sampled": samples(cpu_percent=99)},
        # Somebody looks in for a moment, and the record counts who was ever there.
        {
            "sampled": [
                *samples()[:-1],
                samples(gpu(0, processes=(GpuProcess(4_001), GpuProcess(77))))[-1],
            ],
            "record": {
                "machine": {"num_cpus": 64, "usable_cpus": 64},
                "system": {"other_gpu_processes": 1},
            },
        },
        # Others are seen, but no rank is: the driver speaks of other pids.
        {
            "sampled": samples(
                *(gpu(n, processes=(GpuProcess(70 + n),)) for n in (0, 1))
            )
        },
        # An optimized GPU lowers its clocks a little.
        {
            "sampled": samples(
                *(
                    gpu(n, sm_clock_mhz=1_350, clock_event_reasons=("power cap",))
                    for n in (0, 1)
                )
            )
        },
        # All that such a run does is wait for images.
        {
            "config": {"task": "load", "emulated_step_seconds": 0.0},
            "worker": on_cpus(rank(0, data_wait=0.99, communication_exposed=0.0)),
        },
        # A GPU that is emulated sleeps.
        {
            "config": {"task": "load", "emulated_step_seconds": 0.4},
            "sampled": samples(*(gpu(n, gpu_utilization_percent=0) for n in (0, 1))),
        },
        {"config": {"memory_format": "channels_first", "precision": "fp32"}},
    ],
)
def test_what_costs_nothing_is_not_named(diagnosed, files):
    assert list(diagnosed(**files)) == []


def test_what_is_predicted_is_arithmetic_on_the_runs_own_numbers(diagnosed):
    [starved] = diagnosed(**PLANTED["starved input"][1])
    assert starved.share == pytest.approx(0.6)
    assert starved.gain.high == pytest.approx(1 / 0.4)
    assert starved.gain.low is None

    [tiny] = diagnosed(**PLANTED["a tiny batch"][1])
    # 0.3 of a step is fixed: two batches take 0.3 + 2 x 0.7 in the place of 2.
    assert tiny.gain.low == pytest.approx(2 / 1.7)
    assert tiny.gain.high == 2

    [exchange] = diagnosed(**PLANTED["a slow exchange"][1])
    assert exchange.gain.low == pytest.approx(1 / (1 - 0.34 / 2))
    assert exchange.gain.high == pytest.approx(1 / (1 - 0.34))

    [alone] = diagnosed(**PLANTED["others on all CPUs"][1])
    # Others had more than it needs: it was ready without a CPU in 45 % of its time.
    assert alone.gain.high == pytest.approx(1 / (1 - 0.45))

    [layout] = diagnosed(**PLANTED["channels_first"][1])
    assert "published: " in layout.gain.how
    assert 1 < layout.gain.low <= layout.gain.high
    assert layout.share is None

    found = diagnosed(**PLANTED["others on the GPUs"][1])
    assert found[0].gain is None
    assert "in 100% of the samples." in found[0].evidence
    assert "Expected speedup: unknown" in str(found)


@pytest.mark.parametrize(
    ("slow", "said"),
    [
        ({"data_wait": 0.31}, "it waits for images"),
        ({"cpu_queue": 0.4, "cpus": [3]}, "another process runs on CPU 3"),
        ({}, "it computes longer, using 6.00 CPUs"),
    ],
)
def test_a_slow_rank_comes_with_what_it_has_more_of(diagnosed, slow, said):
    ranks = [rank(0, communication_exposed=0.33), rank(1, **slow)]

    [cause] = diagnosed(worker={"ranks": ranks})

    assert cause.code == "slow-rank"
    assert (
        "Rank 1 is slower than the other rank by 30% of the step time" in cause.evidence
    )
    assert said in cause.evidence


def test_a_rank_on_a_hot_gpu_is_slow_because_of_it(diagnosed):
    ranks = [rank(0, communication_exposed=0.33), rank(1)]
    hot = gpu(1, sm_clock_mhz=900, clock_event_reasons=("thermal (software)",))

    found = diagnosed(worker={"ranks": ranks}, sampled=samples(gpu(0), hot))

    causes = {cause.code: cause for cause in found}
    assert causes.keys() == {"slow-rank", "throttled"}
    assert "lower than that of the others by 35%" in causes["slow-rank"].evidence
    assert "1 of 2 GPUs" in causes["throttled"].evidence
    assert "900 of 1,410 MHz" in causes["throttled"].evidence


def test_what_explains_most_comes_first_and_limits_come_last(diagnosed):
    ranks = [rank(n, data_wait=0.15, communication_exposed=0.3) for n in (0, 1)]
    capped = {"sm_clock_mhz": 800, "clock_event_reasons": ("power cap",)}

    found = diagnosed(
        worker={"ranks": ranks},
        lines=steps(update=0.2),
        sampled=samples(gpu(0, **capped), gpu(1, **capped)),
    )

    codes = [cause.code for cause in found]
    assert codes == ["communication", "batch", "input", "power-limit"]
    assert [cause.code for cause in found.of("note")] == ["power-limit"]
    assert "Also: batch too small, input, power limit." in found.sentence


def test_near_what_memory_allows_it_is_said_and_is_no_problem(diagnosed):
    lines = [line | {"images": 2_000} for line in steps()]  # 2,000 images/s a GPU

    found = diagnosed(lines=lines)

    assert found.is_healthy
    [limit] = found
    assert limit.code == "memory-bandwidth"
    assert "2,000 images/s per GPU is" in limit.evidence
    assert limit.action == "compile=True, which fuses kernels."
    assert limit.gain.high > 1
    assert "limit: memory bandwidth." in found.sentence


def test_a_run_that_goes_on_says_what_rank_0_knows(diagnosed):
    lines = steps(communication_exposed=0.4)

    found = diagnosed(state="running", worker={"ranks": None}, lines=lines)

    [cause] = found
    assert cause.code == "communication"
    assert "cannot distinguish slow all-reduce from" in cause.evidence
    assert any("the times of 1 of 2 ranks" in text for text in found.unknown)


def test_updates_that_waited_for_a_cpu_now_and_then_are_no_small_batch(diagnosed):
    lines = steps()
    for line in lines[::4]:
        line["update_seconds"] = 0.9 * STEP_SECONDS

    assert list(diagnosed(lines=lines)) == []


def test_diagnose_failed_run_without_samples(diagnosed):
    found = diagnosed(
        state="failed",
        worker={"ranks": None, "world_size": 1},
        lines=steps(data_wait=0.5),
        sampled=[],
    )

    [cause] = found
    assert cause.code == "input"
    assert "sampled" in found.unknown[0]


def test_a_run_without_a_measured_step_says_so(diagnosed):
    found = diagnosed(
        config={"task": "function"}, worker={"ranks": None}, lines=[], sampled=[]
    )

    assert list(found) == []
    assert "no measured step" in found.sentence


def test_gpus_that_stand_still_are_evidence_of_starvation(diagnosed):
    sampled = samples()
    for line in sampled[1::2]:
        line["gpus"] = [gpu(0, gpu_utilization_percent=0).to_dict()]

    [cause] = diagnosed(**PLANTED["starved input"][1], sampled=sampled)

    assert cause.code == "input"
    assert "A GPU was idle in 52% of its readings." in cause.evidence


def test_an_imported_run_is_diagnosed_as_where_it_ran(tmp_path, monkeypatch):
    run = write_run(tmp_path / "here", **PLANTED["heat"][1])
    bundle = nbkit.export(run, tmp_path / "run.zip")
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "there"))
    [run_id] = nbkit.import_bundle(bundle).run_ids

    there = nbkit.attach(run_id).diagnose()

    assert there.to_dict() == run.diagnose().to_dict()
    assert there[0].code == "throttled"


def test_what_a_layout_brings_to_a_gpu_that_waits_is_not_known(diagnosed):
    starved = PLANTED["starved input"][1]

    found = diagnosed(**starved, config={"memory_format": "channels_first"})

    assert [cause.code for cause in found] == ["input", "layout"]
    assert found[1].gain is None


def test_ranks_that_train_nothing_wait_for_the_images_of_the_slowest(diagnosed):
    config = {"task": "load", "emulated_step_seconds": 0.3, "num_workers": 1}
    ranks = [rank(n, data_wait=0.05, communication_exposed=0.3) for n in (0, 1)]

    asleep = samples(*(gpu(n, gpu_utilization_percent=0) for n in (0, 1)))

    [cause] = diagnosed(config=config, worker={"ranks": ranks}, sampled=asleep)

    assert cause.code == "input"
    assert cause.share == pytest.approx(0.35)
    assert "including 30% of the time for the slowest rank's images" in cause.evidence
    assert "idle" not in cause.evidence


def test_what_happens_between_two_steps_bounds_none_of_them(diagnosed):
    lines = steps()
    for line in lines[30:]:
        line["t"] += 40  # An evaluation.
    hot = gpu(0, sm_clock_mhz=900, clock_event_reasons=("thermal (software)",))
    meanwhile = samples(hot, cpu_percent=99)[1:]
    for line in meanwhile:
        line["t"] += 20

    sampled = samples()
    found = diagnosed(
        lines=lines,
        sampled=[*sampled[:16], *meanwhile, *sampled[50:]],
    )

    assert list(found) == []
