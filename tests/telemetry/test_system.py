"""Sums over a run's samples, attempt by attempt."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nbkit.telemetry.sample import GpuProcess, GpuSample, MigSample, Sample
from nbkit.telemetry.system import summarise_system, summarise_systems


def _gpu(energy, busy=50, used=100, slowed=(), pids=(7,), uuid="GPU-a"):
    return GpuSample(
        index=0,
        uuid=uuid,
        energy_joules=energy,
        gpu_utilization_percent=busy,
        memory_used_bytes=used,
        clock_event_reasons=slowed,
        processes=tuple(GpuProcess(pid=pid) for pid in pids),
    )


def _write(path, *rows):
    lines = [
        {"kind": "header", **row}
        if isinstance(row, dict)
        else {"kind": "sample", **row.to_dict()}
        for row in rows
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_energy_and_time_leave_out_the_pause_between_attempts(tmp_path):
    path = tmp_path / "host.jsonl"
    _write(
        path,
        {"driver_version": "570.1"},
        Sample(t=0, gpus=(_gpu(1000.0),)),
        Sample(t=0.5, gpus=(_gpu(None),)),  # the driver said nothing
        Sample(t=1, gpus=(_gpu(1300.0),)),
        {"driver_version": "570.2"},
        Sample(t=100, gpus=(_gpu(9000.0),)),
        Sample(t=102, gpus=(_gpu(9600.0),)),
    )

    sums = summarise_system(path, run_pids=[7])

    assert sums["gpus"]["GPU-a"]["energy_joules"] == 900
    assert sums["seconds"] == 3
    assert sums["samples"] == 5
    assert sums["driver_version"] == "570.2"


def test_slowed_seconds_peak_memory_and_strangers(tmp_path):
    path = tmp_path / "host.jsonl"
    slowed = ("power cap",)
    _write(
        path,
        {},
        Sample(t=0, gpus=(_gpu(0.0, busy=10, used=5, slowed=slowed),)),
        Sample(t=2, gpus=(_gpu(0.0, busy=90, used=9, pids=(7, 8, 9)),)),
        Sample(t=5, gpus=(_gpu(0.0, busy=20, used=7, pids=(8,)),)),
    )

    sums = summarise_system(path, run_pids=[7])

    gpu = sums["gpus"]["GPU-a"]
    assert gpu["slowed_seconds"] == 2
    assert gpu["memory_used_bytes_max"] == 9
    assert gpu["gpu_utilization_percent_sum"] == 120
    assert gpu["gpu_utilization_samples"] == 3
    assert sums["other_gpu_processes"] == 2


def test_an_energy_counter_that_starts_anew_takes_nothing_away(tmp_path):
    path = tmp_path / "host.jsonl"
    readings = (1000.0, 1300.0, 20.0, 120.0)
    _write(path, {}, *(Sample(t=t, gpus=(_gpu(e),)) for t, e in enumerate(readings)))

    sums = summarise_system(path, run_pids=[7])

    assert sums["gpus"]["GPU-a"]["energy_joules"] == 400


def test_ranks_of_every_attempt_belong_to_the_run(tmp_path):
    path = tmp_path / "host.jsonl"
    first, second = (Sample(t=t, gpus=(_gpu(0.0, pids=(t, 9)),)) for t in (1, 2))
    _write(path, {}, first, {}, second)

    assert summarise_system(path, run_pids=[1, 2])["other_gpu_processes"] == 1


@pytest.mark.parametrize(
    ("seen", "known"), [((4001, 4002), None), ((), None), ((7,), 0)]
)
def test_strangers_are_unknown_unless_the_ranks_are_seen(tmp_path, seen, known):
    path = tmp_path / "host.jsonl"
    _write(path, {}, Sample(t=0, gpus=(_gpu(0.0, pids=seen),)))

    assert summarise_system(path, run_pids=[7])["other_gpu_processes"] == known


def test_of_a_divided_gpu_those_on_the_instance_of_a_rank_are_strangers(tmp_path):
    path = tmp_path / "host.jsonl"
    pids = (7, "MIG-a"), (8, "MIG-a"), (9, "MIG-b"), (10, "MIG-b")
    processes = tuple(GpuProcess(pid=pid, mig_uuid=part) for pid, part in pids)
    # Those of other instances may be seen before the rank is.
    instances = tuple(MigSample(uuid=part) for part in ("MIG-a", "MIG-b"))
    whole = GpuSample(index=0, uuid="GPU-a", energy_joules=9.0, mig_instances=instances)
    samples = [replace(whole, processes=of) for of in (processes[1:], processes)]
    _write(path, {}, *(Sample(t=t, gpus=(gpu,)) for t, gpu in enumerate(samples)))

    sums = summarise_system(path, run_pids=[7])
    assert sums["other_gpu_processes"] == 1
    assert sums["gpus"]["GPU-a"]["energy_joules"] is None  # that of all instances


def test_what_was_never_told_stays_unknown(tmp_path):
    path = tmp_path / "host.jsonl"
    _write(path, {}, *(Sample(t=t, gpus=(GpuSample(index=0),)) for t in (0, 1)))

    sums = summarise_system(path, run_pids=[])

    gpu = sums["gpus"]["0"]
    assert gpu["energy_joules"] is None
    assert gpu["slowed_seconds"] is None
    assert gpu["gpu_utilization_percent_sum"] is None
    assert gpu["memory_used_bytes_max"] is None
    assert sums["other_gpu_processes"] is None


def test_half_a_line_and_a_missing_file_are_no_error(tmp_path):
    path = tmp_path / "host.jsonl"
    assert summarise_system(path, []) is None

    _write(path, {}, Sample(t=0))
    with path.open("a") as file:
        file.write('{"kind":"sam')

    assert summarise_system(path, [])["samples"] == 1


def test_a_gpu_of_two_files_has_the_sum_of_both(tmp_path):
    files = {name: tmp_path / f"{name}.jsonl" for name in ("a", "b")}
    for path, t, joules, used in (
        (files["b"], 0, 300.0, 9),
        (files["a"], 100, 500.0, 5),
    ):
        slowed = ("power cap",)
        _write(
            path,
            {},
            Sample(t=t, gpus=(_gpu(0.0, used=used, slowed=slowed),)),
            Sample(t=t + 2, gpus=(_gpu(joules, used=used),)),
        )

    sums = summarise_systems(files, run_pids=[7])

    gpu = sums["gpus"]["GPU-a"]
    assert (gpu["energy_joules"], gpu["slowed_seconds"], sums["seconds"]) == (800, 4, 4)
    assert (gpu["memory_used_bytes_max"], gpu["gpu_utilization_samples"]) == (9, 4)


def test_seconds_of_two_nodes_that_were_resumed_by_other_names(tmp_path):
    files = {name: tmp_path / f"{name}.jsonl" for name in ("a0", "a1", "b0", "b1")}
    for number, path in enumerate(files.values()):
        gpu = _gpu(0.0, uuid=f"GPU-{path.stem[0]}")
        t = 100 * (number % 2)
        _write(path, {}, Sample(t=t, gpus=(gpu,)), Sample(t=t + 2, gpus=(gpu,)))

    assert summarise_systems(files, run_pids=[7])["seconds"] == 4


@pytest.mark.parametrize(("first", "known"), [((7, 8), 1), ((7,), None)])
def test_strangers_of_one_node_count_though_another_says_nothing(
    tmp_path, first, known
):
    files = {name: tmp_path / f"{name}.jsonl" for name in ("a", "b")}
    _write(files["a"], {}, Sample(t=0, gpus=(_gpu(0.0, pids=first),)))
    _write(files["b"], {}, Sample(t=0, gpus=(_gpu(0.0, pids=()),)))

    sums = summarise_systems(files, run_pids=[7])

    assert sums["other_gpu_processes"] == known
