"""A GPU that ended a run is named as the cause, with what to do."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pynvml
import pytest

from nbkit.launch.supervision import attempt as attempts
from nbkit.launch.supervision.attempt import Attempt
from nbkit.launch.supervision.attempts import _may_pass
from nbkit.launch.supervision.cause import failure_cause, simple_cause
from nbkit.launch.supervision.gpu_cause import blame_gpus
from nbkit.store.heartbeat import Beat, Phase
from nbkit.store.paths import RunPaths
from nbkit.store.stored_runs import StoredRun, create_run_folder
from nbkit.telemetry.sampler import Sampler
from tests.launch.test_cause import _error, _rank
from tests.telemetry.fake_nvml.fake_driver import FakeDriver, FakeGpu

_LAUNCH = (
    "AcceleratorError: CUDA error: unspecified launch failure\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so "
    "the stacktrace below might be incorrect.\n"
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
)
_MIX = (
    "(the run's GPUs are of 2 kinds: NVIDIA H100 80GB HBM3 (GPU 0); "
    "NVIDIA A100-SXM4-40GB (GPU 1))"
)
_ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered\nFor debugging"
_LONG_AGO, _LATER = "2000-01-01T00:00:00.000Z", "2100-01-01T00:00:00.000Z"
_NCCL = "DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3, unhandled cuda error"


@pytest.fixture
def sampled(tmp_path, monkeypatch):
    """Return a maker of what a run's sampler has written of some GPUs."""

    def write(*gpus, paths=None, **behaviour):
        folder = (paths or RunPaths(tmp_path)).system_folder
        folder.mkdir(exist_ok=True)
        driver = FakeDriver(gpus, **behaviour)
        driver.install(pynvml, monkeypatch.setattr)
        with Sampler() as sampler, (folder / "one.jsonl").open("a") as file:
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
        _error(paths, 0, words, 1000.0)
        return failure_cause([_rank(0, 1, 1001)], paths, 0)

    return make


@pytest.mark.parametrize(
    ("words", "said", "todo", "may_pass"),
    [
        (
            _LAUNCH,
            "CUDA error: unspecified launch failure; a GPU has stopped answering",
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
            "GPU is lost; a GPU has stopped answering",
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
def test_what_cuda_says_of_a_gpu_is_told_with_what_to_do(
    words, said, todo, may_pass, cause
):
    found = cause(words)

    assert found["kind"] == "device"
    assert said in found["message"]
    assert todo in found["message"]
    assert "\n" not in found["message"]
    assert _may_pass(found) is may_pass


@pytest.mark.parametrize(
    "words",
    ["ValueError: mine", "RuntimeError: CUDA error: device-side assert triggered"],
)
def test_what_a_program_did_is_not_the_gpus_fault(words, cause, sampled):
    sampled(FakeGpu("GPU-a"))

    assert cause(words)["kind"] == "exception"


@pytest.mark.parametrize("words", [_LAUNCH, _NCCL])
def test_the_xid_that_the_driver_reported_is_the_cause(words, cause, sampled):
    sampled(FakeGpu("GPU-a"), FakeGpu("GPU-b"), xids=[("GPU-b", 79), ("GPU-b", 154)])

    found = cause(words)

    assert found["kind"] == "device"
    assert found["message"].startswith(words.partition("\n")[0])
    assert (
        "GPU 1 (GPU-b): Xid 79 (it has fallen off the bus): reboot"
        in (found["message"])
    )
    assert "GPU 0" not in found["message"]
    assert not _may_pass(found)


def test_a_gpu_that_is_lost_is_named_without_an_xid(cause, sampled):
    lost = pynvml.NVML_ERROR_GPU_IS_LOST
    sampled(FakeGpu("GPU-a", errors={"nvmlDeviceGetUtilizationRates": lost}))

    found = cause(_NCCL)

    assert found["kind"] == "device"
    assert "GPU 0 (GPU-a): it cannot be read any more (gpu lost)" in found["message"]


def test_a_hang_on_a_lost_gpu_is_the_gpus(small, sampled):
    run = StoredRun(create_run_folder(small()).root)
    sampled(FakeGpu("GPU-a"), xids=[("GPU-a", 119)], paths=run.paths)
    journal = SimpleNamespace(attempt=0, error=None)
    group = SimpleNamespace(ranks=[], lost=None)
    requests = SimpleNamespace(look=list)
    attempt = Attempt(run, journal, group, requests, lambda: None)
    attempt.cause = simple_cause("hang", "no rank made progress for 60 s")

    _, found = attempt.verdict()

    assert found is not None
    assert found["kind"] == "device"
    assert found["message"].startswith(
        "no rank made progress for 60 s; GPU 0 (GPU-a): Xid 119"
    )


def test_an_xid_of_an_earlier_attempt_or_of_another_runs_gpu_is_no_cause(
    cause, sampled, tmp_path
):
    sampled(FakeGpu("GPU-a"), FakeGpu("GPU-b"), xids=[("GPU-a", 79)])
    sampled(FakeGpu("GPU-a"), FakeGpu("GPU-b"), xids=[("GPU-b", 79)])
    worker = {"devices": [{"uuid": "GPU-a"}], "world_size": 1}
    RunPaths(tmp_path).worker.write_text(json.dumps(worker))

    assert cause(_NCCL)["kind"] == "exception"


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        ({"time": {"started": _LONG_AGO}}, "device"),
        ({"time": {"started": _LATER}}, "exception"),
        (
            {"time": {"started": _LONG_AGO}, "attempts": [{"ended": _LATER}]},
            "exception",
        ),
    ],
    ids=["this attempt", "resumed on another node", "restarted"],
)
def test_only_an_xid_since_the_attempt_began_is_its_cause(
    record, kind, cause, sampled, tmp_path
):
    sampled(FakeGpu("GPU-a"), xids=[("GPU-a", 79)])
    RunPaths(tmp_path).record.write_text(json.dumps(record))

    assert cause(_NCCL)["kind"] == kind


def test_all_leased_gpus_count_where_one_rank_alone_says_where_it_is(
    cause, sampled, tmp_path
):
    sampled(FakeGpu("GPU-a"), FakeGpu("GPU-b"), xids=[("GPU-b", 79)])
    paths = RunPaths(tmp_path)
    worker = {"devices": [{"uuid": "GPU-a"}], "world_size": 2}
    paths.worker.write_text(json.dumps(worker))
    record = {"launch": {"devices": ["GPU-a", "GPU-b"]}}
    paths.record.write_text(json.dumps(record))

    assert "GPU 1 (GPU-b): Xid 79" in cause(_NCCL)["message"]


def test_an_xid_of_the_program_stays_the_programs(cause, sampled):
    sampled(FakeGpu("GPU-a"), xids=[("GPU-a", 31)])

    found = cause(
        "AcceleratorError: CUDA error: an illegal memory access was encountered"
    )

    assert found["kind"] == "exception"
    assert "Xid 31 (a kernel of the program used memory" in found["message"]
    assert "CUDA_LAUNCH_BLOCKING=1" in found["message"]


def test_a_damaged_file_of_samples_costs_no_cause(cause, sampled, tmp_path):
    sampled(FakeGpu("GPU-a"), xids=[("GPU-a", 79)])
    with (RunPaths(tmp_path).system_folder / "one.jsonl").open("a") as file:
        file.write('{"kind": "sample", "gp\n[]\n{"kind": "sam')

    assert "Xid 79" in cause(_NCCL)["message"]


def test_an_error_that_hit_this_run_alone_may_be_tried_again(cause, sampled):
    sampled(FakeGpu("GPU-a"), xids=[("GPU-a", 94)])

    assert _may_pass(cause(_ECC))


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("OutOfMemoryError: CUDA out of memory.", "out_of_memory"),
        (_NCCL, "exception"),
        ("ValueError: mine", None),
    ],
)
def test_a_mix_of_gpus_is_named_where_it_may_be_the_reason(words, kind, cause, sampled):
    sampled(FakeGpu("GPU-a"), FakeGpu("GPU-b", name="NVIDIA A100-SXM4-40GB"))

    found = cause(words)

    assert found["kind"] == (kind or "exception")
    assert found["message"].endswith(_MIX) is (kind is not None)


def test_a_mix_of_gpus_is_named_of_a_hang(small, sampled):
    run = StoredRun(create_run_folder(small()).root)
    gpus = FakeGpu("GPU-a"), FakeGpu("GPU-b", name="NVIDIA A100-SXM4-40GB")
    sampled(*gpus, paths=run.paths)

    found = blame_gpus(simple_cause("hang", "no rank made progress"), run.paths)

    assert found["message"] == f"no rank made progress {_MIX}"


@pytest.fixture
def hanging(small):
    """Return the attempt of two ranks on GPUs, after it has seen them hang."""

    def make(task):
        run = StoredRun(create_run_folder(small()).root)
        worker = {"device_type": "cuda", "task": task, "attempt": 0}
        run.paths.worker.write_text(json.dumps(worker))
        ranks = [SimpleNamespace(rank=rank, node=None) for rank in range(2)]
        for one in ranks:
            log = run.paths.rank(0, one.rank).stderr
            log.parent.mkdir(parents=True)
            log.touch()
        journal = SimpleNamespace(attempt=0, error=None, event=lambda *_, **__: None)
        group = SimpleNamespace(ranks=ranks, lost=None, print_stacks=lambda: None)
        attempt = Attempt(run, journal, group, SimpleNamespace(), lambda: None)
        # Their first exchange hangs: no GPU has finished a step.
        beats = [Beat(4, Phase.COMPUTE, 9), Beat(1, Phase.COMPUTE, 8)]
        attempt._on_hang(beats, 60.0)
        return attempt

    return make


@pytest.mark.parametrize(("task", "rank"), [("train", None), ("function", 1)])
def test_only_a_training_is_judged_by_what_its_gpus_have_finished(task, rank, hanging):
    assert hanging(task).cause["rank"] == rank


def test_ranks_on_gpus_have_time_to_write_down_their_collectives(hanging, monkeypatch):
    monkeypatch.setattr(attempts, "time", SimpleNamespace(monotonic=lambda: 100.0))

    assert hanging("train")._deadline == 105.0
