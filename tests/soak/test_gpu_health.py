"""What doctor says of an all-reduce whose ranks hang, or fail in any case."""

from __future__ import annotations

from tests.launch.conftest import plugins, store
from tests.launch.test_gpu_health import all_reduce
from tests.telemetry.conftest import drive, no_setting

__all__ = ["all_reduce", "drive", "no_setting", "plugins", "store"]


def test_check_all_reduce_hang(all_reduce):
    result = all_reduce("signal.pause()", "True", hang_timeout_seconds=1.0)

    assert "no rank made progress for 1 s" in result["found"]
    assert "also fails with NCCL_P2P_DISABLE=1" in result["remedy"]


def test_check_all_reduce_ok(all_reduce, tmp_path):
    result = all_reduce()

    assert (result["what"], result["state"]) == ("All-reduce", "ok")
    assert "works over 2 GPUs" in result["found"]
    assert list(tmp_path.glob("nbkit-doctor-*")) == []
