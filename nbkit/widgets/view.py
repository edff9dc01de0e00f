"""`RunView`: the live view of a run in a notebook.

What is shown is read from the run's files by a thread of the kernel (`Follower`) and
sent to the page in small messages; the page draws it (``nbkit/live/static``). In a Lab
whose server knows the run, the server does so (`nbkit.server.run_view`), and the kernel
is idle. The run itself needs neither: it continues when the kernel or the page ends.
"""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from nbkit.errors import NbkitError
from nbkit.launch.run import Run
from nbkit.live.browser_part import view_module, view_style
from nbkit.live.follower import Follower
from nbkit.live.run import LiveRun
from nbkit.widgets.frontend import kernel_is_idle


class RunView(anywidget.AnyWidget):
    """The live view of a run: state, progress, curves, its GPUs, logs, buttons."""

    _esm = view_module()
    _css = view_style()

    run_id = traitlets.Unicode().tag(sync=True)
    """Of the run that is shown."""

    def __repr__(self) -> str:
        return f"<live view of run {self.run_id}: shown while its kernel runs>"

    def __init__(self, run: Run) -> None:
        # First: a run that cannot be read must raise before a page exists.
        live = LiveRun(run)
        super().__init__(run_id=run.run_id)
        self._run = run
        self._follower = Follower(live, self._send_if_open, kernel_is_idle.is_set)
        self.on_msg(self._on_message)

    @property
    def is_open(self) -> bool:
        """Whether it can be shown; a closed one is never shown again."""
        return self.comm is not None

    def announce(self) -> None:
        """Send everything to pages that are about to show the view."""
        self._follower.announce()

    def look(self) -> None:
        """Read the run immediately if the view is shown: it runs again."""
        self._follower.handle({"kind": "look", "view": ""})

    def close(self) -> None:
        """Close the view everywhere it is shown; the run continues."""
        if "_follower" in vars(self):  # it was opened at all
            self._follower.close()
        super().close()

    def _send_if_open(self, message: dict[str, Any]) -> None:
        if self.is_open:
            self.send(message)
        else:
            self._follower.close()

    def _on_message(self, _: Any, message: dict[str, Any], __: Any) -> None:
        """Take a page's message: on the main thread, or while that is busy beside it.

        A page first asks whether the kernel responds (``ask``), and only then for an
        action: it must not happen an hour later, after the cell has ended.
        """
        if message["kind"] == "ask":
            self._answer(message, "heard")
        elif message["kind"] == "do":
            self._execute(message)
        else:
            self._follower.handle(message)

    def _execute(self, message: dict[str, Any]) -> None:
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
