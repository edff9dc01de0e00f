"""What viewers get, from a real server over real websockets."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from itertools import pairwise
from urllib.parse import quote

import pytest

from nbkit.server.history import GAP
from nbkit.server.stream import Hub, Viewer
from tests.server.jupyter import TOKEN, Jupyter, View
from tests.waiting import wait_until


def test_a_viewer_gets_all_that_holds_before_anything_else(watched: Jupyter):
    with watched.view() as view:
        messages = [json.loads(view.frame()) for _ in range(5)]

    first = {message["type"]: message for message in messages}
    # A sample that comes meanwhile comes last, in place of the one before.
    assert list(first) in (
        ["status", "inventory", "history", "sample", "runs"],
        ["status", "inventory", "history", "runs", "sample"],
    )
    assert first["sample"]["inventory"] == first["inventory"]["seq"]
    for message in messages:
        assert message["schema"] == 1
        assert message["host"] == socket.gethostname()
        assert message["stream"] == first["status"]["stream"]
        assert isinstance(message["seq"], int)
        assert isinstance(message["t"], float)
    assert first["status"]["sampler"] == "running"
    assert first["status"]["read_only"] is False
    assert first["status"]["store"].endswith("/store")


def test_what_is_new_while_a_viewer_is_welcomed_keeps_its_place():
    written: list[bytes] = []
    sent: list[asyncio.Future[None]] = []

    def write(frame: bytes) -> asyncio.Future[None]:
        written.append(frame)
        sent.append(asyncio.get_running_loop().create_future())
        return sent[-1]

    async def welcome() -> None:
        hub = Hub(1.0)
        for kind in ("status", "inventory", "runs"):
            hub.broadcast(kind, {"number": 1})
        hub.add(Viewer(write), b'{"type":"history"}')
        hub.broadcast("sample", {"inventory": 2})
        hub.broadcast("inventory", {"number": 2})
        hub.broadcast("sample", {"inventory": 5})
        for future in sent:  # grows meanwhile
            future.set_result(None)
            await asyncio.sleep(0)

    asyncio.run(welcome())
    messages = list(map(json.loads, written))
    kinds = [message["type"] for message in messages]
    assert kinds == ["status", "inventory", "history", "runs", "sample"]
    assert messages[1]["number"] == 2
    assert messages[4]["inventory"] == 5


@pytest.mark.parametrize("end", ["inventory", "sampler"])
def test_a_sample_that_is_not_of_now_is_shown_to_no_new_viewer(end: str):
    written: list[bytes] = []

    def write(frame: bytes) -> asyncio.Future[None]:
        written.append(frame)
        future = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    async def welcome() -> None:
        hub = Hub(1.0)
        hub.broadcast("sample", {"inventory": 2})
        if end == "inventory":
            hub.broadcast("inventory", {})
        else:
            hub.forget_sample()
        hub.add(Viewer(write), b'{"type":"history"}')
        await asyncio.sleep(0)

    asyncio.run(welcome())
    assert "sample" not in {json.loads(frame)["type"] for frame in written}


def test_a_sample_is_numbered_and_names_the_inventory_whose_order_it_follows(
    watched: Jupyter,
):
    with watched.view() as view:
        inventory = view.next("inventory")
        samples = [view.next("sample") for _ in range(3)]

    assert {sample["inventory"] for sample in samples} == {inventory["seq"]}
    numbers = [sample["seq"] for sample in samples]
    assert numbers == sorted(set(numbers))
    assert numbers[0] > inventory["seq"]
    columns = dict(zip(inventory["gpu_columns"], samples[0]["gpus"][0], strict=True))
    assert columns["power_watts"] == 350.0


def test_sixteen_viewers_get_the_same_bytes(watched: Jupyter):
    views = [watched.view() for _ in range(16)]
    try:
        # To come takes them a while: what all get is what the last one gets.
        newest = views[-1].next("sample")["seq"]
        frames = [_samples_up_to(view, newest + 4) for view in views]
    finally:
        for view in views:
            view.close()

    shared = set.intersection(*map(set, frames))
    assert shared
    for number in shared:
        assert len({found[number] for found in frames}) == 1


def _samples_up_to(view: View, number: int) -> dict[int, bytes]:
    """Return a viewer's next samples by number, the last of that number or later."""
    found: dict[int, bytes] = {}
    while max(found, default=0) < number:
        frame = view.frame()
        message = json.loads(frame)
        if message["type"] == "sample":
            found[message["seq"]] = frame
    return found


def test_a_viewer_may_ask_for_fewer_samples_and_gets_some_of_the_same(
    watched: Jupyter,
):
    with watched.view() as often, watched.view() as seldom:
        seldom.send('{"type":"interval","interval_seconds":1}')
        seldom.settle()
        # What was sent before may still arrive.
        few = [seldom.next("sample") for _ in range(5)][-3:]
        every = {}
        while few[-1]["seq"] not in every:
            message = often.next("sample")
            every[message["seq"]] = message

    for before, after in pairwise(few):
        assert after["t"] - before["t"] > 0.8
    assert [every[sample["seq"]] for sample in few] == few


HOSTILE = {
    "no JSON": "{",
    "an unknown type": '{"type":"stop"}',
    "1 ms": '{"type":"interval","interval_seconds":0.001}',
    "no number": '{"type":"interval","interval_seconds":"5"}',
    "NaN": '{"type":"interval","interval_seconds":NaN}',
    "infinity": '{"type":"interval","interval_seconds":Infinity}',
    "digits without end": '{"type":"interval","interval_seconds":%s}' % ("9" * 4000),
    "too long": '{"type":"interval","interval_seconds":5}' + " " * 5000,
    "nested": "[" * 4000,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_message_that_makes_no_sense_changes_nothing(watched: Jupyter, what: str):
    with watched.view() as view:
        view.send(HOSTILE[what])
        view.settle()
        numbers = [view.next("sample")["seq"] for _ in range(3)]

    assert numbers[2] - numbers[0] < 10  # not every twentieth, as 5 s would be
    assert "Traceback" not in watched.log


def _slots(server: Jupyter) -> int:
    with server.view() as view:
        return view.next("history")["parts"][0]["count"]


def test_a_reconnect_gets_what_it_missed_and_another_stream_gets_everything(
    watched: Jupyter,
):
    wait_until(lambda: _slots(watched) >= 2, "a history")
    with watched.view() as view:
        history = view.next("history")
        last = view.next("sample")
    with watched.view() as other:
        wait_until(
            lambda: other.next("sample")["t"] > last["t"] + 2, "two seconds of samples"
        )

    query = f"?stream={last['stream']}&since={last['seq']}"
    with watched.view(query) as view:
        missed = view.next("history")
    with watched.view(f"?stream=ffffffff&since={last['seq']}") as view:
        everything = view.next("history")

    assert history["since"] is None
    assert missed["since"] == last["seq"]
    assert everything["since"] is None
    fine = missed["parts"][0]
    assert fine["interval_seconds"] == 1
    assert fine["t0"] == int(last["t"])
    assert 2 <= fine["count"] < everything["parts"][0]["count"]
    values = base64.b64decode(fine["gpus"]["GPU-0"]["power_percent"])
    assert set(values) - {GAP} == {50}
    assert len(values) == fine["count"]
    host = base64.b64decode(fine["host"]["memory_used_percent"])
    assert set(host) - {GAP} == {25}


@pytest.mark.parametrize("since", ["-1", "x", "٣", "9" * 5000, ""])
def test_a_since_that_makes_no_sense_gets_everything(watched: Jupyter, since: str):
    with watched.view() as view:
        stream = view.next("status")["stream"]

    query = f"?stream={stream}&since={quote(since)}"
    with watched.view(query) as view:
        assert view.next("history")["parts"][0]["count"] > 0


def test_watching_is_no_activity(watched: Jupyter):
    def last_activity() -> str:
        answer = watched.request("api/status?no_track_activity=1")
        return answer.body["last_activity"]

    before = last_activity()
    with watched.view() as view:
        view.send('{"type":"interval","interval_seconds":1}')
        view.next("sample")
        for path in ("status", "runs", "notebooks"):
            assert watched.request(f"nbkit/api/{path}").status == 200
    assert watched.request("nbkit/api/runs/nothing").status == 404

    assert last_activity() == before
    watched.request("api/contents")
    assert last_activity() > before  # so that it could have been seen


def test_no_token_gets_into_the_log(watched: Jupyter):
    url = f"nbkit/api/runs/nothing?token={TOKEN}"
    assert watched.request(url, token=None).status == 404
    bad = f"nbkit/api/runs?limit=x&token={TOKEN}"
    assert watched.request(bad, token=None).status == 400
    with watched.view(f"?token={TOKEN}", token=None) as view:
        view.send("?")
        view.settle()
    assert watched.request("nbkit/api/stream", token=TOKEN).status == 400

    assert "nbkit/api/runs/nothing" in watched.log
    assert TOKEN not in watched.log
