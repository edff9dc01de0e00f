"""The metric of a study: which number of a run it is."""

from __future__ import annotations

import pytest

import nbkit
from nbkit.errors import NotEnoughDataError
from nbkit.launch.run import Run
from nbkit.studies.metric import Metric

TIMED = "tokens/s tok_s it/s fps dt Throughput MFU energy_joules step_ms elapsed"
TIMED += " minutes gpu_hours images_per_minute tokens/min bandwidth"
UNTIMED = "val_loss bits/step steps val/score tokens_seen top1_accuracy loss_min"


@pytest.mark.parametrize("name", TIMED.split())
def test_metric_is_timed(name):
    assert Metric(name, "lower", 0.0).is_timed


@pytest.mark.parametrize("name", UNTIMED.split())
def test_metric_is_not_timed(name):
    assert not Metric(name, "lower", 0.0).is_timed


@pytest.mark.parametrize(
    ("better", "new", "margin", "is_discarded"),
    [
        ("lower", 2.31, 0.0, True),
        ("lower", 2.31, 0.02, False),
        ("lower", 2.36, 0.02, True),
        ("higher", 2.24, 0.02, True),
        ("higher", 2.27, 0.02, False),
    ],
)
def test_metric_discards_what_is_worse_by_the_margin(better, new, margin, is_discarded):
    metric = Metric("loss", better, margin, discard_floors=5.0)

    floors = metric.floors_worse([new, new + 1e-5], [2.3, 2.30001])

    assert (floors is not None) == is_discarded


def test_metric_forms_of_what_a_function_logged_and_returned(monkeypatch):
    def fit(returned):
        import nbkit

        for step, loss in enumerate([3.0, 1.0, 4.0]):
            nbkit.log({"loss": loss, "best:own": loss}, step)
        return returned

    returned = {"accuracy": 0.5, "weights": object}
    run = nbkit.launch(fit, args=(returned,), device="cpu", gpus=1).wait()
    monkeypatch.setattr(Run, "summary", None)  # it would read the file again
    expected = {
        ("loss", "lower"): 4.0,
        ("best:own", "lower"): 4.0,
        ("mean:loss", "lower"): 8 / 3,
        ("best:loss", "lower"): 1.0,
        ("best:loss", "higher"): 4.0,
        ("step1:loss", "lower"): 1.0,
        ("returned:accuracy", "higher"): 0.5,
    }
    values = {of: Metric(*of, 0.0).value(run) for of in expected}
    assert values == pytest.approx(expected)
    remedies = {
        "acc": "Call nbkit.log({'acc': ...}), or print 'acc: 0.5'.",
        "step9:loss": "Call nbkit.log({'loss': ...}) at step 9.",
        "mean:accuracy": "Call nbkit.log({'accuracy': ...}).",
        "returned:weights": "Return a number, or {'loss': 0.5} for returned:loss.",
        "returned": "Return a number, or {'loss': 0.5} for returned:loss.",
    }
    for name, remedy in remedies.items():
        with pytest.raises(NotEnoughDataError, match=f"no metric '{name}'") as error:
            Metric(name, "lower", 0.0).value(run)
        assert str(error.value).endswith(f"nothing. {remedy}")
