"""A GPU that ended a run is named as the cause, with what to do."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pynvml
import pytest

from nbkit.launch.supervision.attempt import Attempt
from nbkit.launch.supervision.cause import failure_cause, make_cause
from nbkit.store.paths import RunPaths
from nbkit.store.stored_runs import StoredRun, create_run_folder
from nbkit.telemetry.sampler import Sampler
from tests.launch.test_cause import ended_rank, write_error
from tests.telemetry.fake_nvml.fake_driver import FakeDriver, FakeGpu

_LAUNCH = (
    "AcceleratorError: CUDA error: unspecified launch failure\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so "
    "the stacktrace below might be incorrect.\n"
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
)
_ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered\nFor debugging"
_ILLEGAL = "AcceleratorError: CUDA error: an illegal memory access was encountered"
_ASSERT = "RuntimeError: CUDA error: device-side assert triggered"
_NCCL = "DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3, unhandled cuda error"
_LONG_AGO, _LATER = "2000-01-01T00:00:00.000Z", "2100-01-01T00:00:00.000Z"


@pytest.fixture
def sampled(tmp_path, monkeypatch):
    """Return a maker of what a run's sampler has written of some GPUs."""

    def write(*gpus, paths=None, **behaviour):
        folder = (paths or RunPaths(tmp_path)).system_folder
        folder.mkdir(exist_ok=True)
        driver = FakeDriver(gpus, **behaviour)
        driver.install(pynvml, monkeypatch.setattr)
        sampler = Sampler()
        with (folder / "one.jsonl").open("a") as file:
            file.write(json.dumps(sampler.header()) + "\n")
            for _ in range(2):
                line = {"kind": "sample", **sampler.read().to_dict()}
                file.write(json.dumps(line) + "\n")

    return write


@pytest.fixture
def cause(tmp_path):
    """Return the cause of a run of which a rank ended with the words given."""

    def make(words):
        paths = RunPaths(tmp_path)
        write_error(paths, 0, words, 1000.0)
        return failure_cause([ended_rank(0, 1, 1001)], paths, 0)

    return make


@pytest.mark.parametrize(
    ("words", "said", "todo", "may_pass"),
    [
        (
            _LAUNCH,
            "CUDA error: unspecified launch failure; a kernel of the program failed",
            "sudo dmesg | grep Xid",
            True,
        ),
        (
            _ECC,
            "CUDA error: uncorrectable ECC error encountered; the GPU's memory",
            "nvidia-smi -q -d ECC,ROW_REMAPPER",
            True,
        ),
        (
            "NVMLError_GpuIsLost: GPU is lost",
            "GPU is lost; a GPU does not respond",
            "reset the GPU",
            False,
        ),
        (
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run "
            "some cuda functions before calling NumCudaDevices() that might have "
            "already set an error? Error 802: system not yet initialized",
            "Error 802: system not yet initialized; the fabric manager",
            "systemctl status nvidia-fabricmanager",
            False,
        ),
    ],
    ids=["launch failure", "ECC", "lost", "fabric manager"],
)
def test_failure_cause_cuda_error(words, said, todo, may_pass, cause):
    found = cause(words)

    assert found["kind"] == "device"
    assert said in found["message"]
    assert todo in found["message"]
    assert "\n" not in found["message"]
    assert found["may_pass"] is may_pass


@pytest.mark.parametrize(
    ("words", "xids", "kind", "said", "may_pass"),
    [
        ("ValueError: mine", [], "exception", "mine", None),
        (_ASSERT, [], "exception", "device-side assert", None),
        (_LAUNCH, [("GPU-b", 79)], "device", "GPU 1 (GPU-b): Xid 79 (the GP", False),
        (_NCCL, [("GPU-b", 79)], "device", "has fallen off the bus): reboot", False),
        # It hit this run alone.
        (_ECC, [("GPU-a", 94)], "device", "GPU 0 (GPU-a): Xid 94", True),
        # The program's own fault.
        (_ILLEGAL, [("GPU-a", 31)], "exception", "CUDA_LAUNCH_BLOCKING=1", None),
    ],
)
def test_failure_cause_xid(words, xids, kind, said, may_pass, cause, sampled):
    sampled(FakeGpu("GPU-a"), FakeGpu("GPU-b"), xids=xids)

    found = cause(words)

    assert found["kind"] == kind
    assert found["message"].startswith(words.partition("\n")[0])
    assert said in found["message"]
    assert found.get("may_pass") is may_pass


@pytest.mark.parametrize("xids", [[], [("GPU-a", 31)]], ids=["lost", "after an Xid"])
def test_failure_cause_lost_gpu(xids, cause, sampled):
    lost = pynvml.NVML_ERROR_GPU_IS_LOST
    gpu = FakeGpu("GPU-a", errors={"nvmlDeviceGetUtilizationRates": lost})
    sampled(gpu, xids=xids)

    found = cause(_NCCL)

    assert found["kind"] == "device"
    assert "GPU 0 (GPU-a): cannot be read (gpu lost)" in found["message"]


def test_verdict_hang_on_lost_gpu(small, sampled):
    run = StoredRun(create_run_folder(small()).root)
    sampled(FakeGpu("GPU-a"), xids=[("GPU-a", 119)], paths=run.paths)
    journal = SimpleNamespace(attempt=0, error=None)
    group = SimpleNamespace(ranks=[], lost=None)
    requests = SimpleNamespace(look=list)
    attempt = Attempt(run, journal, group, requests, lambda: None)
    attempt.cause = make_cause("hang", "no rank made progress for 60 s")

    _, found = attempt.verdict()

    assert found is not None
    assert found["kind"] == "device"
    said = "no rank made progress for 60 s; GPU 0 (GPU-a): Xid 119"
    assert found["message"].startswith(said)


_ALONE = {"devices": [{"uuid": "GPU-a"}], "world_size": 1}
_FIRST_OF_TWO = {"devices": [{"uuid": "GPU-a"}], "world_size": 2}


@pytest.mark.parametrize(
    ("worker", "record", "kind"),
    [
        (_ALONE, {}, "exception"),
        # Of a function, one rank alone says where it is.
        (_FIRST_OF_TWO, {"launch": {"devices": ["GPU-a", "GPU-b"]}}, "device"),
        ({}, {"time": {"started": _LONG_AGO}}, "device"),
        ({}, {"time": {"started": _LATER}}, "exception"),
        (
            {},
            {"time": {"started": _LONG_AGO}, "attempts": [{"ended": _LATER}]},
            "exception",
        ),
    ],
    ids=["another's GPU", "leased", "this attempt", "an earlier one", "restarted"],
)
def test_failure_cause_xid_of_another(worker, record, kind, cause, sampled, tmp_path):
    sampled(FakeGpu("GPU-a"), FakeGpu("GPU-b"), xids=[("GPU-b", 79)])
    paths = RunPaths(tmp_path)
    paths.worker.write_text(json.dumps(worker))
    paths.record.write_text(json.dumps(record))

    assert cause(_NCCL)["kind"] == kind


def test_failure_cause_damaged_samples(cause, sampled, tmp_path):
    sampled(FakeGpu("GPU-a"), xids=[("GPU-a", 79)])
    with (RunPaths(tmp_path).system_folder / "one.jsonl").open("a") as file:
        file.write('{"kind": "sample", "gp\n[]\n{"kind": "sam')

    assert "Xid 79" in cause(_NCCL)["message"]
