"""MLPerf's own checker accepts a run's log where the run is its benchmark."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import nbkit
from nbkit.errors import ConfigError, NotEnoughDataError
from nbkit.reports.mlperf_log import mllog
from nbkit.store.metrics import to_json_line
from tests.review.trained_run import BEGIN, trained_run

IMAGENET = {
    "loader": "dali",
    "train_images": 1_279_488,
    "dropped_images": 1_679,
    "evaluation_images": 50_000,
}
REFERENCE = {
    "batch_size_per_gpu": 408,
    "global_batch_size": 3_264,
    "steps_per_epoch": 392,
    "data": IMAGENET,
}
SGD = {
    "optimizer": "sgd",
    "learning_rate": 0.1,
    "schedule": "polynomial",
    "polynomial_end": 0.0001,
}


def netapp(store, accuracies, **values):
    """Return a run of NetApp's recipe, whatever it reached."""
    config = nbkit.recipe("netapp_resnet50").config()
    fields = config.model_dump(mode="json", exclude_unset=True)
    return trained_run(
        store, accuracies, **{"worker": REFERENCE, **fields, "data": "/d", **values}
    )


def entries(text):
    lines = text.splitlines()
    assert all(line.startswith(":::MLLOG ") for line in lines)
    return [json.loads(line.removeprefix(":::MLLOG ")) for line in lines]


def values(text):
    """Return the value of every key that stands there once."""
    found = {}
    for line in entries(text):
        found.setdefault(line["key"], []).append(line["value"])
    return {key: many[0] for key, many in found.items() if len(many) == 1}


def checked(text, folder, ruleset="4.0.0"):
    """Return what MLPerf's compliance checker says, empty if nothing is wrong."""
    (folder / "result_0.txt").write_text(text)
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-W",
                "ignore",
                "-m",
                "mlperf_logging.compliance_checker",
            ),
            *("--ruleset", ruleset, "--log_output", str(folder / "said.log")),
            *("--werror", str(folder / "result_0.txt")),
        ],
        capture_output=True,
        text=True,
    )
    said = done.stdout + done.stderr
    assert ("SUCCESS" in said) == (done.returncode == 0), said
    return "" if done.returncode == 0 else said


def test_the_checker_accepts_a_run_of_the_lars_recipe(tmp_path):
    run = netapp(tmp_path, {7: 0.4, 11: 0.6, 15: 0.761})

    system = {"platform": "8 x A100", "status": "onprem"}
    text = mllog(run, org="somebody", division="closed", **system)

    assert checked(text, tmp_path) == ""
    said = values(text)
    assert said["submission_benchmark"] == "resnet"
    assert said["lars_opt_base_learning_rate"] == 10.5
    # As in MLPerf's reference point for this batch, but for the rounding of an epoch.
    assert said["lars_opt_learning_rate_decay_steps"] == 37 * 392
    assert (said["global_batch_size"], said["eval_samples"]) == (3_264, 50_000)


def test_the_checker_accepts_a_run_of_sgd(tmp_path):
    run = netapp(tmp_path, {7: 0.77}, **SGD, weight_decay=1e-4)

    assert checked(mllog(run, division="closed"), tmp_path) == ""


@pytest.mark.parametrize(
    ("accuracies", "changes", "said"),
    [
        ({4: 0.7}, {}, "eval_accuracy : v['value'] >= 0.7590"),
        ({4: 0.8}, {"weight_decay": 3e-5}, "lars_opt_weight_decay"),
    ],
)
def test_the_checker_refuses_a_run_that_is_not_the_benchmark(
    accuracies, changes, said, tmp_path
):
    run = netapp(tmp_path, accuracies, **changes)

    assert said in checked(mllog(run, division="closed"), tmp_path)


def test_the_benchmark_of_other_images_is_the_model_which_the_checker_has_not(tmp_path):
    run = netapp(tmp_path, {4: 0.8}, worker={**REFERENCE, "data": {}})

    assert "open_resnet50.yaml" in checked(mllog(run), tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"worker": {**REFERENCE, "data": {}}}, "require resnet50 on all images of Im"),
        ({"schedule": "cosine"}, r"schedule=cosine \(the rules require polynomial\)"),
        ({"target_accuracy": 0.5}, r"target_accuracy=0\.5"),
        ({"weights": "pretrained"}, "weights=pretrained"),
    ],
)
def test_a_run_that_breaks_the_rules_is_not_called_closed(changes, said, tmp_path):
    run = netapp(tmp_path, {4: 0.8}, **changes)

    with pytest.raises(ConfigError, match=said):
        mllog(run, division="closed")
    assert values(mllog(run))["submission_division"] == "open"


def test_an_epoch_stops_before_the_next_begins_though_its_end_is_noticed_late(tmp_path):
    run = trained_run(tmp_path, {2: 0.8}, noticed_late=2.5)

    lines = entries(mllog(run))

    at = [line["time_ms"] for line in lines if line["key"].startswith("epoch_")]
    assert [line["key"] for line in lines if line["key"].startswith("epoch_")] == [
        *("epoch_start", "epoch_stop"),
        *("epoch_start", "epoch_stop"),
    ]
    assert at == sorted(at)
    assert at[-1] == 1_000 * (BEGIN + 20)


@pytest.mark.parametrize("resumes", [False, True])
def test_an_epoch_lasts_through_a_checkpoint_or_a_resume_in_its_middle(
    resumes, tmp_path
):
    run = trained_run(tmp_path, {2: 0.8}, noticed_late=2.5)
    lines = []
    for line in run.metrics(None):
        late = {"t": line["t"] + 600} if line["step"] > 15 else {}
        again = {"attempt": 1} if resumes and late else {}
        lines.append({**line, **late, **again})
        if line["step"] == 15 and not resumes:
            saved = {"kind": "checkpoint", "attempt": 0, "step": 15, "t": BEGIN + 615}
            lines.append({**saved, "duration_seconds": 600.0})
    run.paths.metrics.write_text("".join(map(to_json_line, lines)))

    lines = entries(mllog(run))

    stops = [line["time_ms"] for line in lines if line["key"] == "epoch_stop"]
    assert stops[-1] == 1_000 * (BEGIN + 620)
    assert stops[0] < 1_000 * (BEGIN + 15)


def test_events_stand_in_the_order_of_time_and_span_what_was_timed(tmp_path):
    run = trained_run(tmp_path, {2: 0.5, 4: 0.8})

    lines = entries(mllog(run))

    times = [line["time_ms"] for line in lines]
    assert times == sorted(times)
    at = {line["key"]: line["time_ms"] for line in lines}
    assert at["run_start"] == 1_000 * BEGIN
    assert at["run_stop"] - at["run_start"] == 48_000
    assert at["run_start"] - at["init_start"] == 20_000
    keys = [line["key"] for line in lines if line["event_type"] != "POINT_IN_TIME"]
    assert keys[2:] == [
        *("run_start", "block_start", "epoch_start", "epoch_stop", "epoch_start"),
        *("epoch_stop", "eval_start", "eval_stop", "block_stop", "block_start"),
        *("epoch_start", "epoch_stop", "epoch_start", "epoch_stop", "eval_start"),
        *("eval_stop", "block_stop", "run_stop"),
    ]
    assert lines[-1]["metadata"] == {"status": "success"}
    accuracies = [line for line in lines if line["key"] == "eval_accuracy"]
    assert [line["metadata"] for line in accuracies] == [
        {"epoch_num": 2},
        {"epoch_num": 4},
    ]


def test_a_run_that_did_not_get_there_is_aborted_and_what_is_unknown_is_null(tmp_path):
    run = trained_run(
        tmp_path, {1: 0.1}, worker={"data": None, "steps_per_epoch": None}
    )

    text = mllog(run)

    assert entries(text)[-1]["metadata"] == {"status": "aborted"}
    said = values(text)
    unknown = ("submission_org", "submission_platform", "cache_clear", "eval_samples")
    assert {said[key] for key in unknown} == {None}
    assert said["sgd_opt_learning_rate_decay_steps"] is None


def test_a_run_that_was_stopped_behind_an_evaluation_stops_behind_its_last_step(
    tmp_path,
):
    run = trained_run(tmp_path, {1: 0.1}, epochs=2)

    lines = entries(mllog(run))

    times = [line["time_ms"] for line in lines]
    assert times == sorted(times)
    assert lines[-1]["metadata"] == {"status": "aborted"}
    assert times[-1] == 1_000 * (BEGIN + 24)


def test_a_run_that_still_runs_has_no_log(tmp_path):
    run = trained_run(tmp_path, {1: 0.1})
    record = json.loads(run.paths.record.read_text())
    run.paths.record.write_text(json.dumps({**record, "state": "running"}))

    with pytest.raises(NotEnoughDataError, match=r"is running, .* Call wait\(\)"):
        mllog(run)


def test_the_log_is_written_where_it_is_asked_for(tmp_path):
    run = trained_run(tmp_path, {1: 0.8})
    file = tmp_path / "made" / "result_0.txt"

    assert nbkit.mllog(run, file) == file.read_text()
    assert [one.name for one in file.parent.iterdir()] == ["result_0.txt"]


def test_what_cannot_be_a_log_is_refused(tmp_path):
    run = trained_run(tmp_path, {1: 0.8}, record={"time": {"started": None}})

    with pytest.raises(NotEnoughDataError, match=r"time\.started=None"):
        mllog(run)
    run.paths.config.write_text(json.dumps({"model": "resnet50", "epochs": 1}))
    with pytest.raises(ConfigError, match="target_accuracy=None"):
        mllog(type(run)(run.paths.root))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"division": "Closed"}, r"'Closed' is not defined .* of closed, open\."),
        ({"status": "on-prem"}, r"status='on-prem' is not defined .*onprem"),
    ],
)
def test_a_word_that_mlperf_does_not_have_is_refused(given, said, tmp_path):
    run = trained_run(tmp_path, {1: 0.8})

    with pytest.raises(ConfigError, match=said):
        mllog(run, tmp_path / "log", **given)

    assert not (tmp_path / "log").exists()
