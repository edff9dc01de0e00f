"""What a notebook gets when a cell ends with a run, from a real kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nbkit
from nbkit.errors import StoreError
from nbkit.store.record import RunState
from nbkit.widgets.view import RunView
from tests.launch.conftest import plugins
from tests.notebooks.kernel import running_kernel
from tests.waiting import wait_until
from tests.widgets.front import Front
from tests.widgets.messages import hear
from tests.widgets.stored_run import WrittenRun

__all__ = ["plugins"]

WIDGET = "application/vnd.jupyter.widget-view+json"

LAUNCH = """
import nbkit
config = nbkit.ExperimentConfig(
    model="{model}", device="cpu", gpus=1, image_size=32, batch_size_per_gpu=4,
    steps={steps}, warmup_steps=1, learning_rate={rate}, tensorboard=False,
    name="shown",
)
"""


def pictures(front: Front) -> list[str]:
    """Return what replaced the picture so far, as text; some are sent twice."""
    updates = front.find("update_display_data")
    return list(dict.fromkeys(update["data"]["text/plain"] for update in updates))


def comes_with_the_next_cell(front: Front, picture: str) -> None:
    """What a thread sends between two cells is dropped by papermill and nbconvert."""

    def parents() -> list[dict[str, Any]]:
        front.find("update_display_data")
        return [
            message["parent_header"]
            for message in front.messages
            if message["msg_type"] == "update_display_data"
            and message["content"]["data"]["text/plain"] == picture
        ]

    # Jupyter would take the output of a cell for activity of the kernel.
    assert {parent["msg_type"] for parent in parents()} == {"status"}
    cell = front.execute("pass")
    wait_until(
        lambda: cell in {parent["msg_id"] for parent in parents()},
        "the picture as output of the next cell",
    )


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "store"))
    return tmp_path / "store"


def test_view_follows_run_while_next_cell_works_then_stops_it(tmp_path):
    go = tmp_path / "go"
    wait = f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists():\n"
    with running_kernel() as kernel:
        front = Front(kernel)
        launch = LAUNCH.format(model="slow", steps=1_000_000, rate=0.1)
        shown = front.execute(f"{launch}\nrun = nbkit.launch(config)\nrun")
        busy = front.execute(f"{wait}    time.sleep(0.05)")

        assert kernel.reply_to(shown)["status"] == "ok"
        # Nobody asked for it: the next cell is under way.
        everything = wait_until(lambda: front.told("all"), "what there is")[0]
        assert everything["values"]["head"]["run_id"] == nbkit.runs()[0].run_id
        run = nbkit.runs()[0]
        wait_until(lambda: len(run.metrics()) > 20, "steps", 120)
        changes = wait_until(
            lambda: [
                change
                for change in front.told("change")
                if change["values"].get("numbers", {}).get("step")
            ][1:],
            "steps in the view",
        )
        view, picture = [out["data"] for out in front.find("display_data")]
        assert WIDGET in view
        assert WIDGET not in picture
        assert run.run_id in picture["text/html"]
        assert changes[0]["number"] > everything["number"]

        assert front.told("log")
        assert not go.exists()
        go.touch()
        kernel.reply_to(busy)

        comm = view[WIDGET]["model_id"]
        front.say(comm, kind="ask", request="1")
        wait_until(lambda: front.told("heard"), "an answer")
        front.say(comm, kind="do", request="2", action="stop")
        wait_until(lambda: front.told("done"), "the deed")
        assert run.wait(60, raise_on_failure=False).state is RunState.STOPPED

        (new,) = wait_until(lambda: pictures(front), "the picture of its end")
        assert "stopped by user" in new
        comes_with_the_next_cell(front, new)

        front.say(comm, kind="do", request="3", action="resume")
        wait_until(lambda: len(front.told("done")) > 1, "the other deed")
        assert nbkit.attach(run.run_id).attempt == 1
        again = wait_until(lambda: pictures(front)[1:], "the picture of what goes on")
        assert "attempt 2 at" in again[0]
        run.stop(grace_seconds=0)
        ends = wait_until(lambda: pictures(front)[2:], "the picture of its other end")
        assert "stopped, attempt 2" in ends[-1]


def test_a_deed_that_goes_wrong_is_answered(store, monkeypatch):
    run = WrittenRun(store).run
    view = RunView(run)
    monkeypatch.setattr(run, "stop", lambda **_: 1 / 0)
    said: list[dict[str, Any]] = []
    monkeypatch.setattr(view, "send", said.append)

    hear(view, kind="do", view="a", request="1", action="stop")

    (answer,) = said
    assert (answer["kind"], answer["request"], answer["to"]) == ("refused", "1", "a")
    assert "ZeroDivisionError" in answer["why"]
    view.close()


def test_of_a_run_that_cannot_be_read_no_view_is_opened(store, monkeypatch):
    run = WrittenRun(store).run
    run.paths.config.write_text("{")
    opened: list[RunView] = []
    monkeypatch.setattr(RunView, "open", opened.append)

    with pytest.raises(StoreError):
        RunView(run)

    assert opened == []
