"""No file of a store hangs or breaks its reader; what is wrong with it is said."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import nbkit
from nbkit.cli.main import main
from nbkit.config import ExperimentConfig
from nbkit.datasets.find import find
from nbkit.errors import ConfigError, NbkitError, RunNotFoundError, StoreError
from nbkit.launch.run import attach
from nbkit.live.log_tail import LogTail
from nbkit.live.metrics import LiveMetrics
from nbkit.live.rows import run_numbers
from nbkit.reading import JSON_BYTES, lines_of, open_regular, parse_object, read_file
from nbkit.server.run_table import StoredRunTable
from nbkit.server.tensorboard_groups import all_curves
from nbkit.store.metrics import read_json_lines
from nbkit.store.predictions import read_predictions
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import RunState, read_json, write_json
from nbkit.store.run_list import list_runs
from nbkit.store.stored_runs import StoredRun, create_run_folder
from nbkit.studies.study import Study
from nbkit.telemetry.machine_history import read_history
from nbkit.telemetry.system import summarise_system
from nbkit.widgets.table import show_table

ME = ProcessIdentity.of().to_dict()
RECORD = {
    "attempt": 0,
    "state": "finished",
    "name": "mine",
    "supervisor": ME,
    "time": {"started": "2026-01-01T00:00:00Z", "ended": "2026-01-01T00:01:00Z"},
}
SUBMISSION = {"attempt": 0, "supervisor": ME, "name": "mine"}


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def huge(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.touch()
    os.truncate(path, JSON_BYTES + 1)


def deep(path: Path) -> None:
    path.write_text("[" * 500_000)


def less_deep(path: Path) -> None:
    path.write_text('{"a":' * 400 + "1" + "}" * 400)


def to_elsewhere(path: Path) -> None:
    real = path.with_name("real.json")
    path.replace(real)
    path.symlink_to(real)


def folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


ATTACKS = [pipe, endless, huge, deep, less_deep, to_elsewhere, folder]


def stored(**changes: object) -> StoredRun:
    paths = create_run_folder(ExperimentConfig())
    write_json(paths.submission, SUBMISSION)
    write_json(paths.record, {**RECORD, **changes})
    return StoredRun(paths.root)


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def whole():
    """Return a run that is as it should be."""
    return stored()


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("file", ["record", "submission"])
def test_a_file_of_one_run_hides_no_other(whole, attack, file, in_time, capsys):
    bad = stored()
    attack(getattr(bad.paths, file))

    rows = {row.run_id: row for row in in_time(list_runs)}
    table = in_time(lambda: StoredRunTable(None).poll([])).rows
    said = {row["run_id"]: row["cause"] for row in table}
    assert main(["runs"]) == 0
    printed = capsys.readouterr().out

    assert rows[whole.run_id].state is RunState.FINISHED
    assert rows[whole.run_id].damage is None
    [line] = [line for line in printed.splitlines() if bad.run_id in line]
    words = "limit 67,108,864" if attack is huge else f"{file}.json"
    texts = [repr(nbkit.runs()), line, said[bad.run_id]]
    if file == "record":  # a list needs nothing else of a run that has ended
        texts.append(rows[bad.run_id].damage)
    for text in texts:
        assert words in (text or "")
    assert len(printed.splitlines()) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"name": float("inf")},
        {"name": float("nan")},
        {"name": 7},
        {"name": ["x"]},
        {"time": "now"},
        {"attempt": "0"},
        {"state": []},
        {"supervisor": [1]},
        {"launch": {"job": 3}},
        {"cause": "because"},
    ],
    ids=str,
)
def test_a_value_of_another_type_makes_one_damaged_row(whole, change, capsys):
    bad = stored(**change)

    rows = {row.run_id: row for row in list_runs()}
    assert main(["runs"]) == 0
    printed = capsys.readouterr().out

    assert f"{next(iter(change))}" in (rows[bad.run_id].damage or "")
    assert "record.json is damaged" in printed
    assert rows[whole.run_id].name == "mine"


def error_of(work) -> str:
    with pytest.raises(StoreError) as caught:
        work()
    return str(caught.value)


@pytest.mark.parametrize("change", [{"task": 5}, {"model": []}, {"steps": "many"}])
def test_a_configuration_of_other_types_hides_no_other_run(whole, change, capsys):
    bad = stored()
    config = read_json(bad.paths.config) or {}
    write_json(bad.paths.config, {**config, **change})

    assert main(["runs"]) == 0
    table = StoredRunTable(None).poll([]).rows

    printed = capsys.readouterr().out
    assert f"{next(iter(change))}={next(iter(change.values()))!r} is no" in printed
    assert whole.run_id in printed
    assert {row["run_id"] for row in table} == {bad.run_id, whole.run_id}


@pytest.mark.parametrize("field", ["loss", "step"])
def test_a_number_that_is_text_hides_no_other_run(whole, monkeypatch, field):
    bad = stored()
    line = {"kind": "step", "step": 1, "loss": 1.0, "warmup": True, field: "boom"}
    bad.paths.metrics.write_text(json.dumps(line) + "\n")

    shown = []
    monkeypatch.setattr(
        "nbkit.widgets.table.display", lambda bundle, raw: shown.append(bundle)
    )
    show_table(nbkit.runs(), with_widgets=False)
    page = shown[0]["text/html"]
    rows = {row["run_id"]: row for row in StoredRunTable(None).poll([]).rows}

    assert "boom" in page
    assert "not a number" in page
    assert whole.run_id in page
    assert "boom" not in {rows[bad.run_id]["loss"], rows[bad.run_id].get("step")}


def test_a_file_of_many_attempts_takes_no_longer_than_another(whole, in_time):
    line = '{"kind":"step","step":%d,"loss":1.0,"warmup":true,"attempt":%d}\n'
    whole.paths.metrics.write_text(
        "".join(line % (30_000 - n, n) for n in range(30_000))
    )

    read = LiveMetrics(whole.paths.metrics)
    assert in_time(read.read)
    assert in_time(whole.metrics)


def test_a_job_is_named_by_digits_alone(whole):
    job = {"id": "--user=victim", "cluster": None}
    write_json(whole.paths.submission, {**SUBMISSION, "job": job})

    with pytest.raises(
        StoreError, match=r"job.id='--user=victim' is not a Slurm job id"
    ):
        _ = whole.submission


def test_control_and_direction_characters_of_a_name_are_shown(whole, capsys):
    name = "\x1b]0;pwned\x07\x9b2J\u202eevil\nRun"
    bad = stored(name=name, state="failed", cause={"message": name})
    write_json(bad.paths.submission, {**SUBMISSION, "supervisor": None})

    assert main(["runs"]) == 0
    assert main(["show", bad.run_id]) == 0
    with pytest.raises(NbkitError) as caught:
        attach(bad.run_id).wait()
    assert main(["stop", "\x1b[2J"]) == 2

    out, err = capsys.readouterr()
    for text in (out, err, str(caught.value)):
        letters = set(text) - {"\n"}
        assert all(letter.isprintable() for letter in letters)
    assert r"\x1b]0;pwned\x07\x9b2J\u202eevil\x0aRun" in out


@pytest.mark.parametrize("attack", [pipe, endless, to_elsewhere])
def test_tensorboard_is_shown_regular_files_alone(whole, attack):
    other = stored()
    for paths in (whole.paths, other.paths):
        paths.tensorboard.mkdir()
        (paths.tensorboard / "events.out.tfevents.0").touch()
    assert len(all_curves().folders) == 2

    attack(other.paths.tensorboard / "events.out.tfevents.0")

    assert list(all_curves().folders) == [whole.run_id]


def test_what_is_printed_of_runs_shows_their_characters(whole, capsys):
    one, other = (stored(name=f"\x1b[2J{n}", cause={"message": "\x1b["}) for n in "ab")

    for said in (
        nbkit.compare(one, other),
        nbkit.audit(one),
        attach(other.run_id).diagnose(),
    ):
        print(said)

    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("attack", [pipe, endless, to_elsewhere])
def test_lines_are_read_of_regular_files_alone(whole, attack, in_time):
    paths = whole.paths
    system = paths.system("h")
    stderr = paths.rank(0, 0).stderr
    readers = {
        paths.metrics: lambda: read_json_lines(paths.metrics),
        paths.events: lambda: whole.events,
        paths.predictions: lambda: read_predictions(paths.predictions),
        stderr: lambda: whole.logs(),
        system: lambda: summarise_system(system, set()),
        system.with_name("i.jsonl"): lambda: [
            *read_history(system.with_name("i.jsonl"), 0.0)
        ],
        stderr.with_name("stdout.log"): lambda: LogTail(
            stderr.with_name("stdout.log")
        ).last(),
    }

    def refused(read):
        try:
            read()
        except StoreError as error:
            return str(error)
        return "read"

    for file, read in readers.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        attack(file)
        assert "cannot be read" in in_time(lambda read=read: refused(read)), file
    assert run_numbers(whole)["damage"].startswith("metrics.jsonl cannot be read")


def test_a_folder_of_a_run_is_no_way_out_of_it(whole, tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/stderr.log").write_text("secret")
    (tmp_path / "secret/stdout.log").write_text("secret")
    whole.paths.attempt(0).mkdir(parents=True)
    whole.paths.rank(0, 0).root.symlink_to(tmp_path / "secret")

    with pytest.raises(StoreError, match="the path contains a link"):
        whole.logs()
    whole.paths.code.mkdir()
    with pytest.raises(StoreError, match="the path contains a link"):
        read_file(whole.paths.code / ".." / "record.json")


def test_the_store_itself_may_be_reached_through_a_link(whole, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "link"))

    assert attach(whole.run_id).state is RunState.FINISHED


def test_a_study_of_any_number_of_repeats_is_read_by_what_has_finished(in_time, whole):
    study = Study.create("s", {"a": ExperimentConfig()})
    content = json.loads(study.paths.study.read_text())
    write_json(study.paths.study, {**content, "repeats": 10**12})

    assert in_time(Study.open(study.study_id).runs_by_arm) == {"a": []}


def test_a_file_of_lines_is_read_whatever_its_length_but_no_endless_line(whole):
    with whole.paths.metrics.open("w") as file:
        file.writelines(f'{{"kind":"log","step":{n}}}\n' for n in range(1000))
    assert len(read_json_lines(whole.paths.metrics)) == 1000
    os.truncate(whole.paths.metrics, JSON_BYTES * 2)

    with pytest.raises(StoreError, match="a line of more than"):
        read_json_lines(whole.paths.metrics)
    with (
        open_regular(whole.paths.metrics) as file,
        pytest.raises(StoreError, match="a line of more than"),
    ):
        list(lines_of(file, whole.paths.metrics))


def test_of_an_enormous_log_the_end_is_shown(whole):
    log = whole.paths.rank(0, 0).stderr
    log.parent.mkdir(parents=True)
    log.touch()
    os.truncate(log, 1 << 40)
    with log.open("a") as file:
        file.write("the end\n")

    text = whole.logs()

    assert text.startswith(f"[nbkit: first {(1 << 40) + 8 - (16 << 20):,} bytes ")
    assert text.endswith("the end\n")


@pytest.mark.parametrize("text", [b"[" * 500_000, b'{"a":' * 400, b"5", b"\xff"])
def test_a_line_that_is_no_object_is_one_kind_of_error(text):
    with pytest.raises(json.JSONDecodeError):
        parse_object(text)


def test_names_that_are_no_utf8_are_read_as_ever():
    assert parse_object(b'{"a":"\\udc80","b":"\\\\ud800"}') == {
        "a": "\udc80",
        "b": "\\ud800",
    }


def test_an_id_of_any_length_is_just_not_there(whole):
    for name in ("20260101-000000" + "a" * 300, "a" * 300, "\u00e9" * 200):
        with pytest.raises(RunNotFoundError):
            attach(name)


def test_a_pipe_among_images_is_named(tmp_path, in_time):
    for name in ("a", "b"):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "1.jpg").touch()
    os.mkfifo(tmp_path / "data/a/x.jpg")
    listing = find(str(tmp_path / "data"))

    def refused():
        try:
            return str(listing.fingerprint())
        except ConfigError as error:
            return str(error)

    assert "a/x.jpg is not a regular file" in in_time(refused)
    with pytest.raises(StoreError, match="not a regular file"):
        listing.open().read(1)
