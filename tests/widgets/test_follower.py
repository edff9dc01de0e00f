"""Who looks at a run is told all of it once, then each change, and no more."""

from __future__ import annotations

import queue
import threading

import pytest

from nbkit.live.follower import Follower
from nbkit.live.run import LiveRun
from tests.waiting import wait_until
from tests.widgets.stored_run import WrittenRun, step


class Page:
    """A display of the run, which puts together what it is told as a page does."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.number: int | None = None
        self.losses: list[list[float]] = []
        self.lines: list[str] = []
        self.open_line = ""
        self.state = ""
        self.failure = ""

    def question(self, kind: str, **values: object) -> dict[str, object]:
        log = {"rank": 0, "stream": "stderr", "text": ""}
        return {"kind": kind, "view": self.name, **log, **values}

    def take(self, message: dict) -> None:
        if message.get("to", self.name) != self.name:
            return
        kind, values = message["kind"], message.get("values", {})
        if kind == "all":
            self.number = message["number"]
            self.losses = values["series"].get("loss", [])
        elif kind == "change":
            if self.number is None or message["number"] <= self.number:
                return
            assert message["number"] == self.number + 1
            self.number = message["number"]
            if change := values.get("series", {}).get("loss"):
                self.losses[change["from"] :] = change["points"]
        elif kind == "log":
            self.lines, self.open_line = message["lines"], message["open_line"]
        elif kind == "more_log":
            self.lines = [*self.lines, *message["lines"]]
            self.open_line = message["open_line"]
        elif kind == "failed":
            self.failure = message["message"]
        self.state = values.get("head", {}).get("state", self.state)

    @property
    def log(self) -> list[str]:
        return [*self.lines, self.open_line] if self.open_line else self.lines

    @property
    def steps(self) -> list[float]:
        return [point[0] for point in self.losses]


@pytest.fixture
def followed(tmp_path):
    """Return a run, its follower, and its pages by name."""
    written = WrittenRun(tmp_path)
    pages: dict[str, Page] = {}
    told: queue.SimpleQueue[dict] = queue.SimpleQueue()

    def send(message: dict) -> None:
        told.put(message)
        for page in list(pages.values()):
            page.take(message)

    follower = Follower(LiveRun(written.run), send)
    yield written, follower, pages
    follower.close()
    wait_until(lambda: not thread_of(written), "the end of the thread")


def thread_of(written):
    name = f"nbkit view of {written.run.run_id}"
    return [thread for thread in threading.enumerate() if thread.name == name]


def look(follower, pages, name):
    page = pages[name] = Page(name)
    follower.handle(page.question("open"))
    return page


def test_displays_that_open_at_any_time_show_every_step_once(followed):
    written, follower, pages = followed
    for number in range(1, 6):
        written.append(step(number))
    first = look(follower, pages, "first")
    wait_until(lambda: first.steps == [1, 2, 3, 4, 5], "what was there before")
    written.append(step(6), step(7))
    wait_until(lambda: first.steps[-1:] == [7], "more steps")

    second = look(follower, pages, "second")
    written.append(step(8))
    wait_until(lambda: first.steps == second.steps == list(range(1, 9)), "both")

    # Another attempt goes on from step 4: what it repeats counts once.
    written.submit(1)
    written.append(*(step(number, 1, loss=9.0) for number in range(5, 10)))
    wait_until(lambda: first.steps == second.steps == list(range(1, 10)), "again")
    assert [point[3] for point in second.losses[4:]] == [9.0] * 5


def test_the_thread_ends_with_the_run_and_with_the_last_display(followed):
    written, follower, pages = followed
    written.append(step(1))
    page = look(follower, pages, "a")
    wait_until(lambda: page.state == "running", "the display")
    assert len(thread_of(written)) == 1

    follower.handle(page.question("close"))
    wait_until(lambda: not thread_of(written), "the end of the thread")
    written.append(step(2))

    page = look(follower, pages, "b")
    wait_until(lambda: page.steps == [1, 2], "what came meanwhile")
    written.append(step(3))
    written.record("finished")
    wait_until(lambda: page.state == "finished", "the run's end")
    wait_until(lambda: not thread_of(written), "the end of the thread")
    assert page.steps == [1, 2, 3]

    # Somebody resumes it, and the display says now and then that it is there.
    written.submit(1)
    written.append(step(4, 1))
    follower.handle(page.question("here"))
    wait_until(lambda: page.steps == [1, 2, 3, 4], "the next attempt")
    assert page.state == "running"


def test_a_silent_page_is_gone_only_when_the_kernel_could_have_heard_it(tmp_path):
    written = WrittenRun(tmp_path)
    asked: list[bool] = []
    busy = threading.Event()
    busy.set()

    def could_hear() -> bool:
        asked.append(not busy.is_set())
        return asked[-1]

    live = LiveRun(written.run)
    follower = Follower(live, lambda _: None, could_hear, gone_after_seconds=1.0)
    look(follower, {}, "a")
    wait_until(lambda: len(asked) > 4, "more than a second of silence")
    assert thread_of(written)

    busy.clear()
    wait_until(lambda: not thread_of(written), "the end of the thread")


def test_each_display_reads_the_log_that_it_chose(followed):
    written, follower, pages = followed
    written.print("zero\n", rank=0)
    written.print("one error\nfine\n", rank=1)
    page, other = (look(follower, pages, name) for name in ("a", "b"))
    wait_until(lambda: page.log == other.log == ["zero"], "the log of rank 0")

    follower.handle(other.question("log", rank=1, text="ERROR"))
    wait_until(lambda: other.log == ["one error"], "the log of rank 1")
    written.print("more\n", rank=0)
    written.print("ok\nanother error\n", rank=1)

    wait_until(lambda: other.log == ["one error", "another error"], "what is added")
    wait_until(lambda: page.log == ["zero", "more"], "what is added")
    written.print("10 %\r", rank=0)
    wait_until(lambda: page.log == ["zero", "more", "10 %"], "a line so far")
    written.print("20 %\r", rank=0)
    wait_until(lambda: page.log == ["zero", "more", "20 %"], "what it is now")
    written.print("30 %", rank=0)
    written.record("finished")
    wait_until(lambda: page.log == ["zero", "more", "30 %"], "the last line")


def test_a_run_that_is_removed_is_said_to_be_gone(followed):
    written, follower, pages = followed
    page = look(follower, pages, "a")
    wait_until(lambda: page.state, "the display")

    for path in sorted(written.run.paths.root.rglob("*"), reverse=True):
        path.unlink()
    written.run.paths.root.rmdir()

    wait_until(lambda: "was removed" in page.failure, "why it ends")


def test_what_was_announced_is_not_told_again_to_who_has_asked(tmp_path):
    written = WrittenRun(tmp_path)
    told: list[dict] = []
    follower = Follower(LiveRun(written.run), told.append)
    follower.announce()
    look(follower, {}, "a")
    wait_until(
        lambda: any(one["kind"] == "log" and one.get("to") for one in told), "a turn"
    )
    written.append(step(1))
    wait_until(lambda: told[-1]["kind"] == "change" and told[-1]["values"], "a step")

    # It was heard before the first turn, or between that and the second.
    to = [one.get("to") for one in told if one["kind"] == "all"]
    assert to in (["a"], [None, "a"])
    follower.close()
    wait_until(lambda: not thread_of(written), "the end of the thread")


def test_announced_view_is_sent_again_until_a_page_asks(tmp_path, monkeypatch):
    # A slow page renders it after the first turns, and cannot ask while a cell runs.
    monkeypatch.setattr("nbkit.live.follower.TICK_SECONDS", 0.001)
    sent: list[dict] = []
    follower = Follower(LiveRun(WrittenRun(tmp_path).run), sent.append)
    follower.announce()

    wait_until(lambda: count_of("all", sent) > 8, "a later turn")
    look(follower, {}, "a")
    wait_until(lambda: sent[-1].get("to") == "a", "the answer")
    unnamed = [message for message in sent if message.get("to") != "a"]
    assert count_of("all", sent) == count_of("all", unnamed) + 1
    follower.close()


def count_of(kind: str, messages: list[dict]) -> int:
    return sum(message["kind"] == kind for message in messages)


def test_a_view_that_could_not_go_on_begins_anew_when_it_is_looked_at(
    followed, monkeypatch
):
    written, follower, pages = followed
    written.append(step(1))
    with monkeypatch.context() as broken:
        broken.setattr(LiveRun, "take_changes", lambda _: 1 / 0)
        page = look(follower, pages, "a")
        wait_until(lambda: "ZeroDivisionError" in page.failure, "why it ends")
        wait_until(lambda: not thread_of(written), "the end of the thread")

    follower.handle(page.question("here"))
    wait_until(lambda: page.steps == [1], "the display")
