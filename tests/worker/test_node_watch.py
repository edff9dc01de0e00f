"""What watches a host's ranks from within torchrun."""

from __future__ import annotations

import subprocess
import sys

from nbkit.store.paths import RunPaths
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import write_json

_TORCHRUN = """
import signal, sys
from pathlib import Path
from nbkit.store.paths import RunPaths
from nbkit.worker.node_watch import NodeWatch
NodeWatch(RunPaths(Path(sys.argv[1])), 0).start()
signal.pause()
"""


def test_a_watch_that_fails_ends_torchrun_and_says_why(tmp_path):
    paths = RunPaths(tmp_path)
    supervisor = ProcessIdentity.of().to_dict()
    write_json(paths.submission, {"device_type": "cpu", "supervisor": supervisor})
    paths.orders(0).parent.mkdir(parents=True)
    write_json(paths.orders(0), {"do": 7})  # no list

    argv = [sys.executable, "-c", _TORCHRUN, str(tmp_path)]
    done = subprocess.run(argv, stderr=subprocess.PIPE, text=True, check=False)

    assert done.returncode == 1
    assert "TypeError" in done.stderr
