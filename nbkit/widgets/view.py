"""`RunView`: a run as it goes on, in a notebook.

What is shown is read from the run's files by a thread of the kernel (`Follower`) and
sent to the page in small messages; the page draws it (``static/view*.js``). The run
itself needs neither: it goes on when the kernel or the page ends.
"""

from __future__ import annotations

import json
import sys
import threading
from importlib import resources
from typing import Any

import anywidget
import traitlets

from nbkit.analysis.live.rows import IMAGES_PER_SECOND
from nbkit.analysis.live.run import LiveRun
from nbkit.analysis.live.running_time import RUNNING_TIME
from nbkit.errors import NbkitError
from nbkit.launch.run import Run
from nbkit.widgets.follower import Follower

__all__ = ["WORDS", "RunView", "heard_while_busy", "static_text"]

WORDS = "".join(
    f"const {name} = {json.dumps(words)};\n"
    for name, words in (
        ("RUNNING_TIME", RUNNING_TIME),
        ("IMAGES_PER_SECOND", IMAGES_PER_SECOND),
    )
)
"""What numbers mean, for the widgets' browser part."""


def static_text(*names: str) -> str:
    """Return files of the widgets' browser part, one behind the other.

    A widget's JavaScript is one module: its parts cannot import each other.
    """
    folder = resources.files("nbkit.widgets") / "static"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


class RunView(anywidget.AnyWidget):
    """The live view of a run: state, progress, curves, its GPUs, logs, buttons.

    Parameters
    ----------
    run
        Any run of the store; `nbkit.attach` opens one by its id.
    """

    _esm = WORDS + static_text(
        "page.js",
        "view_charts.js",
        "view_log.js",
        "view_parts.js",
        "view_curves.js",
        "view_feed.js",
        "view.js",
    )
    _css = static_text("view.css")

    run_id = traitlets.Unicode().tag(sync=True)
    """Of the run that is shown."""

    def __repr__(self) -> str:
        return f"<live view of run {self.run_id}: shown while its kernel runs>"

    def __init__(self, run: Run) -> None:
        # First: of a run that cannot be read, no page is told.
        live = LiveRun(run)
        super().__init__(run_id=run.run_id)
        self._run = run
        hearing = _Hearing()
        self._follower = Follower(live, self._send_if_open, hearing.is_possible)
        self.on_msg(self._on_message)
        heard_while_busy(self)

    @property
    def is_open(self) -> bool:
        """Whether it can be shown; a closed one is never shown again."""
        return self.comm is not None

    def announce(self) -> None:
        """Tell pages that are about to show the view what there is."""
        self._follower.announce()

    def look(self) -> None:
        """Look at the run at once, if somebody looks at the view: it goes on again."""
        self._follower.hear({"kind": "look", "view": ""})

    def close(self) -> None:
        """End the view everywhere it is shown; the run goes on."""
        if "_follower" in vars(self):  # it was opened at all
            self._follower.close()
        super().close()

    def _send_if_open(self, message: dict[str, Any]) -> None:
        if self.is_open:
            self.send(message)
            heard_while_busy(self)
        else:
            self._follower.close()

    def _on_message(self, _: Any, message: dict[str, Any], __: Any) -> None:
        """Take a page's message: on the main thread, or while that is busy beside it.

        A page first asks whether it is heard (``ask``), and only then for a deed: one
        that waits behind a cell for an hour would be done when nobody expects it.
        """
        if message["kind"] == "ask":
            self._answer(message, "heard")
        elif message["kind"] == "do":
            self._do(message)
        else:
            self._follower.hear(message)

    def _do(self, message: dict[str, Any]) -> None:
        try:
            if message["action"] == "stop":
                self._run.stop(wait=False)
            elif message["action"] == "resume":
                self._run.resume()
        except (NbkitError, OSError) as error:
            self._answer(message, "refused", why=str(error))
            return
        except Exception as error:
            self._answer(message, "refused", why=f"{type(error).__name__}: {error}")
            raise
        self._answer(message, "done")
        # Ended runs are not followed; this one may be under way again.
        self.look()

    def _answer(self, message: dict[str, Any], kind: str, **values: Any) -> None:
        # Not "id": ipykernel takes that for a message's, and keeps it for ever.
        address = {"to": message["view"], "request": message["request"]}
        self._send_if_open({"kind": kind, **address, **values})


def heard_while_busy(widget: anywidget.AnyWidget) -> None:
    """Let what pages send to a widget reach the subshell that they name.

    From 7.4 on, ipykernel notes which shell spoke last over a comm and leads all
    answers there. That is the main shell where a cell opened the comm, or a thread
    speaks; and the main shell hears nothing while a cell runs. Called whenever
    something was sent.
    """
    if widget.comm is not None:
        vars(widget.comm).pop("_reply_subshell_id", None)


class _Hearing:
    """Whether the kernel takes messages of pages, or is busy with a cell.

    Its main loop is asked to call back. While a cell runs it does not, and messages
    may wait until the cell has ended.
    """

    def __init__(self) -> None:
        self._called_back = threading.Event()
        self._called_back.set()

    def is_possible(self) -> bool:
        """Return whether the loop has turned since the last call, and ask it again."""
        # Not imported: where no IPython runs, there is none to ask.
        module = sys.modules.get("IPython.core.getipython")
        shell = module.get_ipython() if module else None
        loop = getattr(getattr(shell, "kernel", None), "io_loop", None)
        if loop is None:
            return True
        if not self._called_back.is_set():
            return False
        self._called_back.clear()
        loop.add_callback(self._called_back.set)
        return True
