"""A run whose files lack something hides no other, and never ends in a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nbkit
from nbkit.cli.main import main
from nbkit.config import ExperimentConfig
from nbkit.errors import NbkitError, StoreError
from nbkit.live.rows import run_numbers
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import STORED_FIELDS, RunState, parse_json, write_json
from nbkit.store.run_list import list_runs
from nbkit.store.stored_runs import StoredRun, create_run_folder

ME = ProcessIdentity.of().to_dict()
DEAD = {**ME, "start_ticks": ME["start_ticks"] - 1}
SUBMISSION = {"attempt": 0, "supervisor": DEAD, "name": "mine"}
TIME = {"created": None, "started": "2026-01-01T00:00:00Z", "ended": None}
RECORD = {"attempt": 0, "state": "running", "supervisor": DEAD, "time": TIME}


def without(values, name):
    return {key: value for key, value in values.items() if key != name}


DAMAGES = {
    "no supervisor": (SUBMISSION, without(RECORD, "supervisor")),
    "odd supervisor": (SUBMISSION, {**RECORD, "supervisor": {"pid": 1}}),
    "no state": (SUBMISSION, without(RECORD, "state")),
    "odd state": (SUBMISSION, {**RECORD, "state": "dancing"}),
    "no time": (SUBMISSION, without(RECORD, "time")),
    "null time": (SUBMISSION, {**RECORD, "time": None}),
    "odd time": (SUBMISSION, {**RECORD, "time": {"started": "now", "ended": "then"}}),
    "null launch": (SUBMISSION, {**RECORD, "launch": None}),
    "odd submission": ({"name": "mine"}, RECORD),
    "odd launcher": ({**SUBMISSION, "supervisor": {"pid": 1}}, RECORD),
    "odd launcher of an ended run": (
        {**SUBMISSION, "supervisor": {"pid": 1}},
        {**RECORD, "state": "finished"},
    ),
    "empty record": (SUBMISSION, None),
}


@pytest.fixture
def whole(tmp_path, monkeypatch):
    """Return a run that has finished, in a store of its own."""
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    paths = create_run_folder(ExperimentConfig())
    write_json(paths.submission, SUBMISSION)
    write_json(paths.record, {**RECORD, "state": "finished"})
    return StoredRun(paths.root)


@pytest.fixture(params=DAMAGES)
def damaged(request, whole):
    paths = create_run_folder(ExperimentConfig())
    submission, record = DAMAGES[request.param]
    write_json(paths.submission, submission)
    if record is None:
        paths.record.touch()
    else:
        write_json(paths.record, record)
    return StoredRun(paths.root)


def test_it_hides_no_other_run(whole, damaged, capsys):
    listed = {row.run_id: row.state for row in list_runs()}
    rows = {row["run_id"]: row["state"] for row in nbkit.runs().to_dicts()}
    assert main(["runs"]) == 0
    printed = capsys.readouterr().out
    assert main(["stop", "--all"]) in (0, 2)

    for states in (listed, rows):
        assert states[whole.run_id] == RunState.FINISHED
        assert damaged.run_id in states
    assert whole.run_id in printed
    assert damaged.run_id in printed
    assert whole.run_id in repr(nbkit.runs())
    assert whole.run_id in {run.run_id for run in nbkit.runs("finished")}
    assert run_numbers(damaged) is not None


def test_damaged_run_errors(damaged, capsys):
    for command in ("show", "stop", "sweep"):
        assert main([command, damaged.run_id]) in (0, 2), command
    for name in ("state", "cause", "queue", "summary"):
        told = answer(damaged, name)
        assert told == "answered" or "is damaged" in told, (name, told)


def answer(run, name):
    try:
        getattr(run, name)
    except NbkitError as error:
        return str(error)
    return "answered"


def test_run_without_submission(whole):
    whole.paths.submission.unlink()
    assert whole.state is RunState.FINISHED

    write_json(whole.paths.record, RECORD)
    assert whole.state is RunState.LOST


def test_damaged_metrics_line(whole):
    whole.paths.metrics.write_text(json.dumps({"step": 1}) + "\n{half\n")

    with pytest.raises(StoreError, match=r"metrics\.jsonl is damaged"):
        _ = whole.summary
    assert nbkit.runs().to_dicts()[0]["run_id"] == whole.run_id
    assert main(["runs"]) == 0


@pytest.mark.parametrize(
    ("file", "field"),
    [(file, name) for file, its in STORED_FIELDS.items() for name in its],
)
def test_parse_json_wrong_type(file, field):
    head, _, own = field.partition(".")
    data = json.dumps({head: {own: 1.5} if own else 1.5}).encode()

    said = rf"/{file} is damaged \({field}=1.5 is not .*\)\. Restore the file"
    with pytest.raises(StoreError, match=said):
        parse_json(data, Path("/") / file)
