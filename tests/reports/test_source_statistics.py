"""The same steps by the statistics of others, each computed by hand."""

from __future__ import annotations

import json
from itertools import count

import pytest

from nbkit.errors import NotEnoughDataError
from nbkit.reports.source_statistics import source_statistics
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
        epochs=None,
        per_epoch=None,
    ):
        run = WrittenRun(tmp_path / str(next(STORES)))
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
        run.record("finished")
        facts = {"device_type": "cuda", "steps_per_epoch": per_epoch or len(seconds)}
        run.run.paths.worker.write_text(json.dumps(facts))
        return run.run

    return write


# Two slow steps of warm-up, seventeen of a second, one of half, and a drained one.
SECONDS = [4.0, 3.0, *[1.0] * 17, 0.5, 2.0]


def value(runs, label):
    rows = source_statistics(runs)
    [row] = [row for row in rows if row.definition.label == label]
    return row.images_per_second


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

    assert value([few], "mean of step rates") is None
    assert value([few], "total_ips") is not None


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


def test_runs_without_steps_have_no_statistics(written):
    with pytest.raises(NotEnoughDataError, match="None of 1 runs has measured steps"):
        source_statistics([written([1.0, 1.0])])
