"""What a rank writes of the exception that ends it, for others to read."""

from __future__ import annotations

import json
import time
import traceback

from torch.distributed.elastic.multiprocessing.errors.error_handler import ErrorHandler

from nbkit.store.redaction import redacted

__all__ = ["LastWords"]


class LastWords(ErrorHandler):
    """Writes torchelastic's error file as its own handler does, without secrets.

    An exception may say with which address or password something was tried.
    """

    def record_exception(self, e: BaseException) -> None:
        """Write the exception and its traceback, where torchelastic wants them."""
        file = self._get_error_file_path()
        if not file:
            return
        told = {
            "message": redacted(f"{type(e).__name__}: {e}"),
            "extraInfo": {
                "py_callstack": redacted(traceback.format_exc()),
                "timestamp": str(int(time.time())),
            },
        }
        with open(file, "w") as written:  # noqa: PTH123 - a path of text, as torch's
            json.dump({"message": told}, written)
