"""What runs of a machine say beside their rates: kernels, and whether they diverged."""

from __future__ import annotations

import json

import pytest

from nbkit.store.metrics import to_json_line
from nbkit.store.record import read_json
from tests.questions.test_machines import change, compared, here

__all__ = ["here"]


def test_batch_normalisation_by_others_is_a_fact_and_a_footnote(here):
    for paths in here:
        backend = "cudnn" if "fp32" in paths.run_id else "native"
        change(paths.worker, "numbers", value={"batch_norm": backend})

    result = compared(here)

    tables = result.report().tables
    [table] = [table for table in tables if table.caption == "The two machines"]
    rows = {row[0]: row for row in table.rows}
    assert set(str(rows["batch normalization"][2]).split(" | ")) == {
        "fp32: cudnn",
        "bf16: native",
    }
    assert rows["batch normalization"][1] is None
    said = " ".join(table.to_text().split())
    assert "Batch-norm kernels differ between arms" in said
    assert "cuDNN in fp32 on " in said


@pytest.mark.nonfinite
@pytest.mark.parametrize("is_ended", [False, True])
def test_an_arm_that_was_not_finite_on_one_machine_is_not_compared(here, is_ended):
    lost = {"what": "loss", "step": 3, "after_step": None}
    for paths in here:
        change(paths.worker, "nonfinite", value=lost)
        if is_ended:  # by `stop_on_nonfinite`
            change(paths.record, "state", value="failed")
            change(paths.record, "cause", value={"kind": "nonfinite", "message": ""})

    result = compared(here)

    assert result.matched == []
    assert result.answer.startswith("Diverged: ")
    assert "loss not finite at step 3" in result.answer.partition(". ")[0]
    assert {one.condition for one in result.left_out} == {"finite"}
    assert "loss not finite at step 3" in str(result.report().tables)


def test_a_control_that_differs_is_said_first_with_the_machine_that_it_is_of(here):
    for paths in [one for one in here if "fp32" in one.run_id][-2:]:
        arm = read_json(paths.record)["tags"]["arm"]
        change(paths.record, "tags", "arm", value=f"{arm} again")
        lines = [json.loads(line) for line in paths.metrics.read_text().splitlines()]
        for line in lines:
            if "step_time_seconds" in line:
                line["step_time_seconds"] *= 2
        paths.metrics.write_text("".join(map(to_json_line, lines)))

    result = compared(here)

    report = result.report()
    assert report.answer.startswith(
        "Inconclusive: on one-cpu-vm, A/A control differs by "
    )
    assert report.result["caveats"][0]["code"] == "control-differs"
    assert report.tables[0].caption.startswith("Measured under equal conditions: ")
