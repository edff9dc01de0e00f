"""A server extension: files beside one called ``hangs`` are read once that is gone.

So does a file server that does not answer. A pipe in the place of a file is refused.
"""

import time
from pathlib import Path

from nbkit import reading


def _jupyter_server_extension_points():
    return [{"module": "hanging_store"}]


def _load_jupyter_server_extension(server):
    descriptor = reading._descriptor

    def hangs(path):
        while Path(path).with_name("hangs").exists():
            time.sleep(0.05)
        return descriptor(path)

    reading._descriptor = hangs
