"""The past, read from the files of samplers without reading all of them."""

from __future__ import annotations

import io
import itertools
import json

import pytest

from nbkit.telemetry import machine_history
from nbkit.telemetry.machine_history import read_history
from nbkit.telemetry.sample import GpuSample, HostSample, Sample

NOW = 1_700_000_000.0


def _sample(t, utilization=50, filler=""):
    gpu = GpuSample(
        0,
        "GPU-a",
        filler,
        gpu_utilization_percent=utilization,
        memory_used_bytes=20,
        memory_total_bytes=80,
        power_watts=350.0,
        power_limit_watts=700.0,
    )
    host = HostSample(12.5, memory_used_bytes=1, memory_available_bytes=3)
    return {"kind": "sample", **Sample(t, (gpu,), host=host).to_dict()}


def _samples(times):
    """Return many that differ in their time alone."""
    one = _sample(0.0)
    return [{**one, "t": t} for t in times]


def _header(t):
    return {"kind": "header", "schema": 1, "t": t, "devices": []}


def _write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_row_has_shares_of_gpus_and_host(tmp_path):
    path = _write(tmp_path / "a.jsonl", [_header(NOW - 5), _sample(NOW - 4)])

    (row,) = read_history(path, NOW)

    assert row == [NOW - 4, {"GPU-a": [50, 25.0, 50.0]}, [12.5, 25.0]]


def test_what_a_gpu_did_not_tell_stays_unknown(tmp_path):
    lost = {"kind": "sample", **Sample(NOW, (GpuSample(1, error="lost"),)).to_dict()}
    path = _write(tmp_path / "a.jsonl", [lost])

    assert list(read_history(path, NOW)) == [[NOW, {"1": [None] * 3}, [None, None]]]


@pytest.mark.parametrize("interval", [0.5, 1, 7, 45])
def test_the_newest_half_hour_is_whole_and_what_is_older_is_thin(tmp_path, interval):
    times = [NOW - 3600 + n * interval for n in range(int(3600 / interval))]
    path = _write(tmp_path / "a.jsonl", [_header(times[0]), *_samples(times)])

    found = [row[0] for row in read_history(path, NOW)]

    newest = NOW - 1800
    assert [t for t in found if t > newest] == [t for t in times if t > newest]
    older = [t for t in found if t <= newest]
    steps = [b - a for a, b in itertools.pairwise(older)]
    assert min(steps) >= 30
    assert max(steps) < 30 + interval
    assert older[0] == times[0]


@pytest.fixture
def looks(monkeypatch):
    """Return a list that grows by an entry for each line that is looked at."""
    looked = []

    class Counted(io.BufferedReader):
        def readline(self, size: int | None = -1):
            looked.append(size)
            return super().readline(size)

    monkeypatch.setattr(
        machine_history, "open_regular", lambda path: Counted(io.FileIO(path))
    )
    return looked


def test_what_is_older_than_a_day_is_passed_over(tmp_path, looks):
    times = [NOW - 30 * 3600 + n * 20 for n in range(30 * 180)]
    path = _write(tmp_path / "a.jsonl", _samples(times))

    rows = read_history(path, NOW)
    first = next(rows)

    assert first[0] == NOW - 24 * 3600
    # A thousand older lines are there; a bisection needs few, and reads the last 64 kB.
    assert len(looks) < 200
    rows.close()


def test_a_gap_between_attempts_is_left_open(tmp_path):
    first = [NOW - 7200 + n for n in range(60)]
    second = [NOW - 3600 + n for n in range(60)]
    rows = [_header(first[0]), *map(_sample, first), _header(second[0])]
    path = _write(tmp_path / "a.jsonl", [*rows, *map(_sample, second)])

    found = [row[0] for row in read_history(path, NOW)]

    assert found == [first[0], first[30], second[0], second[30]]


def test_half_a_line_at_the_end_is_left_to_its_writer(tmp_path):
    path = _write(tmp_path / "a.jsonl", [_sample(NOW - 2)])
    with path.open("a") as file:
        file.write('{"kind": "sample", "t": 17')

    assert [row[0] for row in read_history(path, NOW)] == [NOW - 2]


def test_what_is_no_number_in_a_sample_is_unknown(tmp_path):
    odd = _sample(NOW - 4, utilization=float("nan"))
    odd["gpus"][0].update(memory_total_bytes="80", power_watts=10**400)
    odd["host"].update(cpu_percent=[12], memory_used_bytes=float("inf"))
    path = _write(tmp_path / "a.jsonl", [odd])

    (row,) = read_history(path, NOW)

    assert row == [NOW - 4, {"GPU-a": [None] * 3}, [None, None]]


@pytest.mark.parametrize("values", [{"gpus": [7]}, {"gpus": None}, {"host": "none"}])
def test_a_line_of_another_form_hides_no_other(tmp_path, values):
    rows = [{**_sample(NOW - 4), **values}, _sample(NOW - 3)]
    path = _write(tmp_path / "a.jsonl", rows)
    with path.open("a") as file:
        file.write('{"t": 1.2.3}\n')

    assert [row[0] for row in read_history(path, NOW)] == [NOW - 3]


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        list(read_history(tmp_path / "none.jsonl", NOW))
