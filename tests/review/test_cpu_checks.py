"""What CPUs bound: too few for the input or the ranks, or as many as were given."""

from __future__ import annotations

import pytest

from tests.review.written_run import (
    BEGIN,
    diagnosed,
    on_cpus,
    rank,
    samples,
)

__all__ = ["diagnosed"]

QUOTA = {"record": {"machine": {"num_cpus": 64, "usable_cpus": 1.5}}}
TAKING_TURNS = on_cpus(
    *(
        rank(n, communication_exposed=0.0, cpu=0.48, cpu_queue=0.45, cpus=[7])
        for n in (0, 1)
    )
)


@pytest.mark.parametrize(
    "files",
    [
        {
            "worker": on_cpus(rank(0, communication_exposed=0.0, cpu=0.98, cpus=[7])),
        },
        {"worker": on_cpus(rank(0, communication_exposed=0.0, cpu=1.49)), **QUOTA},
        # All that it is for is to read as fast as its CPUs can.
        {
            "config": {"task": "load", "emulated_step_seconds": 0.0},
            "worker": on_cpus(rank(0, data_wait=0.9, cpu=1.49)),
            **QUOTA,
        },
    ],
)
def test_a_run_that_fills_the_cpus_it_was_given_is_bound_by_them_and_healthy(
    diagnosed, files
):
    found = diagnosed(**files)

    assert [cause.code for cause in found] == ["cpu-allocation"], str(found)
    assert found.is_healthy
    assert found[0].gain is None


def test_a_problem_comes_before_the_cpus_that_a_run_was_given(diagnosed):
    ranks = [rank(n, communication_exposed=0.3, cpu=0.97, cpus=[6 + n]) for n in (0, 1)]

    found = diagnosed(worker=on_cpus(*ranks))

    assert [cause.code for cause in found] == ["communication", "cpu-allocation"]


def test_images_that_wait_for_cpus_are_bound_by_too_few_of_them(diagnosed):
    ranks = [rank(n, data_wait=0.4, cpu=3.9, cpus=list(range(8))) for n in (0, 1)]

    found = diagnosed(worker={"ranks": ranks})

    assert [cause.code for cause in found] == ["few-cpus", "input"]
    assert found.bottleneck == "too few CPUs (40% of the time)"
    assert "2 ranks may use 8 of 64 CPUs; needed: at least 8.0." in found[0].evidence
    assert found[0].gain.high == pytest.approx(1 / 0.6)
    assert found[1].action.startswith("reduce decoding on CPUs")


def test_ranks_that_take_turns_on_a_cpu_have_too_few(diagnosed):
    found = diagnosed(worker=TAKING_TURNS)

    assert [cause.code for cause in found] == ["few-cpus"], str(found)
    assert found[0].gain.high == 2


def test_several_nodes_have_no_cpus_in_common(diagnosed):
    alone = rank(0, communication_exposed=0.0, cpu=30, cpu_queue=0.45)
    others = {"worker": on_cpus(alone), "sampled": samples(cpu_percent=99)}

    assert [cause.code for cause in diagnosed(**others)] == ["other-cpu-processes"]
    for files in (others, {"worker": TAKING_TURNS}):
        found = diagnosed(config={"nnodes": 2}, **files)
        assert list(found) == []
        assert any("CPU utilization" in text for text in found.unknown)


def test_others_on_the_cpus_of_one_node_are_named_with_it(diagnosed):
    def found(busy_cpus, queue=0.45, **values):
        counted = {"host_cpu_seconds": busy_cpus * 30.0, "counted_seconds": 30.0}
        quiet = rank(0, node="n1", **counted)
        shares = {"cpu": 6.0, **values}
        other = rank(1, node="n2", cpu_queue=queue, **counted, **shares)
        # Where it was launched from has other CPUs than its nodes.
        head = {"machine": {"num_cpus": 4, "usable_cpus": 4}}
        ranks = {"ranks": [quiet, other]}
        return diagnosed(config={"nnodes": 2}, worker=ranks, record=head)

    [cause] = found(60.0).disturbances
    assert cause.code == "no-cpu"
    assert "A rank on n2 was runnable but off-CPU 45% of the time" in cause.evidence
    assert "other processes used 54.0 CPUs there, this run 6.0" in cause.evidence
    for without in (
        found(6.0),
        found(60.0, queue=0.1),
        # It has had all the CPU time that its job was granted.
        found(60.0, cpu_quota=6.2),
        # It fills its own CPUs; others are on those that it may not use.
        found(60.0, cpus=list(range(4)), cpu=3.9),
        found(30.0, cpus=list(range(8)), cpu=3.0),
    ):
        assert without.disturbances == []


@pytest.mark.parametrize("config", [{}, {"task": "inference"}])
def test_a_rank_on_a_gpu_that_has_no_cpu_is_disturbed_without_waiting_for_images(
    diagnosed, config
):
    def found(queue, data_wait=0.0):
        ranks = [rank(0, data_wait=data_wait, cpu_queue=queue), rank(1, data_wait=0.2)]
        full = samples(cpu_percent=99)
        return diagnosed(config=config, worker={"ranks": ranks}, sampled=full)

    [cause] = found(0.45).disturbances
    assert (cause.code, cause.share) == ("other-cpu-processes", 0.45)
    assert found(0.2).disturbances == []
    few = {"cpu": 3.0, "cpus": [*range(8)], "cpu_queue": 0.3}
    own = {"ranks": [rank(number, data_wait=0.0, **few) for number in (0, 1)]}
    beside = diagnosed(config=config, worker=own, sampled=samples(cpu_percent=70))
    assert beside.disturbances == []
    [late] = found(0.2, data_wait=0.2).disturbances
    assert late.share == 0.2


def test_jobs_that_were_to_run_at_once_are_not_told_to_leave(diagnosed):
    alone = on_cpus(rank(0, communication_exposed=0.0, cpu=30, cpu_queue=0.45))
    files = {"worker": alone, "sampled": samples(cpu_percent=99)}
    machine = {"machine": {"num_cpus": 64, "usable_cpus": 64}}

    [others] = diagnosed(**files)
    [sisters] = diagnosed(**files, record={**machine, "tags": {"concurrent": "a; b"}})

    assert "when no other process uses" in others.action
    assert "includes the concurrent jobs" in sisters.evidence
    assert sisters.action.startswith("assign separate CPUs to each concurrent job")


def change(diagnosed, sampled=None, cpu=1.0, cpus=range(64), **config):
    """Return what is to be tried against waiting for images."""
    ranks = [rank(n, data_wait=0.5, cpu=cpu, cpus=list(cpus)) for n in (0, 1)]
    found = diagnosed(config=config, worker={"ranks": ranks}, sampled=sampled)
    return next(cause.action for cause in found if cause.code == "input")


def test_the_change_fits_the_loader_that_starves(diagnosed):
    assert "loader='torch'" in change(diagnosed, loader="naive")
    assert "'num_workers': 16" in change(diagnosed)
    assert "'num_workers': 16" in change(diagnosed, cpus=())
    # More loading processes are no help on full CPUs.
    assert "reduce decoding" in change(diagnosed, cpus=range(4), cpu=1.9)
    assert "synthetic" in change(diagnosed, data="synthetic")


def test_cpus_are_called_free_only_where_that_is_known(diagnosed):
    def advice(**values):
        return change(diagnosed, loader_config={"num_workers": None}, **values)

    few = range(4)
    full = samples(cpu_percent=97)

    assert "CPUs were less than 50% busy" in advice()
    assert "CPUs were less than 50% busy" in advice(sampled=[])
    # Others fill the host, but not the CPUs of this run.
    assert "CPUs were less than 50% busy" in advice(
        sampled=samples(cpu_percent=92), cpus=few, cpu=0.5
    )
    assert "reduce decoding" in advice(sampled=full)
    # The host has free CPUs, but none for this run.
    assert "reduce decoding" in advice(cpus=few, cpu=1.9)
    assert "were 73% busy" in advice(cpus=few, cpu=1.45)
    assert "is unknown" in advice(cpu=1.0, cpus=())
    assert "is unknown" in advice(nnodes=2)
    assert "reduce decoding" in advice(cpus=(), sampled=full)


def test_a_slow_rank_is_named_with_its_node_and_so_are_its_cpus(diagnosed):
    ranks = [
        rank(0, communication_exposed=0.33, node="n1"),
        rank(1, cpu_queue=0.4, cpus=[3], node="n2"),
    ]

    [cause] = diagnosed(config={"nnodes": 2}, worker={"ranks": ranks})

    assert cause.evidence.startswith("Rank 1 on n2 is slower than")
    assert "another process runs on CPU 3 of n2" in cause.evidence


def test_a_rank_without_a_cpu_is_told_where_nobody_has_sampled(diagnosed):
    def found(data="synthetic", **shares):
        alone = rank(0, communication_exposed=0.0, **{"cpus": [6, 7], **shares})
        files = {"worker": on_cpus(alone), "config": {"data": data}, "sampled": []}
        return [one.evidence for one in diagnosed(**files)]

    assert found(cpu=1.1, cpu_queue=0.4) == [
        "A rank was runnable but off-CPU 40% of the time; the run used 1.1 of 2 CPUs."
    ]
    assert found(cpu=1.1, cpu_queue=0.2) == []
    # Its own threads took turns, or its loading processes may have.
    assert found("photos", cpu=1.1, cpu_queue=0.4) == []
    assert "may use 2 of 64 CPUs" in found(cpu=1.9, cpu_queue=0.4)[0]


def test_others_are_told_of_a_moment_too_by_what_its_rank_counted(diagnosed):
    def found(host_busy_cpus, **shares):
        alone = rank(0, communication_exposed=0.0, cpus=[0, 1], **shares)
        counted = {"host_cpu_seconds": 30 * host_busy_cpus, "counted_seconds": 30.0}
        return diagnosed(
            worker=on_cpus({**alone, **counted}),
            record={"machine": {"num_cpus": 2, "usable_cpus": 2}},
            sampled=[],
        )

    # Two busy loops beside it; the same alone, whose loading processes take turns.
    [others] = found(2.0, cpu=1.0, cpu_queue=0.15)
    assert others.evidence == (
        "Other processes used 1.0 of 2 CPUs, this run 1.0; a rank was runnable but "
        "off-CPU 15% of the time."
    )
    assert list(found(1.6, cpu=1.45, cpu_queue=0.2)) == []


def test_passes_of_an_inference_are_disturbed_too_and_nothing_else_is_asked(diagnosed):
    alone = rank(0, communication_exposed=0.0, cpu=1.0, cpu_queue=0.45, cpus=[6, 7])
    series = {"kind": "inference", "attempt": 0, "step": 1, "batch_size": 1}
    files = {
        "config": {"task": "inference"},
        "worker": on_cpus(alone),
        "lines": [{**series, "t": BEGIN + 30, "began": BEGIN, "ended": BEGIN + 30}],
    }

    unsampled = diagnosed(**files, sampled=[])
    sampled = diagnosed(**files, sampled=samples(cpu_percent=99))

    assert [cause.code for cause in unsampled.disturbances] == ["no-cpu"]
    assert [cause.code for cause in sampled] == ["other-cpu-processes"]
    assert not any("updating" in text for text in unsampled.unknown)
