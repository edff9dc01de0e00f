"""A run that stopped being finite says so wherever it is shown, by the same words."""

from __future__ import annotations

import json

import pytest

import nbkit
from nbkit.cli.main import main
from nbkit.launch.run_progress import RunPosition, result
from nbkit.live.rows import run_numbers
from nbkit.live.run import LiveRun
from nbkit.server.run_table import StoredRunTable
from nbkit.widgets.picture import picture
from tests.widgets.stored_run import WrittenRun, step

WORDS = "loss not finite at step 3"


@pytest.fixture
def lost(tmp_path, monkeypatch) -> WrittenRun:
    """Return a run under way whose loss was not finite from step 3 on."""
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    written = WrittenRun(tmp_path, task="train", model="resnet18", engine="local")
    for number in range(1, 11):
        written.append(step(number, loss=None if number > 2 else 1.0))
    return written


@pytest.fixture
def finished(lost) -> nbkit.Run:
    """Return the same run after its end."""
    lost.record("finished", time={"ended": "2020-01-01T00:01:00.000Z"})
    return lost.run


def test_lists_and_wait_say_not_finite(finished):
    [row] = nbkit.runs().to_dicts()

    assert repr(finished) == f"<Run {finished.run_id} finished, {WORDS}>"
    assert row["nonfinite"] == WORDS
    assert result(finished) == f"finished, {WORDS}, 100 images/s"


def test_the_progress_of_a_run_that_goes_on(lost):
    position = RunPosition()
    position.read(lost.run)

    assert position.words(lost.run) == (f"step 10 of 1,000, 100 images/s, {WORDS}")


def test_commands_say_not_finite(finished, capsys):
    assert main(["show", finished.run_id]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(f"finished; {WORDS}")
    assert main(["runs"]) == 0
    [_, line] = capsys.readouterr().out.splitlines()
    assert main(["runs", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)

    assert f"finished, {WORDS}" in line
    assert (row["state"], row["nonfinite"]) == ("finished", WORDS)


def test_the_live_view_while_it_goes_on_and_after_its_end(lost):
    live = LiveRun(lost.run)
    live.read()
    assert live.take_changes()["head"]["nonfinite"] == WORDS

    lost.record("finished", time={"ended": "2020-01-01T00:01:00.000Z"})
    live.read()
    shown = picture(live)

    assert live.take_changes()["head"]["nonfinite"] == WORDS
    assert f"finished; {WORDS}" in shown["text/plain"]
    assert f"finished; {WORDS}" in shown["text/html"]


def test_the_sidebars_rows(lost):
    table = StoredRunTable(None)
    [row] = table.poll([]).rows
    assert (row["state"], row["nonfinite"]) == ("running", WORDS)

    lost.record("finished", time={"ended": "2020-01-01T00:01:00.000Z"})

    [row] = table.poll([]).rows
    assert (row["state"], row["nonfinite"]) == ("finished", WORDS)
    assert table.read_run(row["run_id"], [])["nonfinite"] == WORDS


@pytest.mark.parametrize("state", ["running", "finished"])
def test_the_sidebar_reads_a_long_run_part_by_part_and_then_tells(
    lost, monkeypatch, state
):
    monkeypatch.setattr("nbkit.server.run_table.STEPS_SECONDS", 0.0)
    lost.append(*map(step, range(11, 15_000)))
    lost.record(state)
    table = StoredRunTable(None)

    told = [table.poll([]).rows[0]["nonfinite"] for _ in range(8)]

    assert told[:2] == [None, None]
    assert told[-1] == WORDS


def test_a_run_that_is_resumed_from_before_it_says_so_no_longer(lost):
    numbers = run_numbers(lost.run)
    assert numbers is not None
    assert numbers["nonfinite"] == WORDS

    lost.submit(1)
    lost.append(step(3, 1))

    numbers = run_numbers(lost.run)
    assert numbers is not None
    assert numbers["nonfinite"] is None
