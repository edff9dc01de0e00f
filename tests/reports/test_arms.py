"""What a study's arms show follows from their runs, and from nothing else."""

from __future__ import annotations

import pytest

from nbkit.errors import NotEnoughDataError
from nbkit.reports.arms import ENOUGH, ArmRun, Arms
from nbkit.statistics import duration_in_words
from nbkit.store.nonfinite import NonFinite

STEADY = [100.0, 100.4, 99.7, 100.2, 99.9]


def runs(rates, *, device_type="cuda", seconds=30.0, **facts):
    """Return one run a rate."""
    return [
        ArmRun(f"run-{n}", rate, seconds=seconds, device_type=device_type, **facts)
        for n, rate in enumerate(rates)
    ]


def arms(faster=1.5, again=1.0, n=5, **facts):
    """Return a baseline, an arm that is faster, and the baseline's control."""
    return Arms(
        {
            "fp32": runs(STEADY[:n], **facts),
            "bf16": runs([rate * faster for rate in STEADY[:n]], **facts),
            "fp32 again": runs([rate * again for rate in reversed(STEADY[:n])]),
        },
        "fp32",
        "fp32 again",
    )


def cells(table, arm):
    """Return a row of a table by column."""
    [row] = [row for row in table.rows if row[0] == arm]
    return dict(zip(table.columns, row, strict=True))


def test_arms_table_control():
    found = arms()

    table = found.table()

    assert cells(table, "fp32 again")["verdict"] == "control"
    assert "noise floor" in found.control_sentence
    assert found.sentence.startswith("bf16: 1.50x [")
    assert found.sentence.endswith("] vs. fp32 (95% CI, n=5): faster.")
    assert [row[0] for row in found.certainty.rows] == ["bf16", "fp32 again"]


def test_arms_table_control_differs():
    found = arms(again=1.2)

    table = found.table()

    assert cells(table, "bf16")["verdict"] == "withheld"
    assert found.needed_sentence == ""
    [note] = table.notes
    assert note.startswith("Images/s of each run")
    assert "fp32: 99.7, 99.9, 100.0, 100.2, 100.4; bf16: 149" in note


def test_needed_sentence_two_repeats():
    found = arms(n=2)

    need = found.row("bf16").needed
    assert need is not None
    assert need.runs is not None
    more = need.runs - 2
    assert more >= 3
    # Three arms of half a minute each.
    assert (
        f"{more} more (about {duration_in_words(more * 90)})" in found.needed_sentence
    )
    assert cells(found.certainty, "bf16")["needed for a verdict"] == f"{need.runs} runs"


def test_needed_sentence_settled():
    assert ENOUGH in arms().needed_sentence


def test_needed_sentence_settled_by_unequal_runs():
    more = {"fp32": runs([*STEADY, 100.1]), "bf16": runs([1.5 * it for it in STEADY])}
    few = {"fp32": runs(STEADY), "bf16": runs(STEADY), "fp16": runs(STEADY[:2])}
    diverged = {"fp16": NonFinite("loss", 3)}

    assert Arms(more, "fp32").needed_sentence == f"Repeats for a verdict: {ENOUGH}."
    assert Arms(few, "fp32", diverged=diverged).needed_sentence == (
        Arms({**few, "fp16": runs(STEADY)}, "fp32", diverged=diverged).needed_sentence
    )


def test_needed_sentence_within_noise_floor():
    rates = {"a": STEADY, "b": [1.03 * rate for rate in STEADY]}
    again = [100.0, 100.0, 100.0, 100.0, 85.0]
    found = Arms(
        {**{arm: runs(of) for arm, of in rates.items()}, "a again": runs(again)},
        *("a", "a again"),
    )

    assert cells(found.table(), "b")["verdict"] == "no difference shown"
    assert found.needed_sentence == (
        "Repeats for a verdict: more repeats of the control (difference of b within "
        "the noise floor)."
    )
    needed = cells(found.certainty, "b")["needed for a verdict"]
    assert needed == "more repeats of the control"


def test_needed_sentence_small_difference():
    noisy = [100.0, 60.0, 170.0, 90.0, 130.0]
    found = Arms({"a": runs(noisy), "b": runs([101, 62, 168, 91, 131])}, "a")

    assert "a verdict: more than 100 for b (difference close" in found.needed_sentence
    assert cells(found.certainty, "b")["needed for a verdict"] == "more than 100 runs"


@pytest.mark.parametrize(
    ("rate", "text"),
    [(106.0, "a: 1.06x ["), (100.5, "No arm with enough runs is faster than base by")],
)
def test_arms_sentence_of_arms_with_enough_runs(rate, text):
    rates = {"base": STEADY, "a": [rate / 100 * it for it in STEADY], "b": [200.0]}
    rates["base again"] = [1.01 * it for it in STEADY]
    found = Arms({arm: runs(of) for arm, of in rates.items()}, "base", "base again")

    assert found.sentence.startswith(text)
    assert "best of" not in found.sentence


def test_arms_sentence_cpu():
    found = Arms({"a": runs(STEADY, device_type="cpu")}, "a")

    assert found.sentence.startswith("CPU smoke test: a: 100.0 images/s")
    assert "CPU smoke test" in found.table().caption
    assert found.control_sentence == ""


def test_arms_table_without_rate():
    found = Arms({"a": runs(STEADY), "b": runs([100.0, None])}, "a")

    row = cells(found.table(), "b")

    assert (row["images/s"], row["ratio"], row["verdict"]) == (None, None, None)
    assert row["95% CI (n)"] == "– (2)"
    with pytest.raises(NotEnoughDataError, match="'c' has no finished run"):
        found.row("c")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "1 second"), (40, "40 seconds"), (720, "12 minutes"), (12_600, "3.5 hours")],
)
def test_duration_in_words(seconds, text):
    assert duration_in_words(seconds) == text


def test_arms_table_input_bound():
    waiting = arms(data_wait_share=0.4).table()

    assert any("Input-bound" in note and "40.0%" in note for note in waiting.notes)
    assert not any("Input-bound" in note for note in arms().table().notes)


def test_is_comparison_control_alone():
    alone = Arms({"a": runs(STEADY), "a again": runs(STEADY)}, "a", "a again")

    assert not alone.is_comparison
    assert arms().is_comparison


def test_arms_table_bimodal_runs():
    two_states = [100.0, 100.1, 110.0, 110.1, 110.2]
    found = Arms({"fp32": runs(two_states)}, "fp32")
    many = Arms({"fp32": runs([*STEADY, *STEADY])}, "fp32")

    shown, grouped = found.table().notes[-2:]

    assert shown.endswith("fp32: 100.0, 100.1, 110.0, 110.1, 110.2.")
    assert " form two groups, for example at different clock" in grouped
    assert "95% CI [99.3, 113.1], n=5: 100.0, 100.1," in found.sentence
    assert not any("each run" in note for note in many.table().notes)
    assert many.sentence.endswith("(95% CI [99.9, 100.2], n=10).")


def test_verdicts_corrected_for_many_arms():
    slight = [rate * 1.0245 for rate in STEADY]
    one = Arms({"a": runs(STEADY), "b": runs(slight)}, "a")
    others = {f"c{n}": runs(STEADY) for n in range(6)}
    many = Arms({"a": runs(STEADY), "b": runs(slight), **others}, "a")

    assert one.row("b").ratio.verdict == "faster"
    assert many.row("b").ratio.verdict == "no difference shown"
    assert many.row("b").ratio.comparisons == 7
