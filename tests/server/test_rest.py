"""Runs and notebooks over REST, with real runs and a real contents manager."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

import nbformat
import pytest

import nbkit
from nbkit.store.record import RunState
from nbkit.studies.notebooks import notebooks
from tests.launch.conftest import plugins, small
from tests.server.jupyter import Jupyter
from tests.server.stored_runs import store_run
from tests.waiting import wait_until

__all__ = ["plugins", "small"]

ROOT = Path(__file__).parents[2]

RUN_ID = "20260101-000000000-x-aaaa"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use the store of this test's server."""
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture
def running(store, plugins, small):
    """Return a run that goes on until it is stopped."""
    run = nbkit.launch(small(model="slow", steps=100_000))
    wait_until(lambda: len(run.metrics()) > 3, "steps")
    yield run
    run.stop(grace_seconds=0)


def test_a_run_is_listed_with_its_progress_and_stopped(start, running, store):
    server = start()
    with server.view() as view:
        rows = view.next("runs")["runs"]
        (row,) = rows
        (again,) = server.request("nbkit/api/runs").body["runs"]
        one = server.request(f"nbkit/api/runs/{running.run_id}").body
        answer = server.request(f"nbkit/api/runs/{running.run_id}/stop", {})
        while (row_now := view.next("runs")["runs"][0])["state"] != "stopped":
            pass
        ended = server.request(f"nbkit/api/runs/{running.run_id}/stop", {})

    assert row["run_id"] == again["run_id"] == running.run_id
    assert row["state"] == one["state"] == "running"
    assert row["name"] == running.config.title
    assert row["total_steps"] == 100_000
    assert 3 < row["step"] <= again["step"]
    assert row["images_per_second"] > 0
    assert row["loss"] is not None
    assert row["started"] == running.record["time"]["started"]
    assert row["ended"] is None
    assert row["own"] is True
    assert row["notebook"] is None
    assert row["folder"] is None  # the store is not below the server's root
    assert answer.status == 202
    assert answer.body["run_id"] == running.run_id
    assert running.state is RunState.STOPPED
    assert running.record["attempts"]
    assert row_now["ended"]
    assert ended.status == 409
    assert "ended already (stopped)" in ended.body["message"]


def test_a_read_only_server_stops_resumes_and_copies_nothing(start, store):
    running = store_run(store, RUN_ID, "running")
    stopped = store_run(store, f"{RUN_ID}b", "stopped")
    server = start("--NbkitServer.read_only=True")

    stop = server.request(f"nbkit/api/runs/{RUN_ID}/stop", {})
    resume = server.request(f"nbkit/api/runs/{RUN_ID}b/resume", {})
    copy = server.request("nbkit/api/notebooks/scaling", {})
    with server.view() as view:
        assert view.next("status")["read_only"] is True

    assert stop.status == resume.status == copy.status == 403
    assert "read-only" in stop.body["message"]
    assert "read-only" in resume.body["message"]
    assert not (running / "stop.json").exists()
    assert not (stopped / "logs").exists()
    assert list(server.root.iterdir()) == []


def test_stop_takes_grace_of_request_or_run_and_refuses_damaged_runs(start, store):
    server = start()
    for number, (body, grace_seconds) in enumerate(
        [({}, 7), ({"grace_seconds": 0}, 0), ({"grace_seconds": 0.5}, 0.5)]
    ):
        run_id = f"{RUN_ID}{number}"
        # Written by another version.
        fields = {"new_field": 1, "stop_grace_seconds": 7}
        folder = store_run(store, run_id, "running", **fields)
        assert server.request(f"nbkit/api/runs/{run_id}/stop", body).status == 202
        request = json.loads((folder / "stop.json").read_text())
        assert request["grace_seconds"] == grace_seconds
    for number, (name, text) in enumerate(
        [
            ("config.json", "{}"),
            ("config.json", '{"stop_grace_seconds": "long"}'),
            ("submission.json", '{"devices": []}'),
            ("record.json", '{"state": "dancing", "attempt": 0}'),
        ],
        start=3,
    ):
        run_id = f"{RUN_ID}{number}"
        folder = store_run(store, run_id, "running")
        (folder / name).write_text(text)
        answer = server.request(f"nbkit/api/runs/{run_id}/stop", {})
        assert answer.status == 409, name
        assert "is damaged" in answer.body["message"]
        assert not (folder / "stop.json").exists()
    assert "Traceback" not in server.log


def test_run_row_without_its_damaged_record_or_outside_the_store(
    start, store, tmp_path
):
    (store_run(store, RUN_ID) / "record.json").write_text("{")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "record.json").write_text('{"secret": 1}')
    linked = f"{RUN_ID}b"
    (store / "runs" / linked).symlink_to(outside)
    server = start()

    (row,) = server.request("nbkit/api/runs").body["runs"]
    answer = server.request(f"nbkit/api/runs/{RUN_ID}")

    assert answer.status == 200
    assert answer.body == row
    assert "record.json is damaged" in row["cause"]
    assert server.request(f"nbkit/api/runs/{linked}").status == 404


def test_a_store_that_cannot_be_read_is_said_by_every_answer_and_to_viewers(
    start, store
):
    store.write_text("no folder")
    server = start()
    answers = [
        server.request("nbkit/api/runs"),
        server.request(f"nbkit/api/runs/{RUN_ID}"),
        server.request(f"nbkit/api/runs/{RUN_ID}/stop", {}),
    ]
    with server.view() as view:
        while not (status := view.next("status"))["runs_fault"]:
            pass
        store.unlink()
        store_run(store, RUN_ID)
        while view.next("status")["runs_fault"]:
            pass
        rows = server.request("nbkit/api/runs").body["runs"]

    assert [answer.status for answer in answers] == [503] * 3
    for answer in answers:
        assert "Not a directory" in answer.body["message"]
    assert "NotADirectoryError" in status["runs_fault"]
    assert [row["run_id"] for row in rows] == [RUN_ID]
    assert "Traceback" not in server.log


def test_runs_of_the_administrators_store_have_no_path_in_contents_without_files(
    start, tmp_path
):
    other = tmp_path / "other"
    store_run(other, RUN_ID)
    server = start(
        f"--NbkitServer.store={other}",
        "--ServerApp.contents_manager_class=tests.server.foreign.NoFiles",
        variables={"PYTHONPATH": str(ROOT)},
    )

    (row,) = server.request("nbkit/api/runs").body["runs"]

    assert row["folder"] is None
    assert row["folder_path"] == str(other / "runs" / RUN_ID)


@pytest.mark.parametrize(
    "body",
    [
        {"grace_seconds": -1},
        {"grace_seconds": True},
        {"grace_seconds": 1e9},
        {"grace": 5},
        [],
        b"\xff",
        b"[" * 100_000,
        b'{"grace_seconds":NaN}',
    ],
)
def test_a_stop_that_makes_no_sense_is_refused(watched: Jupyter, body):
    path = "nbkit/api/runs/20260101-000000000-x-aaaa/stop"
    answer = watched.request(path, body)

    assert answer.status == 400
    assert answer.body["message"].endswith((".", "object."))


@pytest.mark.parametrize(
    "run_id",
    [
        "20260101-000000000-x-aaaa",
        "..",
        "..%2F..%2Fetc",
        "20260101-000000%2F..%2F..",
        "20260101-000000%00",
        "x" * 5000,
    ],
)
@pytest.mark.parametrize("what", ["", "/stop"])
def test_no_run_id_leads_out_of_the_store(watched: Jupyter, run_id: str, what: str):
    body = {} if what else None
    answer = watched.request(f"nbkit/api/runs/{run_id}{what}", body)

    assert answer.status == 404
    assert "Traceback" not in watched.log


@pytest.mark.parametrize("limit", ["0", "x", "1001", "9" * 5000])
def test_a_limit_that_makes_no_sense_is_refused(watched: Jupyter, limit: str):
    answer = watched.request(f"nbkit/api/runs?limit={limit}")

    assert answer.status == 400
    assert "from 1 to 1,000" in answer.body["message"]


def test_notebooks_are_listed_with_what_they_are_about(watched: Jupyter):
    listed = watched.request("nbkit/api/notebooks").body["notebooks"]

    # In the order of the tiles.
    names = [one["name"] for one in listed]
    assert names[:3] == ["interactive", "scaling", "precision"]
    assert names[-1] == "chexnet"
    assert set(names) == notebooks().keys()
    [scaling] = [one for one in listed if one["name"] == "scaling"]
    assert scaling["title"].startswith("Scaling: ")
    assert scaling["description"].startswith("The same model is trained")
    assert "\n" not in scaling["description"]


def test_a_notebook_is_copied_and_nothing_is_overwritten(watched: Jupyter):
    folder = watched.root / "a folder"
    folder.mkdir()

    made = [
        watched.request("nbkit/api/notebooks/scaling", {"folder": "a folder"})
        for _ in range(3)
    ]

    assert [answer.status for answer in made] == [201] * 3
    names = ["scaling.ipynb", "scaling-1.ipynb", "scaling-2.ipynb"]
    assert [answer.body["path"] for answer in made] == [f"a folder/{n}" for n in names]
    copy = nbformat.read(folder / "scaling-1.ipynb", as_version=4)
    original = nbformat.read(nbkit.notebook("scaling"), as_version=4)
    assert [cell.source for cell in copy.cells] == [c.source for c in original.cells]


def test_copy_for_a_folder_that_takes_none_is_at_the_top(start):
    server = start()
    # They are there, and one takes no file from anybody.
    (server.root / "kernel's").symlink_to("/proc")
    (server.root / "originals").symlink_to(nbkit.notebook("scaling").parent)
    (server.root / "scaling.ipynb").touch()

    answers = [
        server.request("nbkit/api/notebooks/scaling", {"folder": folder})
        for folder in ("kernel's", "originals")
    ]

    # The copy is at the top, never over another, and not beside the original.
    paths = [(answer.status, answer.body["path"]) for answer in answers]
    assert paths == [(201, "scaling-1.ipynb"), (201, "scaling-2.ipynb")]

    shutil.rmtree(server.root)
    server.root.symlink_to("/proc")
    answer = server.request("nbkit/api/notebooks/scaling", {"folder": ""})

    assert answer.status == 403
    message = answer.body["message"]
    assert message.startswith("A copy cannot be saved in the folder /")
    assert message.endswith("then try again.")
    assert "Errno" not in message


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("nothing", {}, 404),
        ("scaling", {"folder": "no/such"}, 404),
        ("scaling", {"folder": "../.."}, 404),
        ("scaling", {"folder": "a\0b"}, 404),
        ("scaling", {"folder": 5}, 400),
        ("scaling", {"path": ""}, 400),
    ],
)
def test_a_copy_that_makes_no_sense_is_refused(
    watched: Jupyter, name: str, body: dict, status: int
):
    before = sorted(watched.root.rglob("*"))
    answer = watched.request(f"nbkit/api/notebooks/{name}", body)

    assert answer.status == status
    assert answer.body["message"]
    assert sorted(watched.root.rglob("*")) == before
    assert "Traceback" not in watched.log


def test_a_kernel_is_known_by_pid_and_notebook_and_its_run_by_the_notebook(
    start, store, plugins, small, tmp_path
):
    heard = tmp_path / "heard"
    server = start(variables={"STAND_IN": json.dumps({"heard": str(heard)})})
    session = {
        "path": "a/b.ipynb",
        "name": "b.ipynb",
        "type": "notebook",
        "kernel": {"name": "python3"},
    }
    kernel_id = server.request("api/sessions", session).body["kernel"]["id"]

    def said(key: str) -> list[dict]:
        # It hears in a thread of its own, maybe after the first sample.
        text = heard.read_text() if heard.exists() else ""
        lines = map(json.loads, text.splitlines())
        found = [line[key] for line in lines if key in line]
        return found[-1] if found else []

    with (
        server.view() as view,
        contextlib.closing(
            server.websocket(f"api/kernels/{kernel_id}/channels")
        ) as channels,
    ):
        view.next("sample")
        wait_until(lambda: said("kernels") and said("kernels")[0]["idle_since"], "idle")
        (kernel,) = said("kernels")
        config = small(steps=100_000).to_json()
        code = (
            f"import nbkit; nbkit.launch(nbkit.ExperimentConfig.from_json({config!r}))"
        )
        channels.send(json.dumps(_execute(code)))
        # A run is listed before its submission says who launched and supervises it.
        (run,) = wait_until(
            lambda: [run for run in said("runs") if run["pids"]], "a run"
        )
        while not ((rows := view.next("runs")["runs"]) and rows[0]["notebook"]):
            pass

        # A widget's message is activity to Jupyter; its kernel stays idle.
        def idle_since() -> float:
            return said("kernels")[0]["idle_since"] or 0.0

        wait_until(lambda: idle_since() > kernel["idle_since"], "the cell's end")
        before = idle_since()
        path = f"api/kernels/{kernel_id}"
        active = server.request(path).body["last_activity"]
        channels.send(json.dumps(_message("comm_msg", comm_id="none", data={})))
        wait_until(
            lambda: server.request(path).body["last_activity"] > active, "activity"
        )
        for _ in range(12):  # longer than from one look at the kernels to the next
            view.next("sample")
        assert idle_since() == before
    nbkit.attach(run["run_id"]).stop(grace_seconds=0)
    assert server.request(f"api/kernels/{kernel_id}", method="DELETE").status == 204

    assert kernel["kernel_id"] == kernel_id
    assert kernel["path"] == "a/b.ipynb"
    assert kernel["name"] == "python3"
    record = nbkit.attach(run["run_id"]).record
    assert record["launch"]["owner"]["pid"] == kernel["pid"]
    assert run["path"] == rows[0]["notebook"] == "a/b.ipynb"
    assert record["supervisor"]["pid"] in run["pids"]
    assert run["name"] == rows[0]["name"]


def _execute(code: str) -> dict:
    """Return the message that asks a kernel to execute something."""
    return _message("execute_request", code=code, silent=False)


def _message(kind: str, **content: object) -> dict:
    header = {
        "msg_id": kind,
        "msg_type": kind,
        "session": "test",
        "username": "",
        "version": "5.3",
    }
    return {
        "channel": "shell",
        "header": header,
        "parent_header": {},
        "metadata": {},
        "content": content,
        "buffers": [],
    }
