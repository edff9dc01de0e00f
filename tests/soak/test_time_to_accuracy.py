"""Time to a modest accuracy on a tenth of CIFAR-10: the notebook, with real images."""

from __future__ import annotations

from pathlib import Path

import pytest

import nbkit
from nbkit.reports.renderer import REPORT_MIME
from tests.notebooks.executing import UNLIMITED, execute

CIFAR10 = Path(__file__).parents[3] / "shared" / "data" / "cifar10-subset"


@pytest.mark.timeout(3600)
@pytest.mark.skipif(not CIFAR10.is_dir(), reason=f"{CIFAR10} is not there")
def test_two_recipes_reach_half_of_a_tenth_of_cifar10(tmp_path, monkeypatch):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "store"))

    done = execute(
        "time_to_accuracy",
        tmp_path / "out.ipynb",
        *("-p", "data", str(CIFAR10), "-p", "target_accuracy", "0.5"),
        *("-p", "repeats", "2", "-p", "device", "cpu", *UNLIMITED),
    )

    assert done.returncode == 0, done.terminal
    report = done.cells[-1].outputs[-1].data[REPORT_MIME]
    print(report["answer"])
    for name, recipe in report["result"]["recipes"].items():
        for run in recipe["runs"]:
            print(
                f"{name}, seed {run['seed']}: {run['seconds']} s, "
                f"{run['epochs']} epochs, at best {run['best_accuracy']:.3f}"
            )
    sgd = report["result"]["recipes"]["sgd"]
    assert sgd["times"]["reached"] == 2
    assert sgd["epochs"]["median"] <= 12
    for name in ("sgd", "lars"):
        best = [
            run["best_accuracy"] for run in report["result"]["recipes"][name]["runs"]
        ]
        assert min(best) > 0.4
    here = report["result"]["projected"]["estimates"][0]
    assert here["origin"] == "measured rate, projected"
    assert (here["rate_n"], here["epochs"]) == (2, 35)
    assert here["seconds_low"] < here["seconds"] < here["seconds_high"]
    assert len(nbkit.runs()) == 6
