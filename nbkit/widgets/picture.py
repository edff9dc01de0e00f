"""The static picture of a run, for saved notebooks.

It needs no kernel, no JavaScript and no style sheet, and no trust: JupyterLab removes
``<svg>`` and ``<style>`` from the outputs of others, and leaves the text within.
"""

from __future__ import annotations

import base64
import html
from dataclasses import fields
from typing import Any

from nbkit.live.run import LiveRun
from nbkit.plural import plural
from nbkit.statistics.quantities import UNKNOWN, elapsed, energy, figures, percent, size
from nbkit.store.progress import WITH_STEPS, queue_words
from nbkit.store.record import utc_now
from nbkit.store.summary import RunSummary
from nbkit.visible import visible

NO_LOST_WIDGET = (
    "<style>.jp-OutputArea-child:has(> .lm-Panel.jp-OutputArea-output)"
    ":not(:has(> .jp-OutputArea-output > *))"
    ":has(+ .jp-OutputArea-child :is(.nbkit-picture, .nbkf-saved))"
    "{display:none}</style>"
)
"""HTML before what a saved notebook shows in a widget's place.

JupyterLab says "Loading widget..." in the output before, while the kernel is busy, or
"Error displaying widget". That panel has an element in it only with the widget.
"""
_WIDTH, _HEIGHT, _LEFT = 300, 90, 56
_CHARACTER_WIDTH = 5.5
"""Of a digit, at most, in a label of a chart."""
TITLES = {
    "loss": "Loss",
    "images_per_second": "Images/s",
    "device:gpu_utilization_percent": "GPU utilization (%)",
    "device:memory_used_gibibytes": "GPU memory (GiB)",
    "device:power_watts": "GPU power (W)",
    "top1_accuracy": "Top-1 accuracy",
    "mean_auroc": "Mean AUROC",
    "bus_bandwidth_gigabytes_per_second": "Bus bandwidth (GB/s)",
    "message_bytes": "Message (bytes)",
    "batch_size": "Batch size",
    "latency_milliseconds": "Latency (ms, median)",
    "served_images_per_second": "Images/s by batch size",
}
"""As in the live view (``nbkit/live/static/view_parts.js``)."""
_OVER_BATCH_SIZE = {"latency_milliseconds", "served_images_per_second"}

Bundle = dict[str, Any]


def picture(live: LiveRun) -> Bundle:
    """Return a run as it is now, as HTML and as text."""
    shown = live.snapshot()
    head, facts = shown["head"], _facts(shown)
    name, run_id = head["name"], head["run_id"]
    place = f"{name} ({run_id})" if name else run_id
    words = _state_words(shown)
    text = "\n".join(
        [
            f"{place}: {words}",
            *(f"  {name}: {value}" for name, value in facts),
            *_cause_lines(head),
        ]
    )
    return {
        "text/html": _html(shown, place, words, facts),
        "text/plain": visible(text, lines=True),
    }


def summary_html(summary: RunSummary) -> str:
    """Return a run in numbers, each by the name that code has for it."""
    return _table(
        [
            (item.name, _text(item.name, getattr(summary, item.name)))
            for item in fields(summary)
        ]
    )


def _text(name: str, value: Any) -> str:
    if value is None or value == {}:
        return UNKNOWN
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(key, item)}" for key, item in value.items())
    if name.endswith("_bytes"):
        return size(value)
    if name.endswith("_joules"):
        return energy(value)
    if name.endswith("_share"):
        return percent(value)
    return figures(value) if isinstance(value, float) else str(value)


def _state_words(shown: Bundle) -> str:
    head = shown["head"]
    state = head["state"]
    if head["queue"]:
        state = f"queued, {queue_words(head['queue'])}"
    if head["attempt"]:
        state += f", attempt {head['attempt'] + 1}"
    if not head["is_final"]:
        # A static picture names its time.
        state += f" at {utc_now()[:19].replace('T', ' ')} UTC"
    if head["nonfinite"]:
        state += f"; {head['nonfinite']}"
    if head["imported_from"]:
        state += f"; imported from {head['imported_from']}"
    if not shown["numbers"]["is_complete"]:
        step = shown["numbers"]["read_step"]
        where = "" if step is None else f" (read up to step {step:,})"
        state += f"; its steps are still being read{where}"
    return state


def _facts(shown: Bundle) -> list[tuple[str, str]]:
    head, numbers = shown["head"], shown["numbers"]
    measured = numbers["measured"]
    of = "" if numbers["total_steps"] is None else f" of {numbers['total_steps']:,}"
    if numbers["ended_by"] in ("time", "target_accuracy"):
        of += f" (ended by {numbers['ended_by'].replace('_', ' ')})"
    step = UNKNOWN if numbers["step"] is None else f"{numbers['step']:,}{of}"
    facts = [("Steps", step)]
    # A function logs what it likes.
    is_training = head["task"] == "train"
    has_steps = head["task"] in WITH_STEPS
    if measured and measured["n"]:
        quartiles = f"{figures(measured['q25'])} to {figures(measured['q75'])}"
        words = f"{figures(measured['images_per_second'])} (n={measured['n']:,})"
        facts.append(("Images/s", words))
        words = f"{figures(measured['median'])} ({quartiles})"
        facts.append(("Images/s per step, median and quartiles", words))
        if measured["bursts"]:
            facts.append(("Note", measured["bursts"]))
    elif has_steps or numbers["images_per_second"] is not None:
        steps = numbers["rate_steps"]
        of = f" over the last {plural(steps, 'step')}" if steps else ""
        facts.append((f"Images/s{of}", figures(numbers["images_per_second"])))
    if is_training or numbers["loss"] is not None:
        facts.append(("Loss", figures(numbers["loss"])))
    if numbers["updates_skipped"] is not None:
        facts.append(("Updates skipped (fp16)", f"{numbers['updates_skipped']:,}"))
    if numbers["accuracy_name"]:
        name = numbers["accuracy_name"].replace("_", " ").capitalize()
        facts.append((name, percent(numbers["accuracy"])))
    if has_steps:
        facts.append(("Data wait", percent(numbers["data_wait_share"])))
    if numbers["bottleneck"]:
        facts.append(("Bottleneck (estimated)", numbers["bottleneck"]))
    known = {"loss", "images_per_second"}
    logged = numbers["logged"].items()
    facts += [(name, figures(value)) for name, value in logged if name not in known]
    if head["is_final"] and head["ran_seconds"] is not None:
        count = head["num_attempts"]
        of = f" ({count} attempts)" if count > 1 else ""
        facts.append(("Duration", f"{elapsed(head['ran_seconds'])}{of}"))
    ranks = head["num_ranks"]
    words = ("CPU process", "es") if head["device_type"] == "cpu" else ("rank", "s")
    nodes = f" on {head['num_nodes']} nodes" if head["num_nodes"] > 1 else ""
    facts.append(("Ranks", f"{ranks} {words[0]}{words[1] if ranks > 1 else ''}{nodes}"))
    return facts


def _cause_lines(head: Bundle) -> list[str]:
    cause = head["cause"]
    if not cause:
        return []
    lines = [f"{cause['begin']}{cause['message']}"]
    if cause["traceback"]:
        lines += ["", cause["traceback"].rstrip(), ""]
    return [*lines, f"log: {cause['log'] or head['log']}"]


def _html(shown: Bundle, place: str, words: str, facts: list[tuple[str, str]]) -> str:
    head = shown["head"]
    charts = "".join(
        _chart(name, points, shown["numbers"])
        for name, points in shown["series"].items()
    )
    cause = html.escape("\n".join(_cause_lines(head)))
    if cause:
        cause = f'<pre style="white-space:pre-wrap">{cause}</pre>'
    return (
        f'{NO_LOST_WIDGET}<div class="nbkit-picture">'
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


def _chart(name: str, points: list[list[Any]], numbers: Bundle) -> str:
    """Return a line over steps, or over time, with its title."""
    known = [point for point in points if point[3] is not None]
    if len(known) < 2:
        return ""
    low = min(point[1] for point in known)
    high = max(point[2] for point in known)
    first, last = known[0][0], known[-1][0]
    bounds = figures(high), figures(low)
    left = max(_LEFT, 6 + _CHARACTER_WIDTH * max(map(len, bounds)))
    across = (_WIDTH - left - 4) / ((last - first) or 1)
    up = (_HEIGHT - 30) / ((high - low) or 1)

    def place(x: float, y: float) -> str:
        return f"{left + (x - first) * across:.1f},{8 + (high - y) * up:.1f}"

    line = " ".join(place(point[0], point[3]) for point in known)
    band = ""
    if any(point[1] != point[2] for point in known):
        upper = [place(point[0], point[2]) for point in known]
        lower = [place(point[0], point[1]) for point in reversed(known)]
        corners = " ".join([*upper, *lower])
        band = f'<polygon points="{corners}" fill="#0072b2" opacity="0.3"/>'
    title = TITLES.get(name) or str(name)
    label = f"{title}: {figures(low)} to {figures(high)}"
    newest = known[-1][3]
    if name == "images_per_second":
        # The rate of the run is not that of its last step.
        measured = numbers["measured"] or {}
        newest = measured.get("images_per_second") or numbers["images_per_second"]
    begin, end = _ends_of_axis(name, first, last)
    style = 'fill="#333" font-family="sans-serif" font-size="9" text-anchor='
    # Black on white, like other figures: an image does not know the page's theme.
    image = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}">'
        f'<rect width="100%" height="100%" fill="#fff"/>{band}'
        f'<polyline points="{line}" fill="none" stroke="#0072b2" '
        'stroke-width="1.5"/>'
        f'<line x1="{left}" x2="{_WIDTH - 4}" y1="{_HEIGHT - 18}" '
        f'y2="{_HEIGHT - 18}" stroke="#999"/>'
        f'<text x="{left - 4}" y="12" {style}"end">{bounds[0]}</text>'
        f'<text x="{left - 4}" y="{_HEIGHT - 19}" {style}"end">{bounds[1]}</text>'
        f'<text x="{left}" y="{_HEIGHT - 6}" {style}"start">{begin}</text>'
        f'<text x="{_WIDTH - 4}" y="{_HEIGHT - 6}" {style}"end">{end}</text></svg>'
    )
    data = base64.b64encode(image.encode()).decode()
    return (
        f'<figure style="display:inline-block;margin:4px 12px 4px 0">'
        f"<figcaption>{html.escape(title)}: {figures(newest)}</figcaption>"
        f'<img alt="{html.escape(label)}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'src="data:image/svg+xml;base64,{data}"></figure>'
    )


def _ends_of_axis(name: str, first: float, last: float) -> tuple[str, str]:
    """Return the labels below the first and the last point of a line."""
    if name.startswith("device:"):
        return "0 s", f"{last - first:,.0f} s"
    if name == "bus_bandwidth_gigabytes_per_second":
        return size(first), size(last)
    if name in _OVER_BATCH_SIZE:
        return f"batch {first:,}", f"batch {last:,}"
    return f"step {first:,}", f"step {last:,}"
