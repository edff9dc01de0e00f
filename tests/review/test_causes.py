"""A diagnosis reads as text and as a page, and every kind of cause is explained."""

from __future__ import annotations

from nbkit.review.causes import Cause, Diagnosis, Gain
from nbkit.review.findings import codes
from tests.review.written_run import diagnosed

__all__ = ["diagnosed"]

CODES = codes(Cause.codes_file)
INPUT = Cause.of(
    "input",
    0.6,
    "It waited <b>long</b>.",
    "another loader.",
    Gain(2.5, None, "no data wait"),
)
LAYOUT = Cause.of(
    "layout", None, "bf16.", "channels_last.", Gain(1.5, 1.4, "published")
)
OTHERS = Cause.of("other-gpu-processes", None, "2 of them.", "other GPUs.", None)
PROFILE = {
    "steps": 3,
    "device_type": "cpu",
    "self_seconds": 2.0,
    "operators": [{"name": "aten::addmm", "calls": 6, "self_seconds": 1.5}],
}


def test_every_kind_says_why_it_costs_time():
    for code in CODES.values():
        assert code.severity in ("warning", "note"), code
        assert code.why[0].isupper(), code
        assert code.why.endswith("."), code
        assert code.source is None or code.source.startswith("https://"), code


def test_the_text_has_evidence_change_prediction_and_reason():
    text = str(Diagnosis("run a", [OTHERS, LAYOUT, INPUT], ["the weather."], PROFILE))

    assert text.splitlines()[0] == (
        "run a: bottleneck: input (60% of the time). It waited <b>long</b>. Try: "
        "another loader. Expected speedup: up to 2.50x (no data wait). Also: memory "
        "layout, GPU shared with other processes."
    )
    assert "warning [input]: input, 60% of the time\n  Evidence: It waited" in text
    assert "  Expected speedup: 1.40x to 1.50x (published)" in text
    assert "  Expected speedup: unknown" in text
    assert f"  Why: {CODES['layout'].why} ({CODES['layout'].source})" in text
    assert "Not known:\n  the weather." in text
    assert "   75%  aten::addmm (calls: 6)" in text


def test_a_page_shows_text_as_text():
    page = Diagnosis("run a", [INPUT], ["<i>"], PROFILE)._repr_html_()

    assert "<b>long" not in page
    assert "&lt;b&gt;long&lt;/b&gt;" in page
    assert "&lt;i&gt;" in page


def test_what_another_layout_brings_to_a_compiled_model_is_not_known(diagnosed):
    [layout] = diagnosed(config={"memory_format": "channels_first", "compile": True})

    assert (layout.code, layout.gain) == ("layout", None)
