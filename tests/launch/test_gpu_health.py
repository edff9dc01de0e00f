"""What doctor says of GPUs that work together; ranks on CPUs go the same way."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import pytest

from nbkit.launch.devices.pool import Lease, QueueTicket
from nbkit.launch.gpu_health import checks
from tests.telemetry.conftest import drive, no_setting
from tests.telemetry.fake_nvml.fake_driver import GIBIBYTE, FakeGpu

__all__ = ["drive", "no_setting"]

PROGRAM = """
import time
from nbkit.health import stream
from nbkit.launch.gpu_health import check_all_reduce

deadline = time.monotonic() + {seconds}
ranks = {{"device": "cpu", "gpus": 2, "oversubscribe": True}}
stream([check_all_reduce(deadline, **ranks, **{fields})])
"""
# Python runs it in each process before the program itself.
FAULT = """
import os, signal
if os.environ.get("RANK") == "1" and {condition}:
    {fault}
"""
WITH_P2P = "'NCCL_P2P_DISABLE' not in os.environ"


@pytest.fixture
def all_reduce(tmp_path, monkeypatch):
    """Return what says what an all-reduce of two ranks did, one of them at fault."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def run(fault="pass", condition=WITH_P2P, seconds=120, **fields):
        (tmp_path / "sitecustomize.py").write_text(
            FAULT.format(condition=condition, fault=fault)
        )
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(seconds=seconds, fields=fields)],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            check=True,
        )
        return json.loads(done.stdout)

    return run


def test_check_all_reduce_failing_rank(all_reduce):
    result = all_reduce("os._exit(7)", WITH_P2P)

    assert result["severity"] == "error"
    assert "fails on 2 GPUs: " in result["evidence"]
    assert "works without peer-to-peer access: set NCCL_P2P" in result["action"]


def test_check_all_reduce_too_slow(all_reduce):
    result = all_reduce(seconds=0)

    assert result["severity"] == "warning"
    assert "with --limit" in result["action"]


def test_checks_skip_used_gpus(drive, tmp_path, monkeypatch):
    monkeypatch.setenv("NBKIT_POOL", str(tmp_path / "pool"))
    used = FakeGpu("GPU-2", pids=(1,), used_bytes=GIBIBYTE, memory_bytes=2 * GIBIBYTE)
    drive(FakeGpu("GPU-0"), FakeGpu("GPU-1"), used)
    request = {"kind": "cuda", "count": 1, "oversubscribe": False}
    claim = QueueTicket.enter("a-run", {**request, "candidates": [("GPU-1", "GPU 1")]})
    claim.take_over()
    lease = claim.attempt()
    assert isinstance(lease, Lease)

    shared, first, second, none = checks(math.inf)

    assert shared.subject == "Shared memory"
    assert (first.subject, first.evidence) == ("GPU 1", "not checked: in use by a-run")
    assert second.subject == "GPU 2"
    assert "process 1" in second.evidence
    assert none.evidence == "1 of 3 GPUs free; an all-reduce requires 2"
    lease.release()
    claim.close()


def test_checks_without_two_gpus(drive, monkeypatch):
    drive(FakeGpu("GPU-0"), FakeGpu("GPU-1"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")

    [one] = checks(math.inf)

    assert one.evidence.endswith("an all-reduce requires 2 (CUDA_VISIBLE_DEVICES='1')")
    drive()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    [none] = checks(math.inf)
    assert (none.severity, none.evidence) == (
        "note",
        "0 GPUs visible (MIG instances excluded), an all-reduce requires 2",
    )
