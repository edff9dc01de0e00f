"""What every question reports of a study that its time limit has cut."""

from __future__ import annotations

import json

import pytest

from nbkit.questions.study_report import make
from nbkit.studies.budget import first_arms
from tests.golden.test_golden import QUESTIONS

CASES = [
    f"{one}/{on}" for one in QUESTIONS if one != "machines" for on in ("gpu", "cpu")
]

pytestmark = pytest.mark.nonfinite


@pytest.mark.parametrize("case", CASES)
def test_a_report_answers_from_the_first_pair(golden, case):
    study = golden(case)
    kept = {*first_arms(study), *study.unrepeated}
    content = json.loads(study.paths.study.read_text())
    runs = [one for one in content["runs"] if one["arm"] in kept]
    left = [slot for slot in content["order"] if slot[0] not in kept or slot[1]]
    runs = [one for one in runs if one["repeat"] < 1]
    content |= {"minutes": 10, "not_measured": left, "runs": runs}
    study.paths.study.write_text(json.dumps(content))
    left_out = {*study.arms} - kept

    report = make(study)

    codes = [one["code"] for one in report.result.get("caveats", [])]
    assert "missing-runs" not in codes
    [note] = [one for one in report.notes if one.startswith("Not measured in 10 min: ")]
    assert [arm for arm in left_out if arm not in note] == []
    assert report.next_step.endswith(".resume(minutes=0) continues the study")
    assert not any(row[0] in left_out and row[1] for row in report.tables[0].rows)
