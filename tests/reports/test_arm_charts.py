"""Charts of arms show the numbers of their table."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from nbkit.reports.arm_charts import speedup_figure, step_time_figures
from nbkit.reports.arms import Arms
from nbkit.reports.charts import FURTHEST
from tests.questions.test_charts import leaves
from tests.reports.test_arms import arms, runs
from tests.review.written_run import rank, write_run


def marks(figure):
    """Return the drawn rows and the encoding of each mark of a figure."""
    return {
        part["mark"]["type"]: (values, part["encoding"])
        for part, values in leaves(figure.chart.to_dict())
    }


def test_speedup_figure_values():
    measured = arms()
    shuffled = Arms(
        {arm: measured.runs[arm] for arm in ("bf16", "fp32 again", "fp32")},
        *("fp32", "fp32 again"),
    )

    figure = speedup_figure(shuffled, "Speedup", {"bf16": "loss suspect"})

    rows, encoding = marks(figure)["bar"]
    [control] = [row.ratio for row in measured.rows if row.arm == "fp32 again"]
    [bf16] = [row.ratio for row in measured.rows if row.arm == "bf16"]
    assert [(row["arm"], row["speedup"], row["low"], row["high"]) for row in rows] == [
        ("fp32", 1.0, None, None),
        ("bf16", bf16.estimate, bf16.ci_low, bf16.ci_high),
        ("fp32 again", control.estimate, control.ci_low, control.ci_high),
    ]
    assert [row["label"] for row in rows] == [
        "1.00x, baseline",
        "1.50x, loss suspect",
        "1.00x, A/A control",
    ]
    muted = encoding["opacity"]["condition"]["test"]["oneOf"]
    assert muted == ["fp32 again", "bf16"]
    assert [row["speedup"] for row in marks(figure)["rule"][0]] == [1.0]


def test_speedup_figure_without_interval():
    figure = speedup_figure(arms(n=1), "Speedup", {})

    assert "n=1; no CI" in figure.chart.to_dict()["title"]["subtitle"]
    assert {row["high"] for row in marks(figure)["bar"][0]} == {None}
    assert figure.png.startswith(b"\x89PNG")


def test_speedup_figure_interval_wider_than_the_chart():
    # Of two runs one of which was disturbed, the interval is wider than any chart.
    far = Arms({"a": runs([100.0, 100.1]), "b": runs([0.1, 300.0])}, "a")
    assert far.row("b").ratio.ci_high > 1e9

    figure = speedup_figure(far, "Speedup", {})

    spec = figure.chart.to_dict()
    assert "clipped at the chart's edge" in spec["title"]["subtitle"]
    rows, encoding = marks(figure)["bar"]
    domain = encoding["x"]["scale"]["domain"]
    assert domain == [0, pytest.approx(FURTHEST * max(row["speedup"] for row in rows))]
    assert Image.open(io.BytesIO(figure.png)).width < 2_000


@pytest.mark.parametrize("waits", [(0.25, 0.0), (0.0, 0.0), (0.25, 0.125)])
def test_step_time_figures_components(tmp_path, waits):
    data_wait, communication = waits
    ranks = [
        rank(number, data_wait=data_wait, communication_exposed=communication)
        for number in (0, 1)
    ]
    run = write_run(tmp_path, worker={"ranks": ranks})

    [figure] = step_time_figures({"fp32": [run], "bf16": [run]})

    rows, _ = marks(figure)["bar"]
    step = 1e3 * run.summary.step_time_seconds
    times = [row["milliseconds"] for row in rows if row["arm"] == "bf16"]
    assert sum(times) == pytest.approx(step)
    expected = [1 - sum(waits), *filter(None, waits)]
    assert times == pytest.approx([step * share for share in expected])


def test_step_time_figures_of_function(tmp_path):
    run = write_run(tmp_path, config={"task": "function"})

    assert step_time_figures({"f": [run]}) == []


def test_step_time_figures_median_of_runs(tmp_path):
    written = [
        write_run(tmp_path / str(wait), worker={"ranks": [rank(0, data_wait=wait)]})
        for wait in (0.1, 0.2, 0.6)
    ]

    [figure] = step_time_figures({"fp32": written})

    _, wait, *_ = marks(figure)["bar"][0]
    assert wait["component"] == "data wait"
    step = written[0].summary.step_time_seconds
    assert wait["milliseconds"] == pytest.approx(1e3 * step * 0.2)
