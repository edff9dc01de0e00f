"""Requests to the server that are meant to make it fail, or to keep it busy."""

from __future__ import annotations

import os

import pytest

from tests.server.jupyter import jupyter
from tests.server.stored_runs import store_run

GOOD = "20260101-000000-good-aaaa"
DEEP = "20260101-000000-deep-aaaa"
PIPE = "20260101-000000-pipe-aaaa"
LONG = "20260101-000000" + "a" * 300


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Return a server with runs of which two are meant to harm it."""
    folder = tmp_path_factory.mktemp("server")
    with pytest.MonkeyPatch.context() as context:
        context.setenv("NBKIT_HOME", str(folder / "store"))
        for run_id in (GOOD, DEEP, PIPE):
            store_run(folder / "store", run_id)
        runs = folder / "store/runs"
        (runs / DEEP / "record.json").write_text('{"a":' * 900 + "1" + "}" * 900)
        (runs / PIPE / "record.json").unlink()
        os.mkfifo(runs / PIPE / "record.json")
        with jupyter(folder) as started:
            yield started


def test_a_number_of_400_digits_is_no_grace(server):
    answer = server.request(
        f"nbkit/api/runs/{GOOD}/stop", {"grace_seconds": int("9" * 400)}
    )

    assert answer.status == 400
    assert "is not a number from 0 to 86400" in answer.body["message"]


def test_a_long_body_is_refused_before_it_is_read(server):
    answer = server.request(
        f"nbkit/api/runs/{GOOD}/stop", {"grace_seconds": "9" * (1 << 20)}
    )

    assert answer.status == 400
    assert "at most 65,536 B" in answer.body["message"]


@pytest.mark.parametrize(
    ("run_id", "words"),
    [(DEEP, "recursion limit"), (PIPE, "a regular file")],
)
def test_a_record_that_is_no_record_is_said_and_hides_no_other(server, run_id, words):
    one = server.request(f"nbkit/api/runs/{run_id}")
    rows = server.request("nbkit/api/runs").body["runs"]

    assert one.status == 200
    assert words in one.body["cause"]
    assert {row["run_id"] for row in rows} == {GOOD, DEEP, PIPE}
    assert server.request(f"nbkit/api/runs/{GOOD}").body["name"] == "a run"
