"""A supervisor's looks at its run's folder, whose file server fails for a while."""

from __future__ import annotations

import errno
import json
import math
import os
import signal

import pytest

from nbkit.cli.main import main
from nbkit.errors import ConfigError, StoreError
from nbkit.launch.manual.ranks import give_orders
from nbkit.launch.supervision.journal import Journal
from nbkit.launch.supervision.requests import StopRequests
from nbkit.launch.supervision.supervisor import supervise
from nbkit.reading import is_gone
from nbkit.store.metrics import read_json_lines
from nbkit.store.paths import RunPaths
from nbkit.store.record import RunState, iso, read_json, unix_seconds, write_json
from tests.widgets.stored_run import WrittenRun

STOP = {"by": "ann", "grace_seconds": 5.0}
SUBMISSION = {
    "owner": {"pid": os.getpid(), "start_ticks": 0, "host": "elsewhere", "boot_id": ""},
    "on_owner_exit": "keep",
    "stop_grace_seconds": 5.0,
}


@pytest.fixture
def paths(tmp_path):
    return RunPaths(tmp_path)


@pytest.fixture
def requests(paths):
    before = signal.getsignal(signal.SIGTERM)
    yield StopRequests(paths, SUBMISSION)
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def fail(monkeypatch):
    """Let the next calls of the system give an error."""

    def fail(number, name="open", times=1):
        call = getattr(os, name)
        left = [times]

        def fail_at_first(*arguments, **options):
            if not left[0]:
                return call(*arguments, **options)
            left[0] -= 1
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, name, fail_at_first)

    return fail


@pytest.fixture
def submission(monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    names = "name time engine owner on_owner_exit device_type cpus_per_rank argv cwd"
    request = {
        "request": {"kind": "cpu"},
        "parameter_sources": {},
        "tags": {},
        "attempt": 0,
    }
    return {**dict.fromkeys(names.split()), **request}


@pytest.fixture
def journal(paths, submission):
    journal = Journal(paths, submission)
    journal.write_record()
    yield journal
    journal.close()


def test_first_record_after_a_requeue(paths, journal, submission):
    journal.begin()
    journal.note_attempt(RunState.STOPPED, None, journal.record["time"]["started"])
    journal.record["queue"] = {"reason": "requeued"}
    journal.set_state(RunState.QUEUED)

    again = Journal(paths, {**submission, "attempt": 1})
    again.close()

    assert [it["state"] for it in again.record["attempts"]] == [RunState.STOPPED]


def test_first_record_after_a_lost_attempt(paths, journal, submission):
    journal.begin()
    started = journal.record["time"]["started"]
    end = unix_seconds(started) + 3600
    os.utime(paths.record, (end, end))

    again = Journal(paths, {**submission, "attempt": 1})
    again.close()

    [lost] = again.record["attempts"]
    assert (lost["number"], lost["state"]) == (0, RunState.LOST)
    assert (lost["started"], lost["ended"]) == (started, iso(end))


@pytest.mark.parametrize("number", [errno.EIO, errno.ETIMEDOUT])
def test_look_file_server_silent(number, paths, requests, fail):
    write_json(paths.stop, STOP)

    fail(number)
    assert requests.look() == []
    assert requests.look() == [STOP]


@pytest.mark.parametrize("is_damaged", [True, False])
def test_look_unreadable_request(paths, requests, fail, is_damaged):
    write_json(paths.stop, STOP)
    if is_damaged:
        paths.stop.write_text("{")
    else:
        fail(errno.EACCES)

    with pytest.raises(StoreError):
        requests.look()


def test_give_orders_file_server_silent(paths, fail):
    paths.orders(0).parent.mkdir(parents=True)

    fail(errno.EIO)
    give_orders(paths, 0, ["terminate"])
    assert read_json(paths.orders(0)) == {"do": ["terminate"]}


def test_write_heartbeat_file_server_silent(paths, journal, fail):
    os.utime(paths.record, (1, 1))

    fail(errno.EIO)
    journal.write_heartbeat()
    assert paths.record.stat().st_mtime > 1


@pytest.mark.parametrize(
    ("number", "times", "is_written"),
    [(errno.EIO, 1, True), (errno.EIO, 99, False), (errno.EACCES, 1, False)],
)
def test_event_file_server_silent(paths, journal, fail, number, times, is_written):
    fail(number, "write", times)
    journal.event("one")

    assert (journal.error is None) is is_written
    assert len(read_json_lines(paths.events)) == is_written


@pytest.mark.parametrize("times", range(1, 5))
def test_supervise_file_server_fails(paths, submission, fail, times):
    write_json(paths.submission, submission)
    begun = []

    def is_mine(found):
        # Its configuration, earlier record and events are opened now.
        fail(errno.EIO, times=times)
        return True

    fail(errno.EIO, times=times)
    supervise(paths, is_mine, lambda journal, found: begun.append(found))

    assert begun == [submission]
    assert json.loads(paths.record.read_text())["state"] == "starting"


def test_event_after_file_server_failed(journal, fail, monkeypatch):
    pauses = []
    monkeypatch.setattr("nbkit.reading.time.sleep", pauses.append)

    fail(errno.EIO, "write", 999)
    for _ in range(9):
        journal.event("one")

    assert len(pauses) == 4


def test_is_gone(tmp_path, fail):
    assert not is_gone(tmp_path)
    assert is_gone(tmp_path / "none")
    fail(errno.EIO, "stat")
    assert not is_gone(tmp_path / "none")
    assert is_gone(tmp_path / "none")


def test_stop_grace_time_out_of_range(store, capsys):
    run = WrittenRun(store, engine="local").run

    for grace_seconds in (math.inf, math.nan, 1e12, -1):
        with pytest.raises(ConfigError, match="Use 0 to 86,400"):
            run.stop(grace_seconds, wait=False)
    assert main(["stop", "aaaa", "--grace", "inf"]) == 2
    assert capsys.readouterr().err.startswith("nbkit: grace_seconds=inf is out of")
    assert not run.paths.stop.exists()
