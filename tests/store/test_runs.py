"""Reading runs from their files alone."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, RunNotFoundError, StoreError
from nbkit.store.metrics import store_error
from nbkit.store.paths import store_folder
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import RunState, write_json
from nbkit.store.run_list import list_runs
from nbkit.store.stored_runs import (
    StoredRun,
    create_run_folder,
    find_run_folder,
    list_run_folders,
)

DEAD = {"pid": 1, "start_ticks": -1, "host": None, "boot_id": None}


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    return tmp_path


def _run(config=None):
    return StoredRun(create_run_folder(config or ExperimentConfig()).root)


def _dead():
    me = ProcessIdentity.of().to_dict()
    return {**me, "start_ticks": me["start_ticks"] - 1}


def test_list_and_find_runs(store):
    made = {_run().run_id for _ in range(3)}

    listed = [path.name for path in list_run_folders()]

    assert set(listed) == made
    assert listed == sorted(made, reverse=True)
    assert find_run_folder(listed[0][-4:]).name == listed[0]


def test_list_runs_states(store):
    done, fresh = _run(), _run()
    write_json(done.paths.submission, {"attempt": 0, "supervisor": _dead()})
    record = {"state": "finished", "attempt": 0, "name": "x", "time": {"ended": "now"}}
    write_json(done.paths.record, record)

    rows = {row.run_id: row for row in list_runs()}

    assert rows[done.run_id].state is RunState.FINISHED
    assert (rows[done.run_id].name, rows[done.run_id].ended) == ("x", "now")
    assert rows[fresh.run_id].state is RunState.STARTING


def test_list_runs_ignores_other_files(store):
    run, damaged = _run(), _run()
    (store / "runs" / "notes.txt").touch()
    (store / "runs" / "mine").mkdir()
    damaged.paths.record.write_text("{half")

    states = {row.run_id: row.state for row in list_runs()}

    assert states == {run.run_id: RunState.STARTING, damaged.run_id: RunState.LOST}
    with pytest.raises(StoreError, match=r"record\.json is damaged"):
        _ = damaged.state


def test_hostile_ids_find_nothing(store):
    _run()
    for name in ("..", "../..", "/etc", "", ".", "a/b", "a\0b"):
        with pytest.raises(RunNotFoundError):
            find_run_folder(name)


def test_create_run_folder_any_name(store):
    run = _run(ExperimentConfig(name="../../ rm -rf '; $HOME\n ü"))

    assert run.paths.root.parent == store / "runs"
    assert "/" not in run.run_id
    assert run.config.name == "../../ rm -rf '; $HOME\n ü"


@pytest.mark.parametrize("state", ["starting", "running", "stopping"])
def test_state_without_supervisor(store, state):
    run = _run()
    write_json(run.paths.record, {"state": state, "attempt": 0, "supervisor": _dead()})
    write_json(run.paths.submission, {"attempt": 0, "supervisor": _dead()})

    assert run.state is RunState.LOST
    assert run.cause is not None
    assert run.cause["kind"] == "lost"


def test_state_newest_attempt():
    run = _run()
    me, before = ProcessIdentity.of().to_dict(), {"started": "then", "ended": "then"}
    record = {"state": "stopped", "attempt": 0, "supervisor": me, "time": before}
    write_json(run.paths.record, {**record, "cause": {"message": "stopped by user"}})
    write_json(run.paths.submission, {"attempt": 1, "supervisor": me, "name": "x"})

    assert (run.state, run.cause) == (RunState.STARTING, None)
    [row] = list_runs()
    assert (row.name, row.started, row.ended) == ("x", None, None)


def test_state_resumed_supervisor_gone():
    run = _run()
    cause = {"kind": "stopped", "message": "stopped by user"}
    record = {"state": "stopped", "attempt": 0, "supervisor": _dead(), "cause": cause}
    write_json(run.paths.record, record)
    write_json(run.paths.submission, {"attempt": 1, "supervisor": _dead()})

    assert run.state is RunState.LOST
    assert run.cause is not None
    assert run.cause["kind"] == "lost"
    assert run.cause["log"] == str(run.paths.supervisor_log(1))
    assert [row.state for row in list_runs()] == [RunState.LOST]


@pytest.mark.parametrize(("job", "number"), [({}, 1), ({"job": {"id": "7"}}, 2)])
def test_supervisor_log_of_a_later_attempt(job, number):
    run = _run()
    write_json(run.paths.submission, {"attempt": 1, **job})
    write_json(run.paths.record, {"state": "running", "attempt": 2})
    # A supervisor that starts the ranks again opens it for their sampler.
    log = run.paths.supervisor_log(2)
    log.parent.mkdir(parents=True)
    log.touch()

    assert run.supervisor_log == run.paths.supervisor_log(number)


def test_metrics_repeated_steps(store):
    run = _run()
    rows = [{"kind": "step", "attempt": 0, "step": n, "loss": 1} for n in (1, 2, 3, 4)]
    rows += [{"kind": "evaluation", "attempt": 0, "step": 4, "top1_accuracy": 0}]
    rows += [{"kind": "step", "attempt": 1, "step": n, "loss": 2} for n in (3, 4, 5)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    run.paths.metrics.write_text(text)

    steps = [(row["step"], row["loss"]) for row in run.metrics()]

    assert steps == [(1, 1), (2, 1), (3, 2), (4, 2), (5, 2)]
    assert run.metrics("evaluation") == []


def test_metrics_evaluation_after_resume(store):
    run = _run()
    rows = [{"kind": "step", "attempt": 0, "step": n} for n in (1, 2)]
    rows += [{"kind": "evaluation", "attempt": 0, "step": 2, "top1_accuracy": 0.1}]
    rows += [{"kind": "evaluation", "attempt": 1, "step": 2, "top1_accuracy": 0.2}]
    rows += [{"kind": "step", "attempt": 1, "step": 3}]
    run.paths.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))

    assert [row["step"] for row in run.metrics()] == [1, 2, 3]
    assert [row["top1_accuracy"] for row in run.metrics("evaluation")] == [0.2]


def test_state_never_submitted(store):
    run = _run()
    assert run.state is RunState.STARTING

    os.utime(run.paths.root, (1, 1))

    assert run.state is RunState.LOST


def test_store_folder_relative(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NBKIT_HOME", f"store-{tmp_path.name}")
    before = store_folder()

    monkeypatch.chdir(tmp_path / "elsewhere")

    assert store_folder() == before == tmp_path / f"store-{tmp_path.name}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 5}, r"rank=5 is not valid for this run. Use 0 to 1"),
        ({"attempt": 1}, r"attempt=1 is not valid for this run. Use 0\."),
        ({"stream": "both"}, r"stream='both' .* stdout, stderr"),
    ],
)
def test_logs_refusals(arguments, message):
    paths = create_run_folder(ExperimentConfig(model="resnet18", gpus=2))

    with pytest.raises(ConfigError, match=message):
        StoredRun(paths.root).logs(**arguments)

    assert StoredRun(paths.root).logs(rank=1) == ""


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (b"0%\r50%\r100%\ndone\n", "100%\ndone\n"),
        (b"0%\r\n50%\r\n", "0%\n50%\n"),
        (b"\r0%\r50%\r", "50%"),
        (b"a\n0%\r1%\r\nb\rc\n\n", "a\n1%\nc\n\n"),
        (b"\r0%|#|\x1b[A\r1%", "1%"),
    ],
)
def test_logs_progress_bar(printed, shown):
    paths = create_run_folder(ExperimentConfig(model="resnet18"))
    log = paths.rank(0, 0).stderr
    log.parent.mkdir(parents=True)
    log.write_bytes(printed)

    assert StoredRun(paths.root).logs() == shown


def test_store_error_closed_file():
    error = store_error(Path("/x/metrics.jsonl"), OSError(errno.EBADF, "Bad file"))

    assert "the code of the run closed the file" in str(error)
    assert "NBKIT_HOME" not in str(error)


def test_config_without_plugins():
    paths = create_run_folder(ExperimentConfig())
    values = json.loads(paths.config.read_text())
    paths.config.write_text(json.dumps({**values, "model": "of_a_plug_in"}))

    config = StoredRun(paths.root).config

    assert config.model == "of_a_plug_in"
    with pytest.raises(ConfigError, match=r"of_a_plug_in.*not registered"):
        config.replace(steps=5)


@pytest.mark.parametrize("whose", ["own", "another user's", "imported", "resumed here"])
def test_state_hidden_pid(monkeypatch, whose):
    run = _run()
    write_json(run.paths.submission, {"attempt": 0, "supervisor": _dead()})

    # As hidepid=1 answers, of another user's process that has this pid by now.
    def forbid(path):
        if path.name == "stat":
            raise PermissionError(path)
        return read_bytes(path)

    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", forbid)
    if whose == "another user's":
        monkeypatch.setattr(os, "geteuid", lambda: -1)
    if whose == "imported":
        run.paths.imported.write_text("{}")
    if whose == "resumed here":
        write_json(run.paths.imported, {"submitted": [0, "2020-01-01"]})

    is_own = whose in ("own", "resumed here")
    assert run.state == ("lost" if is_own else "starting")
