"""What the inference report says of accuracy, energy, passes and missing formats."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.questions import inference
from nbkit.questions.inference.evidence import _at
from nbkit.questions.inference.planning import InferencePlan
from nbkit.questions.inference.start import prepare
from nbkit.reports.renderer import Note
from nbkit.statistics import latency_timings
from nbkit.store.record import read_json, write_json
from nbkit.studies.parameters import Parameters
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

    found = _at(written.run, timing)

    # The counter grows by 300 J a second; of less than five readings nobody knows it.
    expected = None if joules is None else pytest.approx(joules)
    assert found.joules_per_image == expected


def planned():
    """Return a plan of small runs with synthetic images."""
    base = ExperimentConfig(
        task="inference",
        model="tiny",
        device="cpu",
        image_size=32,
        tensorboard=False,
        compile=True,
    )
    return InferencePlan(
        arms={one: base.replace(precision=one) for one in ("fp32", "bf16", "int8")},
        training=None,
        control=None,
        repeats=1,
        notes=("first",),
        parameters=Parameters({}, {}),
    )


def test_a_format_that_this_device_has_not_is_named_and_the_rest_goes_on(capsys):
    # torch.compile cannot take in the INT8 kernels of a CPU.
    ready = prepare(planned())

    assert list(ready.arms) == ["fp32", "bf16"]
    assert (
        "compile=True with precision='int8' on a CPU"
        in ready.facts["unavailable"]["int8"]
    )
    assert ready.notes[1].startswith("int8 is not available: ")
    assert "[1/1] int8 once: failed" in capsys.readouterr().out

    alone = {arm: one for arm, one in planned().arms.items() if arm != "bf16"}
    with pytest.raises(ConfigError, match=r"Only fp32 remains\. Add a format"):
        prepare(replace(planned(), arms=alone))


def runs_of(study):
    return [run for runs in study.runs_by_arm().values() for run in runs]


def test_accuracy_table_few_images(golden):
    study = golden("inference/gpu")
    for run in runs_of(study):
        lines = run.paths.predictions.read_text().splitlines(keepends=True)
        run.paths.predictions.write_text("".join(lines[:97]))

    table = inference.result(study).accuracy

    assert "96 images are too few to show" in table.notes[1]
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
        "Batch size 32: 12 to 100 timed passes per run, not 100 (limit 5 s)."
    ) in inference.result(study).table.notes
