"""The page of a run: followed over a websocket, resumed, and refused in a sentence."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import websocket

import nbkit
from nbkit.live.browser_part import view_module, view_style
from nbkit.store.metrics import to_json_line
from tests.server.jupyter import Jupyter
from tests.server.stored_runs import store_run
from tests.widgets.stored_run import step

RUN_IDS = [f"20260101-000000000-x-aaa{number}" for number in range(5)]
LOG = {"view": "v", "rank": 0, "stream": "stderr", "text": ""}


class Page:
    """One page of a run."""

    def __init__(self, socket: websocket.WebSocket) -> None:
        self.socket = socket

    def next(self, kind: str) -> dict:
        """The next message of a kind; others are left out."""
        while True:
            message = json.loads(self.socket.recv())
            if message["kind"] == kind:
                return message

    def send(self, **message: object) -> None:
        self.socket.send(json.dumps({**LOG, **message}))


@contextlib.contextmanager
def opened(server: Jupyter, run_id: str) -> Iterator[Page]:
    socket = server.websocket(f"nbkit/api/runs/{run_id}/view")
    try:
        yield Page(socket)
    finally:
        socket.close()
        # Where the server closed first, the above closes nothing.
        socket.shutdown()


@pytest.fixture
def store(watched: Jupyter, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use the store of the server; each test has its own runs there."""
    monkeypatch.setenv("NBKIT_HOME", str(watched.folder / "store"))
    return watched.folder / "store"


def print_lines(folder: Path, count: int) -> None:
    log = folder / "logs" / "0" / "0" / "stderr.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {number}\n" for number in range(count)))


def test_a_page_of_a_run_has_all_of_it_and_more_of_its_log_on_request(watched, store):
    run_id = RUN_IDS[0]
    folder = store_run(
        store, run_id, "failed", precision="bf16", batch_size_per_gpu=64, gpus=2
    )
    submission = json.loads((folder / "submission.json").read_text())
    study_id = "20260101-000000-s-bbbb"
    submission["tags"] = {"study": study_id, "arm": "a", "repeat": 0}
    (folder / "submission.json").write_text(json.dumps(submission))
    record = json.loads((folder / "record.json").read_text())
    record["cause"] = {"rank": 1, "message": "<b>out</b> of memory", "traceback": "T"}
    (folder / "record.json").write_text(json.dumps(record))
    print_lines(folder, 1000)

    with opened(watched, run_id) as page:
        page.send(kind="open")
        values = page.next("all")["values"]
        first = page.next("log")
        page.send(kind="log", lines=2000)
        whole = page.next("log")
        page.next("beat")  # of a run that has ended, nothing else comes

    assert values["head"]["run_id"] == run_id
    assert values["head"]["state"] == "failed"
    assert values["head"]["cause"]["message"] == "<b>out</b> of memory"
    assert values["head"]["cause"]["traceback"] == "T"
    assert values["head"]["study_id"] == study_id
    plain = nbkit.ExperimentConfig().model_dump(mode="json")
    stored = json.loads((folder / "config.json").read_text())
    is_changed = {name: plain[name] != value for name, value in stored.items()}
    assert is_changed["gpus"]
    for kind, expected in (("changed", True), ("default", False)):
        assert dict(values["config"][kind]) == {
            name: str(value)
            for name, value in stored.items()
            if is_changed[name] is expected
        }
    assert [first["lines"][0], len(first["lines"])] == ["line 500", 500]
    assert [whole["lines"][0], len(whole["lines"])] == ["line 0", 1000]


def test_curve_of_a_run_is_served_near_by_and_as_stored(watched, store):
    run_id = RUN_IDS[4]
    folder = store_run(store, run_id)
    losses = [1 / (7 * n) + n % 3 for n in range(1, 5001)]
    lines = [step(n + 1, loss=loss, t=n / 8) for n, loss in enumerate(losses)]
    (folder / "metrics.jsonl").write_text("".join(map(to_json_line, lines)))

    def near(first: int, last: int) -> list[list[float]]:
        path = f"nbkit/api/runs/{run_id}/curve?name=loss&first={first}&last={last}"
        return watched.request(path).body["points"]

    whole, part = near(1, 5000), near(1001, 1800)
    refused = [
        watched.request(f"nbkit/api/runs/{run_id}/curve?{query}")
        for query in ("name=loss&first=a&last=b", "name=lost&first=1&last=2")
    ]
    file = watched.request(f"nbkit/api/runs/{run_id}/curve/csv?name=loss")
    with (folder / "metrics.jsonl").open("a") as metrics:
        metrics.write(to_json_line(step(5001, loss=None, t=None)))
    later = near(4999, 5001)

    width = whole[1][0] - whole[0][0]
    assert 1000 <= len(whole) <= 2000
    for x, low, high, *_ in whole[:-1]:
        first = int(x) - 1
        bucket = losses[first : first + int(width)]
        assert (low, high) == pytest.approx((min(bucket), max(bucket)), rel=5e-6)
    assert whole[-1][0] == 5000
    assert [point[0] for point in part] == [*range(1001, 1801)]
    assert part[0][4] == 125.0
    assert [answer.status for answer in refused] == [400, 404]
    assert [point[0] for point in later] == [4999, 5000, 5001]
    assert later[-1] == [5001, None, None, None]
    assert file.content_type == "text/csv; charset=utf-8"
    rows = list(csv.reader(io.StringIO(file.body)))
    assert rows[0] == ["run_id", "step", "seconds", "loss"]
    expected = [(run_id, n + 1, n / 8, loss) for n, loss in enumerate(losses)]
    assert [(r, int(s), float(t), float(v)) for r, s, t, v in rows[1:]] == expected


def test_a_run_that_was_removed_is_told_in_a_sentence_before_and_meanwhile(
    watched, store
):
    run_id = RUN_IDS[1]
    folder = store_run(store, run_id, "running")

    with opened(watched, run_id) as page, opened(watched, f"{run_id}b") as other:
        gone = other.next("gone")["message"]
        damaged = folder / "record.json"
        record = damaged.read_text()
        damaged.write_text("{")
        with opened(watched, run_id) as third:
            busy = third.next("busy")["message"]  # it may be tried again
        damaged.write_text(record)
        page.send(kind="open")
        page.next("all")
        shutil.rmtree(folder)
        failed = page.next("failed")["message"]

    assert gone.startswith(
        f"Run {run_id}b is not in the store of this server, {store}."
    )
    assert f'nbkit.attach("{run_id}b")' in gone
    assert "record.json is damaged" in busy
    assert failed == f"run {run_id} was removed from the store."
    assert "Traceback" not in watched.log


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give a run to others")
def test_a_run_of_another_user_is_shown_and_neither_stopped_nor_resumed(watched, store):
    run_id = RUN_IDS[2]
    folder = store_run(store, run_id, "running")
    os.chown(folder, 12345, 12345)

    with opened(watched, run_id) as page:
        page.send(kind="open")
        state = page.next("all")["values"]["head"]["state"]
    answers = [
        watched.request(f"nbkit/api/runs/{run_id}/{action}", {})
        for action in ("stop", "resume")
    ]

    assert state == "running"
    assert [answer.status for answer in answers] == [403, 403]
    for answer in answers:
        assert "belongs to another user" in answer.body["message"]


NONSENSE = (
    '{"kind": "do", "action": "stop"}',
    '{"kind": "log", "rank": -2}',
    '{"kind": "log", "rank": 0.5}',
    '{"kind": "log", "stream": "../../../etc/passwd"}',
    '{"kind": "log", "lines": "all"}',
    '{"kind": "open", "view": 5}',
    "[]",
    "x" * 5000,
)


def test_a_page_that_sends_what_makes_no_sense_is_closed_with_why(watched, store):
    run_id = RUN_IDS[3]
    store_run(store, run_id, "running")

    for message in NONSENSE:
        with opened(watched, run_id) as page:
            page.socket.send(message)
            while (frame := page.socket.recv_data())[0] != websocket.ABNF.OPCODE_CLOSE:
                pass

        assert frame[1][:2] == (1008).to_bytes(2, "big"), message
        assert len(frame[1]) > 20, message


def test_the_browser_part_is_that_of_a_notebook(watched: Jupyter):
    part = watched.request("nbkit/api/view").body

    assert part == {"module": view_module(), "style": view_style()}
    assert "export default" in part["module"]
