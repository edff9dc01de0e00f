"""Whether a kernel hears what pages send to widgets while it runs a cell.

A page sends to a widget through a subshell, which the kernel serves beside its cells.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import anywidget
import comm
from comm.base_comm import BaseComm


def heard_while_busy(widget: anywidget.AnyWidget) -> None:
    """Let what pages send to a widget reach the subshell that they name.

    From 7.4 on, ipykernel asks the comm that it finds by its id which shell the message
    is for, and its own comms name the shell that spoke last over them. That is the main
    shell where a cell opened the comm, or a thread speaks; and the main shell hears
    nothing while a cell runs. So it finds one that does not answer.
    """
    _main_loop.note()
    if widget.comm is not None:
        comm.get_comm_manager().register_comm(_Ear(widget.comm))


class _Ear(BaseComm):
    """Takes the messages for another comm, which sends and closes as ever."""

    def __init__(self, other: BaseComm) -> None:
        # Listed like the other one: a page that is loaded again asks by its target.
        super().__init__(
            target_name=other.target_name,
            target_module=other.target_module,
            comm_id=other.comm_id,
            primary=False,
        )
        self._other = other

    def publish_msg(self, *_: Any, **__: Any) -> None:
        """Send nothing."""

    def handle_msg(self, msg: dict[str, Any]) -> None:
        self._other.handle_msg(msg)

    def handle_close(self, msg: dict[str, Any]) -> None:
        # A page has closed the other one, not this.
        manager: Any = comm.get_comm_manager()
        manager.register_comm(self._other)
        manager.comm_close(None, "", msg)


class _MainLoop:
    """The event loop of the main thread, which nobody tells to another thread."""

    def __init__(self) -> None:
        self.found: asyncio.AbstractEventLoop | None = None

    def note(self) -> None:
        """Note the loop if this is the main thread, and one runs."""
        if threading.current_thread() is threading.main_thread():
            with suppress(RuntimeError):
                self.found = asyncio.get_running_loop()


_main_loop = _MainLoop()


class Hearing:
    """Whether the kernel takes messages of pages, or is busy with a cell.

    Its main loop is asked to call back. While a cell runs it does not, and messages
    may wait until the cell has ended.
    """

    def __init__(self) -> None:
        self._called_back = threading.Event()
        self._called_back.set()
        _main_loop.note()

    def is_possible(self) -> bool:
        """Return whether the loop has turned since the last call, and ask it again.

        Where no loop is known nothing is: a page that may be there is not given up.
        """
        loop = _main_loop.found
        if loop is None or not self._called_back.is_set():
            return False
        self._called_back.clear()
        try:
            loop.call_soon_threadsafe(self._called_back.set)
        except RuntimeError:  # it is closed: the kernel ends
            return False
        return True
