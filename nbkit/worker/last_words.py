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


def write_last_words(error: BaseException) -> None:
    """Write an exception into the error file that torchelastic asks for, if it does.

    An exception may say with which address or password something was tried, and its
    text may be as long as the data it is about.
    """
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not file:
        return
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - it is the user's class
        said = "(no message: str() of it failed)"
    trace = "".join(traceback.format_exception(error))
    message = _cut(f"{type(error).__name__}: {said}", _MOST_MESSAGE_CHARACTERS)
    told = {
        "message": redacted(message),
        "extraInfo": {
            "py_callstack": redacted(_cut(trace, _MOST_TRACEBACK_CHARACTERS)),
            "timestamp": str(int(time.time())),
            # No message has to be read to know what it is, and where it was raised.
            "classes": [one.__name__ for one in type(error).__mro__],
            "module": _raised_in(error),
        },
    }
    # On a full disk the supervisor says so, and the log has the exception.
    with contextlib.suppress(OSError):
        Path(file).write_text(json.dumps({"message": told}))


def _raised_in(error: BaseException) -> str | None:
    """Return the module that raised an exception, or called what is not Python."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return frames[-1].f_globals.get("__name__") if frames else None


def _cut(text: str, limit: int) -> str:
    """Return a text without its middle, if it is too long."""
    left_out = len(text) - limit
    if left_out <= 0:
        return text
    tail = limit // 4
    head = limit - tail
    words = f"\n... {left_out:,} of {len(text):,} characters left out ...\n"
    return text[:head] + words + text[-tail:]
