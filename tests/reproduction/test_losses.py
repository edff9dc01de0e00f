"""Losses of a repetition beside those of its original."""

from __future__ import annotations

from nbkit.reproduction.outcome import compare_losses
from nbkit.store.metrics import to_json_line
from nbkit.store.stored_runs import StoredRun


def logged(folder, losses):
    folder.mkdir()
    lines = [
        {"kind": "log", "step": step, "values": {"loss": loss}}
        for step, loss in enumerate(losses)
    ]
    (folder / "metrics.jsonl").write_text("".join(map(to_json_line, lines)))
    return StoredRun(folder)


def test_compare_losses_names_the_run_that_differs_first(tmp_path):
    original = logged(tmp_path / "original", [3.0, 2.0, 1.0])
    runs = [
        logged(tmp_path / "equal", [3.0, 2.0, 1.0]),
        logged(tmp_path / "late", [3.0, 2.0, 1.5]),
        logged(tmp_path / "early", [3.0, 2.5, 1.0]),
    ]

    compared = compare_losses(original, runs)

    assert (compared.run_id, compared.first_step) == ("early", 1)
    assert compare_losses(original, runs[:2]).run_id == "late"
    assert compare_losses(original, runs[:1]).first_step is None
