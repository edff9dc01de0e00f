"""Traces that are played again: recorded ones, and scripted ones."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from nbkit.errors import NvmlUnavailableError
from nbkit.telemetry import replay
from nbkit.telemetry.replay import TRACE, open_replay
from nbkit.telemetry.sample import GpuDevice, GpuSample, HostSample, Sample
from tests.telemetry.traces import TRACES

OWN = Path(replay.__file__).with_name("traces") / f"{TRACE}.jsonl"
SCRIPTED = {path.stem: path for path in (OWN, *sorted(TRACES.glob("*.jsonl")))}


class Clock:
    """A clock that the test sets."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """Let traces be played by a clock that the test sets."""
    clock = Clock()
    defaults = (clock,)
    monkeypatch.setattr(replay.Replay.__init__, "__defaults__", defaults)
    return clock


def _header(**values):
    device = GpuDevice(0, "GPU-a", "H100", sm_clock_max_mhz=1980)
    return {
        "kind": "header",
        "schema": 1,
        "t": 0.0,
        "hostname": "elsewhere",
        "driver_version": "570.86.15",
        "cuda_driver_version": "12.8",
        "devices": [device.to_dict()],
        "gpus_unavailable": None,
        **values,
    }


def _sample(t, *gpus, **values):
    sample = Sample(t, gpus, host=HostSample(50.0), **values)
    return {"kind": "sample", **sample.to_dict()}


def _gpu(power_watts, energy_joules=None, **values):
    return GpuSample(
        0, "GPU-a", power_watts=power_watts, energy_joules=energy_joules, **values
    )


@pytest.fixture
def write(tmp_path):
    """Return a writer of traces."""

    def write(*rows):
        path = tmp_path / "trace.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write


def test_what_a_sampler_wrote_is_played_as_it_was(write, clock):
    trace = open_replay(
        write(
            _header(),
            _sample(100.0, _gpu(10.0, 5.0, pcie_rx_bytes=7)),
            _sample(101.0, _gpu(20.0, 15.0, pcie_rx_bytes=17)),
            _sample(102.0, _gpu(30.0, 25.0, pcie_rx_bytes=27)),
        )
    )

    played = []
    for clock.now in (0.0, 0.9, 1.0, 1.5):
        (gpu,) = trace.read()
        played.append((gpu.power_watts, gpu.energy_joules, gpu.pcie_rx_bytes))

    assert played == [
        (10.0, 5.0, 7),
        (10.0, 14.0, 16),
        (20.0, 15.0, 17),
        (20.0, 20.0, 22),
    ]
    assert trace.devices()[0].sm_clock_max_mhz == 1980
    assert (trace.driver_version, trace.cuda_driver_version) == ("570.86.15", "12.8")


def test_counters_grow_over_the_seam_and_gauges_begin_again(write, clock):
    trace = open_replay(
        write(
            _header(),
            _sample(100.0, _gpu(10.0, 100.0)),
            _sample(110.0, _gpu(20.0, 150.0)),
            _sample(120.0, _gpu(30.0, 200.0)),
        )
    )

    played = []
    for clock.now in (0.0, 19.0, 20.0, 30.0, 400.0):
        (gpu,) = trace.read()
        played.append((gpu.power_watts, gpu.energy_joules))

    assert played == [
        (10.0, 100.0),
        (20.0, 195.0),
        (10.0, 200.0),
        (20.0, 250.0),
        (10.0, 2100.0),
    ]


def test_a_counter_that_was_reset_in_the_trace_never_falls_by_much(write, clock):
    trace = open_replay(
        write(_header(), _sample(0.0, _gpu(1.0, 900.0)), _sample(10.0, _gpu(1.0, 5.0)))
    )

    played = []
    for clock.now in (0.0, 9.0, 11.0):
        played.append(trace.read()[0].energy_joules)

    assert played == [900.0, 900.0, 900.0]


def test_the_longest_part_of_a_file_is_played(write, clock):
    trace = open_replay(
        write(
            _header(),
            _sample(1.0, _gpu(1.0)),
            _header(driver_version="580"),
            _sample(50.0, _gpu(2.0)),
            _sample(51.0, _gpu(2.0)),
            _header(),
        )
    )

    assert trace.driver_version == "580"
    assert trace.read()[0].power_watts == 2.0


def test_a_wave_moves_a_gauge_of_the_named_gpus(write, clock):
    gpus = [GpuSample(n, f"GPU-{n}", temperature_celsius=1) for n in range(3)]
    wave = {
        "kind": "wave",
        "field": "temperature_celsius",
        "gpus": [0, 1],
        "middle": 60,
        "swing": 10,
        "period_seconds": 40.0,
        "shift_seconds": 10.0,
    }
    trace = open_replay(write(_header(), wave, _sample(0, *gpus), _sample(60, *gpus)))

    played = []
    for clock.now in (0.0, 10.0, 20.0, 30.0):
        played.append([gpu.temperature_celsius for gpu in trace.read()])

    assert played == [[60, 70, 1], [70, 60, 1], [60, 50, 1], [50, 60, 1]]


def test_a_hang_comes_once_a_round(write, clock, monkeypatch):
    waits = []
    monkeypatch.setattr(
        threading.Event, "wait", lambda _, seconds: waits.append(seconds)
    )
    gpu = _gpu(1.0)
    hang = {"kind": "hang", "seconds": 8}
    trace = open_replay(
        write(_header(), _sample(0, gpu), _sample(2, gpu), hang, _sample(10, gpu))
    )

    counts = []
    for clock.now in (0.0, 1.0, 2.5, 3.0, 9.0, 11.0, 12.5, 13.0):
        trace.read()
        counts.append(len(waits))

    assert counts == [0, 0, 1, 1, 1, 1, 2, 2]
    assert set(waits) == {8.0}


def test_what_the_trace_says_of_a_process_is_told_with_times_of_today(write):
    told = {"kind": "holders", "by_pid": {"42": {"user": "ann", "idle_seconds": 60}}}
    before = time.time()
    trace = open_replay(write(_header(), told, _sample(0, _gpu(1.0))))

    holder = trace.reported_holders[42]
    assert holder["user"] == "ann"
    assert holder["idle_since"] == pytest.approx(before - 60, abs=30)
    assert trace.pids_are_here is False


def test_pids_of_a_trace_of_this_machine_may_be_looked_up(write, monkeypatch):
    monkeypatch.setattr(replay.socket, "gethostname", lambda: "elsewhere")

    assert open_replay(write(_header(), _sample(0, _gpu(1.0)))).pids_are_here is True


def test_a_machine_whose_driver_was_not_loaded_is_played_too(write, clock):
    with pytest.raises(NvmlUnavailableError, match="modprobe nvidia") as caught:
        open_replay(write(_header(gpus_unavailable="driver not loaded")))
    assert caught.value.reason == "driver not loaded"

    trace = open_replay(
        write(
            _header(),
            _sample(0, gpus_unavailable="no permission"),
            _sample(9, _gpu(1.0)),
        )
    )
    with pytest.raises(NvmlUnavailableError) as caught:
        trace.read()
    assert caught.value.reason == "no permission"


def test_half_a_line_at_the_end_is_left_out(write, clock):
    path = write(_header(), _sample(0, _gpu(1.0)))
    with Path(path).open("a") as file:
        file.write('{"kind": "sam')

    assert open_replay(path).read()[0].power_watts == 1.0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it has no header line"),
        ('{"kind": "header"}\n', "it contains no sample"),
        ('{"kind": "header"}\nnonsense\n', "line 2"),
        ('{"kind": "header"}\n{"kind": "dance"}\n', "'dance'"),
        ("[]\n", "line 1"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_with_the_reason(tmp_path, text, why):
    path = tmp_path / "other.jsonl"
    path.write_text(text)

    with pytest.raises(NvmlUnavailableError, match=why) as caught:
        open_replay(str(path))

    assert caught.value.reason == "source cannot be used"
    assert f"replay:{path}" in str(caught.value)


# The one that comes with nbkit, and those of the tests


@pytest.mark.parametrize("name", sorted(SCRIPTED.keys() - {"no-gpu"}))
def test_each_trace_plays_gpus_that_its_header_describes(name, clock, monkeypatch):
    monkeypatch.setattr(threading.Event, "wait", lambda *_: None)
    trace = open_replay(str(SCRIPTED[name]))
    described = [(gpu.index, gpu.uuid, gpu.name) for gpu in trace.devices()]

    for clock.now in (0.0, 3.5, 59.0, 61.0):
        played = trace.read()
        assert [(gpu.index, gpu.uuid, gpu.name) for gpu in played] == described
        pids = {process.pid for gpu in played for process in gpu.processes or ()}
        assert pids <= trace.reported_holders.keys()
        assert pids
    assert trace.pids_are_here is False


def test_the_trace_of_a_lost_gpu_loses_it_with_an_xid(clock):
    trace = open_replay(str(SCRIPTED["lost-gpu"]))
    before = trace.read()
    clock.now = 4.0
    after = trace.read()

    assert [gpu.error for gpu in before] == [None, None]
    assert [gpu.error for gpu in after] == [None, "gpu lost"]
    assert after[1].xid.code == 79
    assert abs(after[1].xid.t - time.time()) < 60


def test_traces_written_by_hand_say_that_they_are_scripted():
    for path in SCRIPTED.values():
        header = json.loads(path.read_text().partition("\n")[0])
        assert header["scripted"] is True
        assert header["comment"].startswith("Scripted, not recorded")
