"""What is said first where a study cannot support its answer, and what goes then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from nbkit.reports.bottlenecks import ArmBottlenecks
from nbkit.reports.caveats import (
    caveats,
    prepend_caveats,
    progress_text,
    run_caveat_text,
    without_runs,
)
from nbkit.reports.headline import headline
from nbkit.reports.renderer import Figure, Report, SavedReport, Table
from nbkit.review.causes import Cause, Diagnosis
from nbkit.review.findings import AuditFinding
from nbkit.statistics import noise_floor, ratio
from nbkit.store.nonfinite import NonFinite
from nbkit.studies.order import Slot

QUIET = [100.0, 101.0, 99.0, 100.5, 99.5]


EVIDENCE = {
    "other-gpu-processes": "1 process was there.",
    "other-cpu-processes": "Others kept 1.9 of 2 CPUs busy.",
    "throttled": "The clocks were held down.",
}


@pytest.fixture(autouse=True)
def diagnosed(monkeypatch):
    """Let runs say what disturbed them."""
    monkeypatch.setattr(
        "nbkit.reports.bottlenecks.diagnose", lambda run: Diagnosis("a run", run.causes)
    )


def caveat_of(code, evidence, action):
    return AuditFinding("an arm", "warning", evidence, action, code)


def bound(*runs, **arms):
    """Return arms, or one of some runs; of each run, the codes of what disturbed it."""
    config = SimpleNamespace(has_steps=True)

    def run(codes):
        causes = [Cause.of(code, 0.4, EVIDENCE[code], "leave.", None) for code in codes]
        paths = SimpleNamespace(root=Path())
        return SimpleNamespace(config=config, causes=causes, paths=paths)

    arms = arms or {"a": runs}
    return ArmBottlenecks({arm: [*map(run, told)] for arm, told in arms.items()})


def made():
    return Report(
        "Question?",
        "bf16 is 3.35 times as fast.",
        tables=[Table("Rates", ["arm", "ratio"], [["bf16", "3.35"]], ["A note."])],
    )


def test_caveats_quiet_study():
    report = made()

    found = caveats([noise_floor(QUIET, QUIET[::-1])], bound([]))

    assert found == []
    assert prepend_caveats(report, {}, found) is report


@pytest.mark.parametrize(
    ("first", "second", "how_much"),
    [
        (QUIET, [13.82 * rate for rate in QUIET], "1,282.0%"),
        # Two runs are too few to show that they differ; they do.
        ([100.0, 300.0], [180.0, 310.0], "22.5%"),
        ([100.0], [88.0], "12.0%"),
    ],
)
def test_caveats_control_differs(first, second, how_much):
    found = caveats([noise_floor(first, second)], bound([]))
    report = prepend_caveats(made(), {}, found)

    assert [one.code for one in found] == ["control-differs"]
    assert report.answer == (
        f"Inconclusive: A/A control differs by {how_much}. Measure again when nothing "
        "else runs on this machine."
    )
    assert report.tables[0].notes[0].startswith("Not reliable: A/A control")


def test_prepend_caveats_several_reasons():
    disturbed = bound(["other-cpu-processes"], ["other-cpu-processes"])
    found = caveats([noise_floor([100.0], [50.0])], disturbed)
    report = prepend_caveats(made(), {}, found)

    assert "differs by 50.0%; 1 more reason below. Measure again" in report.answer
    assert report.notes == [
        "Warning: others kept 1.9 of 2 CPUs busy (2 of 2 runs of a). Measure again "
        "when nothing else runs on this machine."
    ]
    assert [one["code"] for one in report.result["caveats"]] == [
        "control-differs",
        "other-cpu-processes",
    ]


def test_caveats_gpu_processes_cleared_by_control():
    there = bound(["other-gpu-processes"], ["other-gpu-processes"])

    assert caveats([noise_floor(QUIET, QUIET[::-1])], there) == []
    assert [one.code for one in caveats([], there)] == ["other-gpu-processes"]
    assert len(caveats([noise_floor([100.0], [50.0])], there)) == 2


def test_caveats_gpu_processes_in_one_arm():
    quiet, there = [[], []], [["other-gpu-processes"], ["other-gpu-processes"]]
    cleared = [noise_floor(QUIET, QUIET[::-1])]

    assert [one.code for one in caveats(cleared, bound(a=quiet, b=there))] == [
        "other-gpu-processes"
    ]
    assert caveats(cleared, bound(a=there, b=there)) == []


def test_caveats_gpu_processes_hide_nothing():
    both = ["other-gpu-processes", "throttled"]
    busy = ["other-gpu-processes", "other-cpu-processes"]
    cleared = [noise_floor(QUIET, QUIET[::-1])]

    found = caveats(cleared, bound(both, busy, both, ["other-gpu-processes"]))

    assert [(one.code, one.evidence) for one in found] == [
        ("other-cpu-processes", "others kept 1.9 of 2 CPUs busy (1 of 4 runs of a)"),
        ("throttled", "the clocks were held down (2 of 4 runs of a)"),
    ]
    # What is cleared does not make up the half of the runs that has to be disturbed.
    assert caveats(cleared, bound(both, ["other-gpu-processes"], [])) == []


def test_prepend_caveats_diverged():
    lost = {"fp16": NonFinite("loss", 9)}
    caveat = caveat_of("throttled", "clocks were held down", "Cool it.")

    stands = prepend_caveats(made(), lost).answer
    missing = "So far, 3 of 4 planned runs have finished."
    goes = prepend_caveats(made(), lost, [caveat], missing)

    assert stands.startswith("Diverged: fp16 (loss not finite at step 9). bf16 is")
    assert goes.answer == (
        "Diverged: fp16 (loss not finite at step 9); 2 more reasons below. "
        "Inconclusive."
    )
    assert goes.notes == ["Warning: clocks were held down. Cool it.", missing]
    # Runs that an answer can do without are no reason to take it back.
    both = prepend_caveats(made(), lost, [], missing).answer
    assert both.startswith("Diverged: fp16 (loss not finite at step 9); 1 more note")
    assert prepend_caveats(made(), {}, [], missing).answer.startswith(
        f"{missing} bf16 is"
    )
    assert prepend_caveats(made(), {}, [caveat], missing).answer == (
        "Inconclusive: clocks were held down; 1 more reason below. Cool it."
    )


@pytest.mark.parametrize(
    "code", ["throttled", "other-cpu-processes", "control-differs", "no-cpu"]
)
def test_prepend_caveats_untimed(code):
    caveat = caveat_of(code, "it was held down", "Cool it.")
    whole = replace(made(), untimed=made().answer)
    part = replace(made(), untimed="fp16: accuracy is kept.")

    stands, partly = (prepend_caveats(one, {}, [caveat]) for one in (whole, part))

    assert stands.answer == made().answer
    assert stands.notes[-1] == (
        "Rates and times are not reliable: it was held down. Cool it."
    )
    assert not stands.has_no_answer
    assert [one["code"] for one in stands.result["rate_caveats"]] == [code]
    assert partly.answer == (
        "Rates and times are inconclusive: it was held down. Cool it. Not affected: "
        "fp16: accuracy is kept."
    )
    assert partly.has_no_answer
    assert "(rates and times inconclusive)" in partly.to_html()
    lost = prepend_caveats(part, {"fp16": NonFinite("loss", 9)}, [caveat]).answer
    assert lost.endswith("are inconclusive. Not affected: " + part.untimed)


def test_prepend_caveats_rate_tables():
    caveat = caveat_of("throttled", "it was held down", "Cool it.")
    tables = [Table(name, ["arm", name], []) for name in ("AUROC", "images/s")]
    report = replace(made(), untimed=made().answer, tables=tables)

    areas, rates = prepend_caveats(report, {}, [caveat]).tables

    assert areas.notes == ()
    assert rates.notes == ["Not reliable: it was held down."]


def test_prepend_caveats_missing_runs():
    caveats = [caveat_of(code, code, "Do.") for code in ("missing-runs", "throttled")]
    report = replace(made(), untimed=made().answer)

    assert prepend_caveats(report, {}, caveats).answer == (
        "Inconclusive: missing-runs; 1 more reason below. Do."
    )


def test_run_caveat_text_diverged():
    config = SimpleNamespace(has_steps=True)
    [cause] = [Cause.of("throttled", 0.4, EVIDENCE["throttled"], "leave.", None)]
    paths = SimpleNamespace(root=Path())
    run = SimpleNamespace(config=config, causes=[cause], record={}, paths=paths)

    said = run_caveat_text({"fp16": [run]}, {"fp16": NonFinite("loss", 9)})

    assert said.startswith("Diverged: fp16 (loss not finite at step 9); 1 more reason")
    assert "Warning: the clocks were held down (1 of 1 run of fp16)." in said


def study_of(*finished):
    """Return two arms of two repeats, of which these starts have finished."""
    order = [Slot(arm, repeat) for repeat in (0, 1) for arm in "ab"]
    missing = [slot for slot in order if f"{slot.arm}{slot.repeat}" not in finished]
    facts = {"order": order, "missing": missing, "unrepeated": [], "minutes": None}
    facts["metric"] = None
    return SimpleNamespace(**facts, runs_by_arm=lambda **_: {"a and b": finished})


def test_without_runs_unfinished_study():
    begun, half = study_of("a0", "b0", "a1"), study_of("a0", "a1")

    assert without_runs(begun) == []
    assert progress_text(begun) == "So far, 3 of 4 planned runs have finished."
    [caveat] = without_runs(half)
    assert prepend_caveats(made(), {}, [caveat]).answer == (
        "Inconclusive: 2 of 4 planned runs have finished, but no run of arm b. "
        "Resume the study."
    )
    assert without_runs(study_of("a0", "a1", "b0", "b1")) == []


def test_noise_floor_covers():
    floor = noise_floor([100.0, 100.0], [106.0, 106.0])

    assert floor.covers(ratio([105.0], [100.0]))
    assert floor.covers(ratio([95.0], [100.0]))
    assert not floor.covers(ratio([107.0], [100.0]))


def test_headline_inconclusive(tmp_path, monkeypatch):
    caveat = caveat_of("control-differs", "it differed", "Measure again.")
    saved = prepend_caveats(made(), {}, [caveat]).save(tmp_path)
    for report in (saved, made().save(tmp_path / "other")):
        monkeypatch.setattr(
            "nbkit.reports.headline.read_report",
            lambda path, report=report: {
                **report.report.to_dict(),
                "page": str(report.page),
            },
        )
        has_caveats = report is saved
        assert ("3.35" not in headline(tmp_path / "out.ipynb")) == has_caveats


@pytest.mark.parametrize("has_caveats", [False, True])
def test_page_inconclusive(has_caveats, monkeypatch):
    monkeypatch.setattr(Figure, "to_html", lambda self: "<figure>")
    shown: list[object] = []
    monkeypatch.setattr(
        "nbkit.reports.renderer.display", lambda it, **_: shown.append(it)
    )
    figure = Figure("The answer as a picture", None)
    report = replace(made(), figures=[figure], notes=["A condition."])
    caveat = caveat_of("control-differs", "it differed", "Measure again.")
    page = Path("report.html")

    report = prepend_caveats(report, {}, [caveat] if has_caveats else [])
    html = report.to_html()
    SavedReport(report, page, page)._ipython_display_()

    order = (">Rates<", "<figure>", "A condition.")
    if has_caveats:
        order = ("A condition.", ">Rates<", "<figure>")
    places = [html.index(part) for part in order]
    assert places == sorted(places)
    assert ("Measurements (inconclusive)" in html) == has_caveats
    assert (figure not in shown) == has_caveats
