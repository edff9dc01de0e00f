"""Of a run's samples only those of its measured steps count."""

from __future__ import annotations

import pytest

from nbkit.review.samples import read_load
from nbkit.store.metrics import to_json_line
from nbkit.telemetry.sample import GpuProcess, GpuSample, HostSample, Sample

HEADER = {
    "kind": "header",
    "devices": [{"index": 0, "uuid": "GPU-0", "sm_clock_max_mhz": 2_000}],
}


@pytest.fixture
def write(tmp_path):
    """Return what writes the samples of a host."""

    def make(*samples, host="node1", end=""):
        lines = [HEADER, *({"kind": "sample", **one.to_dict()} for one in samples)]
        text = "".join(map(to_json_line, lines))
        (tmp_path / f"{host}.jsonl").write_text(text + end)
        return tmp_path

    return make


def sample(t, percent=50.0, used=None, **gpu):
    host = HostSample(cpu_percent=percent, processes_cpu_seconds=used)
    gpus = (GpuSample(0, uuid="GPU-0", **gpu),) if gpu else ()
    return Sample(t=float(t), gpus=gpus, host=host)


def test_what_a_host_did_before_and_behind_the_steps_does_not_count(write):
    early = [sample(t, 100.0) for t in range(5)]
    steps = [sample(t, 25.0) for t in range(5, 10)]
    late = [sample(t, 100.0) for t in range(10, 20)]

    load = read_load(write(*early, *steps, *late), [(4.5, 9.5)], 8, ())

    assert load.seconds == 4
    assert load.busy_cpus == pytest.approx(2.0)


def test_what_stands_between_the_steps_does_not_count(write):
    # Steps up to 6, an evaluation on all CPUs up to 14, and steps again.
    first = [sample(t, 25.0, 1.0 * t, sm_clock_mhz=1_800) for t in range(7)]
    evaluation = [sample(t, 100.0, 100.0 * t, sm_clock_mhz=900) for t in range(7, 14)]
    then = [sample(t, 50.0, 3.0 * t, sm_clock_mhz=1_800) for t in range(14, 21)]
    steps = [(t - 1.0, t) for t in (*range(7), *range(15, 22))]

    load = read_load(write(*first, *evaluation, *then), reversed(steps), 8, ())

    assert load.seconds == 6 + 6
    assert load.busy_cpus == pytest.approx((6 * 2 + 6 * 4) / 12)
    assert load.run_cpus == pytest.approx((6 * 1 + 6 * 3) / 12)
    assert set(load.gpus[0].sm_clock_mhz) == {1_800}


def test_a_stranger_has_the_share_of_its_hosts_samples(write):
    def visited(pids_by_time):
        return [
            sample(t, processes=tuple(map(GpuProcess, pids)))
            for t, pids in enumerate(pids_by_time)
        ]

    write(*visited([{1}, {1, 7}, {1, 7}, {1}]), host="node2")
    folder = write(*visited([{1, 7}, {1}, {1}, {1}]))

    load = read_load(folder, [(0, 9)], 8, [1])

    assert sorted(load.strangers) == [0.25, 0.5]


def test_processes_on_other_instances_of_a_gpu_are_no_strangers(write):
    def load(*others):
        own = GpuProcess(1, mig_uuid="MIG-a")
        read = [sample(t, processes=(own, *others)) for t in range(4)]
        return read_load(write(*read), [(0, 9)], 8, [1])

    assert load(GpuProcess(7, mig_uuid="MIG-b")).strangers == []
    assert load(GpuProcess(7, mig_uuid="MIG-a")).strangers == [1.0]


def test_two_seconds_are_the_least(write):
    folder = write(*(sample(t) for t in range(10)))

    assert read_load(folder, [(2.5, 4.5)], 8, ()) is None
    assert read_load(folder / "nowhere", [(0, 9)], 8, ()) is None
    assert read_load(folder, [(2.5, 5.5)], 8, ()).seconds == 2


def test_a_pause_between_two_attempts_is_no_time_of_the_run(write, tmp_path):
    folder = write(*(sample(t, 0.0) for t in range(4)))
    with (folder / "node1.jsonl").open("a") as file:
        file.write(to_json_line(HEADER))
        for t in (100, 101, 102):
            file.write(to_json_line({"kind": "sample", **sample(t, 50.0).to_dict()}))

    load = read_load(folder, [(0, 200)], 2, ())

    assert load.seconds == 5
    assert load.busy_cpus == pytest.approx(2 * 0.5 * 2 / 5)


def test_cpus_of_the_run_are_told_once_its_processes_were_all_found(write):
    folder = write(*(sample(t, used=3.0 * t) for t in range(20)))

    assert read_load(folder, [(0, 9)], 8, ()).run_cpus is None
    assert read_load(folder, [(0, 15)], 8, ()).run_cpus == pytest.approx(3.0)


def test_several_hosts_have_no_common_cpus(write):
    write(*(sample(t) for t in range(9)), host="node2")
    folder = write(*(sample(t) for t in range(9)))

    load = read_load(folder, [(0, 9)], 8, ())

    assert (load.busy_cpus, load.run_cpus) == (None, None)


def test_a_gpu_has_its_clocks_reasons_and_strangers(write):
    reasons = [(), ("power cap",), ("power cap", "thermal (software)"), ("idle",)]
    folder = write(
        *(
            sample(
                t,
                sm_clock_mhz=1_000 + 200 * t,
                gpu_utilization_percent=30 * t,
                clock_event_reasons=reason,
                processes=(GpuProcess(1), GpuProcess(90 + t)),
            )
            for t, reason in enumerate(reasons)
        )
    )

    load = read_load(folder, [(0, 9)], 8, [1])

    [gpu] = load.gpus
    assert gpu.clock_lost == pytest.approx(1 - 1_300 / 2_000)
    assert gpu.slowed_share == 0.25
    assert gpu.capped_share == 0.5
    assert gpu.slowing_reasons == ["thermal (software)"]
    assert gpu.busy_share == pytest.approx(0.45)
    assert load.strangers == [0.25] * 4
    assert read_load(folder, [(0, 9)], 8, [2]).strangers is None


def test_half_a_line_and_what_was_not_told_are_left_out(write):
    folder = write(*(sample(t, None, memory_used_bytes=1) for t in range(5)), end='{"k')

    load = read_load(folder, [(0, 9)], 8, [1])

    assert (load.busy_cpus, load.run_cpus, load.strangers) == (None, None, None)
    [gpu] = load.gpus
    assert (gpu.busy_share, gpu.clock_lost, gpu.slowed_share) == (None, None, None)
