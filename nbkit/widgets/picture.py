"""The picture of a run: what a saved notebook still shows of it.

It needs no kernel, no JavaScript and no style sheet. One thread looks at all runs that
were shown under way, and replaces each one's picture when it has ended.
"""

from __future__ import annotations

import html
import threading
import time
import traceback
from dataclasses import fields
from typing import Any

from IPython.display import DisplayHandle, display

from nbkit.analysis.live.run import LiveRun
from nbkit.errors import StoreError
from nbkit.launch.run import Run
from nbkit.store.record import utc_now
from nbkit.store.summary import RunSummary
from nbkit.study.wording import UNKNOWN, percent, rate, size

__all__ = ["picture", "show_picture", "summary_html"]

_POLL_SECONDS = 0.5
_FIRST_SECONDS = 0.5
"""A cell that shows a run of a million steps does not wait until all are read."""
_WIDTH, _HEIGHT, _LEFT = 300, 90, 56
_TITLES = {
    "loss": "Loss",
    "images_per_second": "Images/s",
    "gpu_utilization_percent": "GPU utilization (%)",
    "memory_used_gibibytes": "GPU memory (GiB)",
    "power_watts": "GPU power (W)",
}

Bundle = dict[str, Any]


def show_picture(run: Run) -> None:
    """Show a run's picture, and another in its place when the run has ended."""
    live = LiveRun(run)
    is_over = live.read(_FIRST_SECONDS)
    handle = display(picture(live), raw=True, display_id=True)
    if not is_over and handle is not None:
        _unfinished.add(live, handle)


def picture(live: LiveRun) -> Bundle:
    """Return a run as it is now, as HTML and as text.

    Parameters
    ----------
    live
        The run, after a `LiveRun.read`.
    """
    shown = live.snapshot()
    head, facts = shown["head"], _facts(shown)
    name, run_id = head["name"], head["run_id"]
    place = f"{name} ({run_id})" if name else run_id
    words = _state_words(head)
    text = "\n".join(
        [
            f"{place}: {words}",
            *(f"  {name}: {value}" for name, value in facts),
            *_cause_lines(head),
        ]
    )
    return {"text/html": _html(shown, place, words, facts), "text/plain": text}


def summary_html(summary: RunSummary) -> str:
    """Return a run in numbers, each by the name that code has for it."""
    return _table(
        [
            (item.name, _shown(item.name, getattr(summary, item.name)))
            for item in fields(summary)
        ]
    )


def _shown(name: str, value: Any) -> str:
    if value is None:
        return UNKNOWN
    if name.endswith("_bytes"):
        return size(value)
    if name.endswith("_share"):
        return percent(value)
    return _figures(value) if isinstance(value, float) else str(value)


class _Unfinished:
    """Pictures of runs under way, and the thread that replaces them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pictures: list[tuple[LiveRun, DisplayHandle]] = []
        self._thread: threading.Thread | None = None

    def add(self, live: LiveRun, handle: DisplayHandle) -> None:
        with self._lock:
            self._pictures.append((live, handle))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._watch, name="nbkit pictures", daemon=True
                )
                self._thread.start()

    def _watch(self) -> None:
        while True:
            time.sleep(_POLL_SECONDS)
            with self._lock:
                pictures = list(self._pictures)
            for pair in pictures:
                if _is_replaced(*pair):
                    with self._lock:
                        self._pictures.remove(pair)
            with self._lock:
                if not self._pictures:
                    self._thread = None
                    return


_unfinished = _Unfinished()


def _is_replaced(live: LiveRun, handle: DisplayHandle) -> bool:
    """Replace a picture if its run has ended; return whether it is done with."""
    try:
        if not live.run.state.is_final or not live.read(_FIRST_SECONDS):
            return False
        handle.update(picture(live), raw=True)
    except StoreError as error:
        handle.update({"text/plain": str(error)}, raw=True)
    except Exception:  # noqa: BLE001 - the other pictures go on
        handle.update({"text/plain": traceback.format_exc(limit=-3)}, raw=True)
    return True


def _state_words(head: Bundle) -> str:
    state = head["state"]
    if head["queue"]:
        queue = head["queue"]
        where = f"place {queue['position']} of {queue['length']}"
        state = f"queued, {where}: {queue['reason']}"
    if head["attempt"]:
        state += f", attempt {head['attempt'] + 1}"
    if not head["is_final"]:
        # A picture does not move: it says of when it is.
        state += f" at {utc_now()[:19].replace('T', ' ')} UTC"
    return state


def _facts(shown: Bundle) -> list[tuple[str, str]]:
    head, numbers = shown["head"], shown["numbers"]
    measured = numbers["measured"]
    of = "" if numbers["total_steps"] is None else f" of {numbers['total_steps']:,}"
    step = UNKNOWN if numbers["step"] is None else f"{numbers['step']:,}{of}"
    facts = [("Steps", step)]
    # A function logs what it likes.
    is_training = head["task"] == "train"
    if measured and measured["n"]:
        quartiles = f"{rate(measured['q25'])} to {rate(measured['q75'])}"
        words = f"{rate(measured['median'])} ({quartiles}, n = {measured['n']:,})"
        facts.append(("Images/s, median and quartiles", words))
    elif is_training or numbers["images_per_second"] is not None:
        facts.append(("Images/s", rate(numbers["images_per_second"])))
    if is_training or numbers["loss"] is not None:
        facts.append(("Loss", _figures(numbers["loss"])))
    if numbers["accuracy_name"]:
        name = numbers["accuracy_name"].replace("_", " ").capitalize()
        facts.append((name, percent(numbers["accuracy"])))
    if is_training:
        facts.append(("Data wait", percent(numbers["data_wait_share"])))
    known = {"loss", "images_per_second"}
    logged = numbers["logged"].items()
    facts += [(name, _figures(value)) for name, value in logged if name not in known]
    if head["started_at"] and head["ended_at"]:
        facts.append(("Duration", f"{head['ended_at'] - head['started_at']:,.1f} s"))
    ranks = head["num_ranks"]
    words = ("CPU process", "es") if head["device_type"] == "cpu" else ("rank", "s")
    facts.append(("On", f"{ranks} {words[0]}{words[1] if ranks > 1 else ''}"))
    return facts


def _cause_lines(head: Bundle) -> list[str]:
    cause = head["cause"]
    if not cause:
        return []
    where = "" if cause["rank"] is None else f" on rank {cause['rank']}"
    message = cause["message"]
    # "stopped: stopped by user" says it twice.
    if not message.startswith(head["state"]):
        message = f"{head['state']}{where}: {message}"
    lines = [message]
    if cause["traceback"]:
        lines += ["", cause["traceback"].rstrip(), ""]
    return [*lines, f"log: {cause['log'] or head['log']}"]


def _html(shown: Bundle, place: str, words: str, facts: list[tuple[str, str]]) -> str:
    head = shown["head"]
    charts = "".join(
        _chart(_TITLES.get(name) or str(name), points)
        for name, points in shown["series"].items()
    )
    cause = html.escape("\n".join(_cause_lines(head)))
    if cause:
        cause = f'<pre style="white-space:pre-wrap">{cause}</pre>'
    return (
        '<div class="nbkit-picture">'
        f"<p><strong>{html.escape(place)}</strong>: {html.escape(words)}</p>"
        f"{_table(facts)}{cause}<div>{charts}</div></div>"
    )


def _table(facts: list[tuple[str, str]]) -> str:
    rows = "".join(
        f'<tr><th scope="row" style="text-align:left;font-weight:normal">'
        f'{html.escape(name)}</th><td style="text-align:left">'
        f"{html.escape(value)}</td></tr>"
        for name, value in facts
    )
    return f"<table>{rows}</table>"


def _chart(title: str, points: list[list[Any]]) -> str:
    """Return a line over steps as an inline picture."""
    known = [point for point in points if point[3] is not None]
    if len(known) < 2:
        return ""
    low = min(point[1] for point in known)
    high = max(point[2] for point in known)
    first, last = known[0][0], known[-1][0]
    across = (_WIDTH - _LEFT - 4) / ((last - first) or 1)
    up = (_HEIGHT - 16) / ((high - low) or 1)

    def place(x: float, y: float) -> str:
        return f"{_LEFT + (x - first) * across:.1f},{8 + (high - y) * up:.1f}"

    line = " ".join(place(point[0], point[3]) for point in known)
    band = ""
    if any(point[1] != point[2] for point in known):
        upper = [place(point[0], point[2]) for point in known]
        lower = [place(point[0], point[1]) for point in reversed(known)]
        corners = " ".join([*upper, *lower])
        band = f'<polygon points="{corners}" fill="#0072b2" opacity="0.3"/>'
    label = f"{title}: {_figures(low)} to {_figures(high)}"
    style = 'fill="currentColor" font-size="9" text-anchor="end"'
    return (
        f'<figure style="display:inline-block;margin:4px 12px 4px 0">'
        f"<figcaption>{html.escape(title)}: {_figures(known[-1][3])}</figcaption>"
        f'<svg role="img" aria-label="{html.escape(label)}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}">{band}'
        f'<polyline points="{line}" fill="none" stroke="#0072b2" '
        'stroke-width="1.5"/>'
        f'<text x="{_LEFT - 4}" y="12" {style}>{high:,.3g}</text>'
        f'<text x="{_LEFT - 4}" y="{_HEIGHT - 5}" {style}>{low:,.3g}</text>'
        "</svg></figure>"
    )


def _figures(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.4g}"
