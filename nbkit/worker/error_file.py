"""Record of the exception that ended a rank."""

from __future__ import annotations

import contextlib
import json
import os
import time
import traceback
from pathlib import Path

from nbkit.store.redaction import redacted

_MOST_MESSAGE_CHARACTERS = 4_096
_MOST_TRACEBACK_CHARACTERS = 16_384
_PACKAGE = f"{Path(__file__).parents[1]}/"


def write_error_file(error: BaseException, *, is_users: bool = False) -> None:
    """Write an exception into the error file that torchelastic asks for, if it does.

    Of the user's code (``is_users``) it has the frames from the user's first one on.
    """
    # An exception may say with which address or password something was tried, and its
    # text may be as long as the data it is about.
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not file:
        return
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - it is the user's class
        text = "(no message: str() of it failed)"
    shown = error.__traceback__
    while is_users and shown and shown.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        shown = shown.tb_next
    # One that nbkit itself raises keeps all frames.
    shown = shown or error.__traceback__
    trace = "".join(traceback.format_exception(type(error), error, shown))
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    message = _shorten(f"{type(error).__name__}: {text}", _MOST_MESSAGE_CHARACTERS)
    report = {
        "message": redacted(message),
        "extraInfo": {
            "py_callstack": redacted(_shorten(trace, _MOST_TRACEBACK_CHARACTERS)),
            "timestamp": str(int(time.time())),
            # No message has to be read to know what it is, and where it was raised.
            "classes": [kind.__name__ for kind in type(error).__mro__],
            "module": frames[-1].f_globals.get("__name__") if frames else None,
        },
    }
    # On a full disk the supervisor says so, and the log has the exception.
    with contextlib.suppress(OSError):
        Path(file).write_text(json.dumps({"message": report}))


def _shorten(text: str, limit: int) -> str:
    """Return a text without its middle, if it is too long."""
    left_out = len(text) - limit
    if left_out <= 0:
        return text
    tail = limit // 4
    head = limit - tail
    words = f"\n... {left_out:,} of {len(text):,} characters left out ...\n"
    return text[:head] + words + text[-tail:]
