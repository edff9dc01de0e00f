"""What the charts show, and that measured, projected and published differ."""

from __future__ import annotations

import functools
import itertools
import re
from functools import partial

import pytest
import vl_convert

from nbkit.questions.scaling.chart import ideal_values, scaling_chart
from nbkit.questions.scaling.projection import project
from nbkit.questions.scaling.throughput import MeasuredRun, points, scaling_table
from nbkit.questions.storage.chart import over_time_chart
from nbkit.references.rows import curves
from nbkit.reports.charts import png

OTHERS = curves(
    model="resnet50",
    gpu_name="NVIDIA A100-SXM4-80GB",
    precision="fp16",
    largest_world_size=8,
)


def table(device_type="cuda", repeats=(0.99, 1.0, 1.01)):
    return scaling_table(
        MeasuredRun("fp16", size, 1, device_type, rate * repeat)
        for size, rate in ((1, 2_400.0), (2, 4_600.0), (4, 8_900.0))
        for repeat in repeats
    )


@functools.cache
def full_chart():
    rows = table()
    outlook = project(points(rows, "fp16"), [8], gpus_per_node=8)
    return scaling_chart(rows, {"fp16": outlook}, OTHERS)


def leaves(spec):
    """Return every layer that draws something, with its data's rows."""
    datasets = spec.get("datasets", {})

    def walk(part, data):
        data = part.get("data", data)
        if "layer" in part:
            for layer in part["layer"]:
                yield from walk(layer, data)
        else:
            values = data.get("values") or datasets[data["name"]]
            yield part, values

    yield from walk(spec, {})


def what(values):
    if "series" in values[0]:
        return "published"
    if "efficiency" in values[0]:
        return "measured"
    return "projected" if "low" in values[0] else "ideal"


def marks_by_kind(chart):
    kinds = {}
    for part, values in leaves(chart.to_dict()):
        kinds.setdefault(what(values), []).append(part["mark"])
    return kinds


def test_measured_projected_and_published_never_share_a_mark():
    kinds = marks_by_kind(full_chart())

    marks = {mark["type"] for mark in kinds["measured"]}
    assert marks == {"line", "rule", "circle"}
    assert [mark["type"] for mark in kinds["projected"]] == ["area"]
    line, point = kinds["published"]
    assert (point["shape"], point["filled"]) == ("diamond", False)
    assert line["strokeDash"]
    assert all("strokeDash" not in mark for mark in kinds["measured"])
    # A dark notebook does not swallow the text.
    assert full_chart().to_dict()["background"] == "white"


def test_ideal_line_of_a_machine_measured_from_two_gpus_on_is_theirs():
    rows = scaling_table(
        MeasuredRun("fp16", size, 1, "cuda", rate)
        for size, rate in ((2, 4_600.0), (4, 8_900.0))
    )

    values = ideal_values(rows, 8)

    assert [(v["world_size"], v["images_per_second"]) for v in values] == [
        (2, 4_600),
        (8, 18_400),
    ]


def test_a_single_size_has_its_point_in_the_middle_and_no_ideal_line():
    rows = scaling_table([MeasuredRun("fp16", 2, 1, "cuda", 4_600.0)])

    parts = list(leaves(scaling_chart(rows, {}, {}).to_dict()))

    assert "ideal" not in {what(values) for _, values in parts}
    assert all(
        part["encoding"]["x"]["scale"]["domain"] == [0, 4]
        for part, values in parts
        if what(values) == "measured"
    )


def test_picture_is_the_same_in_the_oldest_vega_lite_at_hand():
    # JupyterLab 4's own renderer is older than altair's schema.
    oldest = vl_convert.vegalite_to_png(
        full_chart().to_dict(), vl_version="5.8", scale=2
    )

    assert oldest == png(full_chart())


def test_the_axis_tells_two_nodes_of_eight_from_sixteen_of_one():
    both = scaling_table(
        MeasuredRun(arm, size, nodes, "cuda", 1_000.0 * size)
        for arm, size, nodes in (
            ("fp16", 8, 1),
            ("fp16", 16, 2),
            ("alone", 8, 8),
            ("alone", 16, 16),
        )
    )

    spec = scaling_chart(both, {}, {}).to_dict()

    part, values = next(it for it in leaves(spec) if what(it[1]) == "measured")
    labels = part["encoding"]["x"]["axis"]["labelExpr"]
    assert '"8": ["8", "8 x 1"]' in labels
    assert '"16": ["16", "2 x 8", "16 x 1"]' in labels
    assert {value["size"] for value in values} == {"8", "2 x 8", "8 x 1", "16 x 1"}
    # The renderer that reads it takes the expression.
    assert png(scaling_chart(both, {}, {})).startswith(b"\x89PNG")


def test_a_wide_interval_does_not_press_the_points_flat():
    noisy = scaling_chart(table(repeats=(0.7, 1.3)), {}, {})
    quiet = scaling_chart(table(), {}, {})

    tops = [
        part["encoding"]["y"]["scale"]["domain"][1]
        for part, _ in leaves(noisy.to_dict())
        if "scale" in part["encoding"]["y"]
    ]
    # Two runs of 2,400 a second on average: the ideal line ends at 9,600.
    assert tops
    assert tops == pytest.approx([1.5 * 9_600] * len(tops))
    bars = [part["mark"] for part, _ in leaves(noisy.to_dict())]
    assert all(m["clip"] for m in bars if m["type"] == "rule")
    assert "clipped at the chart's edge" in noisy.to_dict()["title"]["subtitle"]
    assert "clipped at the chart's edge" not in quiet.to_dict()["title"]["subtitle"]


@pytest.mark.parametrize("largest", [0.002, 0.02, 0.04, 0.3, 9.9, 1_000.0])
def test_no_two_ticks_of_an_axis_have_one_label(largest):
    """Such as a file server's 0.02 MB per second while images are in memory."""
    rows = [{"series": "a", "seconds": n, "value": n * largest} for n in (0, 1)]
    chart = over_time_chart(rows, title="", y_title="", subtitle="")

    picture = vl_convert.vegalite_to_svg(chart.to_dict(), vl_version="5.8")

    labels = re.findall(r'text-anchor="end"[^>]*>([\d.,]+)<', picture)
    assert len(labels) > 3
    assert len(set(labels)) == len(labels)


def test_more_series_than_colours_differ_in_shape_and_dash():
    rows = [
        {"series": f"arm {n}", "seconds": second, "value": n + second}
        for n in range(14)
        for second in (0, 1)
    ]
    chart = over_time_chart(rows, title="", y_title="", subtitle="").to_dict()

    for (part, _), channel in zip(leaves(chart), ("strokeDash", "shape"), strict=True):
        scales = [part["encoding"][it]["scale"] for it in ("color", channel)]
        ranges = [itertools.islice(itertools.cycle(it["range"]), 14) for it in scales]
        assert len(set(zip(*map(partial(map, str), ranges), strict=True))) == 14
    assert vl_convert.vegalite_to_svg(chart, vl_version="5.8")
