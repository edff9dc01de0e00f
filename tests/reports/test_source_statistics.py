"""The same steps by the statistics of others, each computed by hand."""

from __future__ import annotations

import json
from itertools import count

import pytest

from nbkit.errors import NotEnoughDataError
from nbkit.reports.source_statistics import source_statistics
from tests.review.trained_run import trained_run
from tests.widgets.stored_run import WrittenRun, step

STORES = count()


@pytest.fixture
def written(tmp_path):
    """Return what writes a run of 100 images a step, given the seconds of each step."""

    def write(
        seconds,
        *,
        warmup=2,
        waits=0.0,
        ended="10:00",
        epochs=None,
        system=None,
        per_epoch=None,
        accuracy=None,
        task="train",
    ):
        targets = {"target_accuracy": 0.75, "evaluation_period_epochs": 1}
        run = WrittenRun(
            tmp_path / str(next(STORES)),
            **(targets if accuracy is not None else {}),
            task=task,
        )
        run.append(
            *(
                step(
                    number,
                    step_time_seconds=time,
                    data_wait_seconds=waits * time,
                    warmup=number <= warmup,
                    epoch=0 if epochs is None else epochs[number - 1],
                )
                for number, time in enumerate(seconds, 1)
            )
        )
        times = {"running": "2020-01-01T00:00:00Z", "ended": f"2020-01-01T00:{ended}Z"}
        run.record("finished", time=times, system=system)
        if accuracy is not None:
            line = {"kind": "evaluation", "attempt": 0, "step": len(seconds)}
            run.append(line | {"top1_accuracy": accuracy})
        facts = {"device_type": "cuda", "steps_per_epoch": per_epoch or len(seconds)}
        run.run.paths.worker.write_text(json.dumps(facts))
        return run.run

    return write


# Two slow steps of warm-up, seventeen of a second, one of half, and a drained one.
SECONDS = [4.0, 3.0, *[1.0] * 17, 0.5, 2.0]


def by_label(runs):
    return {
        (row.label, row.source.split(",")[0]): row for row in source_statistics(runs)
    }


def value(runs, label):
    [row] = [row for row in source_statistics(runs) if row.label == label]
    return row.value


def test_each_statistic_is_what_its_source_would_have_printed(written):
    run = written(SECONDS)

    total = sum(SECONDS)
    assert value([run], "images / time") == run.summary.images_per_second
    assert value([run], "images / time") == pytest.approx(1900 / (total - 7))
    assert value([run], "median step") == 100
    assert value([run], "images / whole time") == pytest.approx(2100 / total)
    assert value([run], "mean of runs") == pytest.approx(1900 / (total - 7))
    # Steps 10 to 19 take a second, step 20 half of one, and step 21 is the last.
    assert value([run], "mean of step rates") == pytest.approx(1200 / 11)
    last_in = value([run], "mean of step rates, last step in")
    assert last_in == pytest.approx(1250 / 12)
    mean = sum(100 / seconds for seconds in SECONDS) / len(SECONDS)
    assert value([run], "total_ips") == pytest.approx(mean)


def test_data_wait_is_left_out_where_the_source_leaves_it_out(written):
    run = written([1.0] * 12, waits=0.5)

    assert value([run], "median step") == 100
    assert value([run], "total_ips") == 100
    assert value([run], "compute_ips") == 200
    assert value([run], "torchvision img/s") == 200
    assert value([run], "epoch throughput") == 100


def test_what_says_nothing_of_such_runs_is_left_out(written):
    few = written(SECONDS[:12])
    only_reads = written([1.0] * 24, waits=0.9, task="load")

    assert value([few], "mean of step rates") is None
    assert value([few], "total_ips") is not None
    assert value([only_reads], "compute_ips") is None
    assert value([only_reads], "torchvision img/s") is None
    assert value([only_reads], "total_ips") == 100


def test_epochs_are_rated_apart_and_the_first_is_left_out(written):
    epochs = [0, 0, 1, 1, 2, 2, 3]
    run = written([2.0, 2.0, 1.0, 1.0, 0.5, 0.5, 0.1], epochs=epochs, per_epoch=2)

    assert value([run], "epoch throughput") == pytest.approx((100 + 200) / 2)


def test_a_run_that_has_finished_no_epoch_has_no_rate_of_epochs(written):
    run = written([1.0] * 12, per_epoch=5_000)

    assert value([run], "median step") == 100
    assert value([run], "epoch throughput") is None


def test_several_runs_are_summed_up_as_the_source_does(written):
    runs = [written([seconds] * 12) for seconds in (0.5, 1.0, 1.0)]

    assert value(runs, "median step") == 100
    assert value(runs, "mean of runs") == pytest.approx((200 + 100 + 100) / 3)
    assert value(runs, "images / whole time") == 100


def test_every_row_stands_against_ours_and_says_how_it_differs(written):
    rows = source_statistics([written(SECONDS)])

    assert (rows[0].source, rows[0].against_ours) == ("nbkit", 1.0)
    for row in rows[1:]:
        assert row.difference
        assert row.url is None or row.url.startswith("https://")
        if row.unit == "images/s":
            assert row.against_ours == pytest.approx(row.value / rows[0].value)
            assert row.n_runs == 1
        else:
            assert row.against_ours is None
    assert len({(row.label, row.source) for row in rows}) == len(rows)


def test_utilization_is_the_mean_of_all_samples_of_all_gpus(written):
    gpus = {
        "GPU-1": {"gpu_utilization_percent_sum": 900, "gpu_utilization_samples": 10},
        "GPU-2": {"gpu_utilization_percent_sum": 500, "gpu_utilization_samples": 10},
    }
    run = written(SECONDS, system={"gpus": gpus})

    assert value([run], "mean GPU utilization") == 70
    assert value([written(SECONDS)], "mean GPU utilization") is None


def test_an_olympic_mean_leaves_out_the_fastest_and_the_slowest(written):
    minutes = ("01", "02", "09")
    runs = [written(SECONDS, ended=f"{one}:00", accuracy=0.8) for one in minutes]
    missed = written(SECONDS, ended="01:00", accuracy=0.7)
    without_target = written(SECONDS, ended="01:00")

    assert value(runs, "olympic mean of the time") == 2
    assert value(runs[:2], "olympic mean of the time") is None
    mixed = [*runs[:2], missed, without_target]
    assert value(mixed, "olympic mean of the time") is None
    # A run that missed the target is the slowest; two of them leave no mean.
    assert value([*runs, missed], "olympic mean of the time") == 5.5
    assert value([*runs, missed, missed], "olympic mean of the time") is None


def test_the_time_of_a_resumed_run_begins_with_its_first_step(tmp_path):
    times = {
        "started": "2020-01-01T00:50:00Z",
        "running": "2020-01-01T00:50:00Z",
        "ended": "2020-01-01T01:00:30Z",
    }
    runs = [
        trained_run(
            tmp_path / str(number), {1: 0.8}, record={"time": times, "attempt": 1}
        )
        for number in range(3)
    ]

    # The first image was asked for half a minute past midnight.
    assert value(runs, "olympic mean of the time") == pytest.approx(60)


def test_runs_without_steps_have_no_statistics(written):
    with pytest.raises(NotEnoughDataError, match="0 of 1 have measured steps"):
        source_statistics([written([1.0, 1.0])])
