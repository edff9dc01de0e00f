"""A study's duration is estimated from earlier runs of its arms on this machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.store.processes import hostname
from nbkit.studies.durations import StartTimes, earlier_times, run_seconds
from tests.golden.hosts import CPU_HOST
from tests.golden.outcome import Outcome, Start
from tests.golden.records import write_run

HERE = replace(CPU_HOST, name=hostname())


@pytest.fixture
def written(store):
    """Return what writes a finished run of this host, so many seconds long."""
    numbers = iter(range(1, 100))
    fields = {"steps": 10, "warmup_steps": 2, "batch_size_per_gpu": 10}
    config = ExperimentConfig(device="cpu", **fields)

    def write(seconds, host=HERE, tags=None, **changes):
        number = next(numbers)
        start = Start(f"20260302-100000-{number:04}", "a", "a", number, 1.8e9)
        # Ten steps; the first takes three times as long.
        outcome = Outcome(10 * 12 / seconds, noise=0.0, tags=tags or {})
        write_run(store, config.replace(**changes), host, start, outcome)
        record = store / "runs" / start.run_id / "record.json"
        return config, record

    return write


def test_earlier_times_are_of_the_same_configuration_on_this_host(written):
    config, _ = written(20.0, name="one", seed=1)
    written(30.0, name="another", seed=2)
    written(400.0, tags={"concurrent": "a; b"})
    written(500.0, host=CPU_HOST)
    written(600.0, batch_size_per_gpu=20)
    _, failed = written(700.0)
    failed.write_text(failed.read_text().replace('"finished"', '"failed"'))
    _, damaged = written(800.0)
    damaged.write_text("{")
    arms = {"a": config, "b": config.replace(model="resnet18")}

    # Each start takes 0.4 s to launch beside its run's own start and end.
    assert earlier_times(arms, [], {}).total("aa") == pytest.approx(60.8, abs=0.1)
    assert earlier_times(arms, ["a"], {}).total("a") == pytest.approx(405.4, abs=0.1)
    assert earlier_times(arms, [], {"OMP_NUM_THREADS": "1"}).total("a") is None
    # An arm that has not run takes as long as the others.
    assert earlier_times(arms, [], {}).total("b") == pytest.approx(30.4, abs=0.1)


def test_start_times_are_of_starts_whose_runs_have_all_finished():
    times = StartTimes()
    ended = [
        {"state": state, "time": {"started": f"{day}T00:00", "ended": f"{day}T00:{m}"}}
        for day, m, state in [
            ("2026-01-01", "02", "finished"),
            ("2026-01-01", "03", "finished"),
            ("2026-01-02", "01", "failed"),
        ]
    ]

    times.take("a", ended[:2])
    times.take("a", ended[1:])

    assert times.total(["a"]) == 180.4


def test_a_study_of_scripts_has_no_estimate_by_other_scripts(written, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("print(1)")
    study = nbkit.Study.create("scripts", {"a": nbkit.script(script)})
    written(20.0, **study.arms["a"].model_dump())

    assert study.estimated_seconds is None


def test_run_seconds_are_those_of_all_attempts():
    clock = "2026-03-02T10:{}:00.000Z"
    attempts = [
        {"started": clock.format(begin), "ended": clock.format(end)}
        for begin, end in (("00", "09"), ("30", "31"))
    ]

    assert run_seconds({"attempts": attempts, "time": attempts[1]}) == 600
    assert run_seconds({"attempts": attempts[:1], "time": attempts[0]}) == 540


def test_data_of_a_study_mean_the_same_in_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = nbkit.Study.create("data", {"a": ExperimentConfig(data="images")})
    monkeypatch.chdir("/")

    assert study.arms["a"].data == str(tmp_path / "images")
