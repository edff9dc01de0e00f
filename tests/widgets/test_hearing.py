"""Pages are heard beside a cell, whatever ipykernel calls what it keeps."""

from __future__ import annotations

from pathlib import Path

import comm

from nbkit.widgets.view import RunView
from tests.notebooks.kernel import running_kernel
from tests.waiting import wait_until
from tests.widgets.front import Front
from tests.widgets.stored_run import WrittenRun

# As if the next ipykernel called an attribute of its comms otherwise.
RENAMED = """
from ipykernel.comm.comm import BaseComm
BaseComm._reply_subshell_id = property(
    lambda comm: comm._newest, lambda comm, shell: setattr(comm, "_newest", shell)
)
import nbkit
nbkit.runs()
"""
# And its main loop.
BUSY = """
from nbkit.widgets.hearing import Hearing
kernel = get_ipython().kernel
loop = vars(kernel).pop("io_loop")
hearing = Hearing()
heard = hearing.is_possible(), hearing.is_possible()
kernel.io_loop = loop
"""


def test_a_kernel_whose_names_have_changed_hears_pages_and_knows_when(
    tmp_path: Path, monkeypatch
):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "store"))
    run_id = WrittenRun(tmp_path / "store").run.run_id
    go = tmp_path / "go"
    wait = f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists():\n"
    with running_kernel() as kernel:
        front = Front(kernel)
        kernel.reply_to(front.execute(RENAMED))

        def tables() -> list[str]:
            opened = front.find("comm_open")
            states = {one["comm_id"]: one["data"]["state"] for one in opened}
            return [
                comm_id
                for comm_id, state in states.items()
                if state.get("_anywidget_id", "").endswith("RunTable")
            ]

        (table,) = wait_until(tables, "a table")
        subshell = front.new_subshell()
        busy = front.execute(f"{wait}    time.sleep(0.05)")
        front.say(table, subshell, kind="open", runs=[])
        (rows,) = wait_until(lambda: front.told("rows"), "an answer beside the cell")
        assert not go.exists()
        go.touch()
        kernel.reply_to(busy)

        assert [row["run_id"] for row in rows["rows"]] == [run_id]
        assert kernel.execute(BUSY, "heard") == (True, False)
        assert kernel.execute("pass", "hearing.is_possible()") is True


def test_a_page_that_is_loaded_again_finds_a_view_by_its_target(tmp_path: Path):
    view = RunView(WrittenRun(tmp_path).run)

    listed = comm.get_comm_manager().get_comm(view.comm.comm_id)

    assert listed is not view.comm
    assert listed.target_name == view.comm.target_name == "jupyter.widget"
    view.close()


def test_a_view_that_a_page_has_closed_can_be_closed(tmp_path: Path):
    view = RunView(WrittenRun(tmp_path).run)
    closed = {"comm_id": view.comm.comm_id, "data": {}}

    comm.get_comm_manager().comm_close(None, "", {"content": closed})
    view.close()

    assert not view.is_open
