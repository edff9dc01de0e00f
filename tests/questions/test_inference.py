"""What the inference report says of accuracy, energy, passes and missing formats."""

from __future__ import annotations

import pytest

from nbkit.questions import inference
from nbkit.questions.inference.evidence import at_batch_size
from nbkit.reports.renderer import Note
from nbkit.statistics import latency_timings
from nbkit.store.record import read_json, write_json
from tests.questions.conftest import edit_metrics
from tests.reports.test_energy_per_image import WATTS, write_samples
from tests.statistics.test_latency import line
from tests.widgets.stored_run import WrittenRun


@pytest.mark.parametrize(
    ("seconds", "joules"), [(6, WATTS * 6 / 1200), (4, None)], ids=["long", "short"]
)
def test_energy_per_image_is_that_of_the_passes_in_a_row(store, seconds, joules):
    written = WrittenRun(store)
    write_samples(written, counters=("GPU-a",))
    passes = {"throughput_batches": 300, "began": 110.0, "ended": 110.0 + seconds}
    [timing] = latency_timings([line(4, [0.02] * 50, **passes)]).values()

    found = at_batch_size(written.run, timing)

    # The counter grows by 300 J a second; of less than five readings nobody knows it.
    expected = None if joules is None else pytest.approx(joules)
    assert found.joules_per_image == expected


def runs_of(study):
    return [run for runs in study.runs_by_arm().values() for run in runs]


def test_accuracy_table_few_images(golden):
    study = golden("inference/gpu")
    for run in runs_of(study):
        lines = run.paths.predictions.read_text().splitlines(keepends=True)
        run.paths.predictions.write_text("".join(lines[:97]))

    table = inference.result(study).accuracy

    assert "accuracy is unchanged: 96." in table.notes[1]
    assert "Use 276 or more." in table.notes[1]
    assert [row[-1] for row in table.rows] == [
        *("baseline", "too few images to tell", "too few images to tell")
    ]


@pytest.mark.parametrize(
    ("weights", "why"),
    [
        ({"source": "random"}, "the weights are random"),
        ({"new_output_layer": True}, "the output layer is untrained"),
    ],
)
def test_accuracy_table_untaught_weights(golden, weights, why):
    study = golden("inference/gpu")
    [run, *_] = study.runs_by_arm()["fp32"]
    write_json(run.paths.worker, read_json(run.paths.worker) | {"weights": weights})

    table = inference.result(study).accuracy

    assert table.notes[1].startswith(f"Not judged: {why}")
    assert [row[-1] for row in table.rows] == ["baseline", "not judged", "not judged"]


def test_accuracy_without_evaluation_images(golden):
    study = golden("inference/gpu")
    for run in runs_of(study):
        run.paths.predictions.unlink()
    edit_metrics(runs_of(study), lambda line: line.update(kind="no"), "evaluation")

    found = inference.result(study)

    assert isinstance(found.accuracy, Note)
    assert "Accuracy is unknown" in found.report().notes[-1]
    assert "accuracy not compared" in found.answer


def test_table_passes_that_time_has_ended(golden):
    study = golden("inference/gpu")

    def end(line):
        if line["batch_size"] == 32:
            line["times_seconds"] = line["times_seconds"][:12]

    edit_metrics(runs_of(study)[:3], end, "inference")

    assert (
        "Batch size 32: 12 to 100 of 100 timed passes per run (limit 5 s)."
    ) in inference.result(study).table.notes
