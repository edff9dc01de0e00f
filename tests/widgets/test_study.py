"""A study at the end of a cell is a table of its arms."""

from __future__ import annotations

import re
from importlib import resources

from PIL import Image

import nbkit
from nbkit.store.nonfinite import NonFinite
from nbkit.widgets.study import study_html
from tests.launch.conftest import plugins, small, store
from tests.studies.written_study import write_runs

__all__ = ["plugins", "small", "store"]


def test_a_study_shows_how_far_each_arm_is_and_what_comes_next(small):
    base = small(gpus=1, steps=4, warmup_steps=1)
    study = nbkit.Study.create("rates", {"a<b": base}, repeats=1)

    before = study_html(study)
    write_runs(study, {"a<b": 10})
    after = study_html(study)

    assert cells(before) == ["a&lt;b", "0 of 1", "–", "–", "–"]
    assert "Missing runs: 1. nbkit.Study.open(" in before
    (run,) = study.runs_by_arm()["a<b"]
    assert cells(after)[:2] == ["a&lt;b", "1 of 1"]
    assert float(cells(after)[2].replace(",", "")) > 0
    assert run.summary.images_per_second is not None
    assert "nbkit.report(study)" in after


def test_a_run_that_ended_as_not_finite_is_neither_finished_nor_missing(small, store):
    arms = {"wild": small(gpus=1, stop_on_nonfinite=True)}
    unrepeated = {"links": small(gpus=1, task="allreduce")}
    study = nbkit.Study.create("rates", arms, repeats=2, unrepeated=unrepeated)
    rates = {"wild": 100.0, "links": 1.0}
    write_runs(study, rates, {"wild": NonFinite("loss", 3)}, ["wild"])

    page = study_html(study)

    assert cells(page)[:2] == ["links", "1 of 1"]
    assert cells(page)[5:7] == ["wild", "1 of 2, 1 not finite"]
    assert "All runs have ended: nbkit.report(study)" in page


def cells(page):
    return re.findall(r"<td[^>]*>(.*?)</td>", page)


def test_the_chart_of_a_report_can_be_saved_as_a_picture(tmp_path):
    bundle = resources.files("nbkit") / "questions/machines/bundles/one-cpu-vm.zip"
    study = nbkit.import_bundle(str(bundle)).study_id

    figure, *_ = nbkit.report(study).report.figures
    figure.chart.save(str(tmp_path / "chart.png"))

    with Image.open(tmp_path / "chart.png") as picture:
        assert picture.width > 200
