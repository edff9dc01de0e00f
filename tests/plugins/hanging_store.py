"""A server extension: files beside one called ``hangs`` are read once that is gone.

So does a file server that does not answer. A pipe in the place of a file is refused.
"""

import os
import time
from pathlib import Path


def _jupyter_server_extension_points():
    return [{"module": "hanging_store"}]


def _load_jupyter_server_extension(server):
    open_file = os.open

    def hangs(path, flags, mode=0o777, *, dir_fd=None):
        here = Path(path).parent if dir_fd is None else Path(f"/proc/self/fd/{dir_fd}")
        while (here / "hangs").exists():
            time.sleep(0.05)
        return open_file(path, flags, mode, dir_fd=dir_fd)

    os.open = hangs
