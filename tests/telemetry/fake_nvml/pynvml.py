"""pynvml with the functions of a driver that ``FAKE_NVML`` describes, in JSON.

Put this folder first in PYTHONPATH: a child process then imports this file as pynvml.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import sys
from pathlib import Path

import fake_driver

_elsewhere = [path for path in sys.path if Path(path) != Path(__file__).parent]
_spec = importlib.machinery.PathFinder.find_spec("pynvml", _elsewhere)
exec(_spec.loader.get_code("pynvml"))  # its names become this module's

fake_driver.FakeDriver.from_json(json.loads(os.environ["FAKE_NVML"])).install(
    sys.modules[__name__]
)
