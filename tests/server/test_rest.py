"""Runs and notebooks over REST, with real runs and a real contents manager."""

from __future__ import annotations

import base64
import contextlib
import json
import sys
from pathlib import Path

import nbformat
import pytest

import nbkit
from nbkit.server.history import GAP
from nbkit.store.processes import hostname
from nbkit.store.record import RunState, write_json
from nbkit.studies.notebooks import notebooks
from tests.launch.conftest import plugins, small
from tests.server.jupyter import Jupyter
from tests.server.stored_runs import store_run
from tests.waiting import wait_until

__all__ = ["plugins", "small"]

RUN_ID = "20260101-000000000-x-aaaa"
STORED = "20260102-000000000-x-aaa"
"""Begins the ids of runs of the server that many tests watch."""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use the store of this test's server."""
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture
def running(store, plugins, small, monkeypatch):
    """Return a run of a notebook that goes on until it is stopped."""
    config = small(model="slow", steps=100_000, checkpoint_period_steps=1)
    with monkeypatch.context() as patch:  # the server is no kernel
        patch.setenv("JPY_SESSION_NAME", "/notebooks/train.ipynb")
        run = nbkit.launch(config)
    wait_until(lambda: len(run.metrics()) > 3, "steps")
    yield run
    run.stop(grace_seconds=0)


def test_a_run_is_listed_with_its_progress_and_past_stopped_and_resumed_once(
    start, running, tmp_path
):
    samples = running.paths.system(hostname())
    wait_until(
        lambda: samples.exists() and samples.read_text().count("\n") > 5, "samples"
    )
    server = start(real_sampler=True)
    with server.view() as view:
        first, filled = view.next("history"), view.next("history")
        rows = view.next("runs")["runs"]
        (row,) = rows
        (again,) = server.request("nbkit/api/runs").body["runs"]
        one = server.request(f"nbkit/api/runs/{running.run_id}").body
        answer = server.request(f"nbkit/api/runs/{running.run_id}/stop", {})
        while (row_now := view.next("runs")["runs"][0])["state"] != "stopped":
            pass
        ended = server.request(f"nbkit/api/runs/{running.run_id}/stop", {})

    lines = samples.read_text().splitlines()[1:3]
    assert all(part["count"] == 0 for part in first["parts"])
    fine = filled["parts"][0]
    # The first has no rate yet.
    assert fine["t0"] in [int(json.loads(line)["t"]) for line in lines]
    assert set(base64.b64decode(fine["host"]["memory_used_percent"])) - {GAP}
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
    is_resumed_once(server, running, tmp_path)


def is_resumed_once(server: Jupyter, run: nbkit.Run, folder: Path) -> None:
    """Resume a run that was launched in an environment that is not the server's."""
    path = f"nbkit/api/runs/{run.run_id}/resume"
    python, used = folder / "python", folder / "used"
    write_json(run.paths.submission, {**run.submission, "executable": str(python)})

    none = server.request(path, {})
    python.write_text(f'#!/bin/sh\ntouch {used}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    first = server.request(path, {})
    second = server.request(path, {})
    wait_until(lambda: run.state is RunState.RUNNING, "the run")

    assert none.status == 409
    assert (
        f"launched by {python}, which cannot be executed (No such"
        in (none.body["message"])
    )
    assert first.status == 202, first.body
    assert used.exists()
    assert run.submission["executable"] == sys.executable
    assert first.body["run_id"] == run.run_id
    assert second.status == 409
    assert second.body["message"].endswith("Call stop() before resume().")
    assert run.attempt == 1
    assert run.submission["on_owner_exit"] == "keep"
    assert run.submission["notebook"] == "/notebooks/train.ipynb"


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


def test_stop_takes_grace_of_request_or_run_and_refuses_damaged_runs(
    watched: Jupyter,
):
    server, store = watched, watched.folder / "store"
    for number, (body, grace_seconds) in enumerate(
        [({}, 7), ({"grace_seconds": 0}, 0), ({"grace_seconds": 0.5}, 0.5)]
    ):
        run_id = f"{STORED}{number}"
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
        run_id = f"{STORED}{number}"
        folder = store_run(store, run_id, "running")
        (folder / name).write_text(text)
        answer = server.request(f"nbkit/api/runs/{run_id}/stop", {})
        assert answer.status == 409, name
        assert "is damaged" in answer.body["message"]
        assert not (folder / "stop.json").exists()
    assert "Traceback" not in server.log


def test_run_row_without_its_damaged_record_or_outside_the_store(
    watched: Jupyter, tmp_path
):
    store, damaged, linked = watched.folder / "store", f"{STORED}7", f"{STORED}8"
    (store_run(store, damaged) / "record.json").write_text("{")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "record.json").write_text('{"secret": 1}')
    (store / "runs" / linked).symlink_to(outside)

    listed = watched.request("nbkit/api/runs").body["runs"]
    rows = {row["run_id"]: row for row in listed}
    answer = watched.request(f"nbkit/api/runs/{damaged}")

    assert answer.status == 200
    assert answer.body == rows[damaged]
    assert "record.json is damaged" in rows[damaged]["cause"]
    assert linked not in rows
    assert watched.request(f"nbkit/api/runs/{linked}").status == 404


def test_a_store_that_cannot_be_read_is_said_by_every_answer_and_to_viewers(
    watched: Jupyter,
):
    server, store, kept = watched, watched.folder / "store", watched.folder / "kept"
    store.mkdir(exist_ok=True)
    store.rename(kept)
    store.write_text("no folder")
    answers = [
        server.request("nbkit/api/runs"),
        server.request(f"nbkit/api/runs/{RUN_ID}"),
        server.request(f"nbkit/api/runs/{RUN_ID}/stop", {}),
    ]
    with server.view() as view:
        while not (status := view.next("status"))["runs_fault"]:
            pass
        store.unlink()
        kept.rename(store)
        store_run(store, f"{STORED}9")
        while view.next("status")["runs_fault"]:
            pass
        rows = server.request("nbkit/api/runs").body["runs"]

    assert [answer.status for answer in answers] == [503] * 3
    for answer in answers:
        assert "Not a directory" in answer.body["message"]
    assert "NotADirectoryError" in status["runs_fault"]
    assert rows[0]["run_id"] == f"{STORED}9"
    assert "Traceback" not in server.log


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


def test_copy_for_a_folder_that_takes_none_is_at_the_top(watched: Jupyter, tmp_path):
    root = watched.root
    # They are there, and one takes no file from anybody.
    (root / "kernel's").symlink_to("/proc")
    (root / "originals").symlink_to(nbkit.notebook("scaling").parent)
    (root / "scaling.ipynb").touch()

    answers = [
        watched.request("nbkit/api/notebooks/scaling", {"folder": folder})
        for folder in ("kernel's", "originals")
    ]

    for folder in ("kernel's", "originals"):
        (root / folder).unlink()
    # The copy is at the top, never over another, and not beside the original.
    paths = [(answer.status, answer.body["path"]) for answer in answers]
    assert paths == [(201, "scaling-1.ipynb"), (201, "scaling-2.ipynb")]

    root.rename(tmp_path / "root")
    root.symlink_to("/proc")
    answer = watched.request("nbkit/api/notebooks/scaling", {"folder": ""})
    root.unlink()
    (tmp_path / "root").rename(root)

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
    before, logged = sorted(watched.root.rglob("*")), len(watched.log)
    answer = watched.request(f"nbkit/api/notebooks/{name}", body)

    assert answer.status == status
    assert answer.body["message"]
    assert sorted(watched.root.rglob("*")) == before
    assert "Traceback" not in watched.log[logged:]


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
        config = small(model="slow", steps=100_000).to_json()
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
