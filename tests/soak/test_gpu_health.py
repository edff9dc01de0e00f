"""What doctor says of an all-reduce whose ranks hang, or fail in any case."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.hostile.strangers import needs_root
from tests.launch.conftest import plugins, store
from tests.launch.test_gpu_health import WITH_P2P, all_reduce
from tests.telemetry.conftest import drive, drive_child, no_setting

__all__ = ["all_reduce", "drive", "drive_child", "no_setting", "plugins", "store"]


def test_check_all_reduce_hang(all_reduce):
    result = all_reduce("signal.pause()", "True", hang_timeout_seconds=1.0)

    assert "no rank made progress for 1 s" in result["evidence"]
    assert "NCCL_P2P_DISABLE=1 does not help" in result["action"]


@needs_root
def test_doctor_without_loopback(tmp_path):
    program = (
        "import nbkit\n"
        "try: nbkit.launch(print, device='cpu', oversubscribe=True)\n"
        "except nbkit.errors.LaunchError as error: print(error)\n"
        "from nbkit.launch.health import checks\n"
        "print(next(checks()).evidence)\n"
        "from nbkit.worker import health\n"
        "told = {one.subject: one for one in health.checks()}\n"
        "print(told['gloo'].action)\n"
    )
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", program],
        env={**os.environ, "NBKIT_HOME": str(tmp_path / "store")},
        capture_output=True,
        text=True,
        check=True,
    )

    refused, found, remedy = done.stdout.splitlines()
    assert "does not respond ([Errno 101] Network is" in refused
    assert "ip link set lo up" in refused
    assert refused.startswith(found)
    assert remedy == "start the loopback interface (ip link set lo up)"
    assert list((tmp_path / "store" / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("fault", "condition", "remedy"),
    [
        ("os._exit(7)", "True", "NCCL_P2P_DISABLE=1 does not help: see "),
        ("os.kill(os.getpid(), signal.SIGBUS)", WITH_P2P, "docker run --shm-size="),
    ],
    ids=["in any case", "without shared memory"],
)
def test_check_all_reduce_failing_rank(all_reduce, fault, condition, remedy):
    result = all_reduce(fault, condition)

    assert result["severity"] == "error"
    assert "fails on 2 GPUs: " in result["evidence"]
    assert remedy in result["action"]
