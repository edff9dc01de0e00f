"""What the precision notebook will measure is decided, and said, before it starts."""

from __future__ import annotations

from functools import partial

import pytest

from nbkit.errors import ConfigError
from nbkit.questions.precision.planning import plan
from tests.datasets.images import write_folder
from tests.questions.conftest import notebook_parameters
from tests.telemetry.fake_nvml.fake_driver import GIBIBYTE, FakeGpu, FakeMig

parameters = partial(notebook_parameters, "precision")


def test_as_little_as_each_precision_rounds_is_tried_on_the_baselines_weights(drive):
    drive(FakeGpu("GPU-a"))

    planned = plan(parameters(device="auto", precision=["fp16", "tf32", "bf16"]))

    found = {name: one.weight_perturbation for name, one in planned.unrepeated.items()}
    assert found == {
        "fp32, channels_last, weights changed by 2^-23": 2.0**-23,
        "fp32, channels_last, weights changed by 2^-11": 2.0**-11,
        "fp32, channels_last, weights changed by 2^-8": 2.0**-8,
    }
    baseline = planned.arms["fp32, channels_last"]
    for one in planned.unrepeated.values():
        assert one.replace(weight_perturbation=0.0, name=baseline.name) == baseline
    assert plan(parameters(control=False)).unrepeated == {}


def test_on_gpus_every_combination_is_measured(drive):
    drive(FakeGpu("GPU-a"))

    planned = plan(parameters(device="auto"))

    assert len(planned.arms) == 4 * 2 * 2
    formats = ("fp32", "tf32", "fp16", "bf16")
    assert [*planned.arms][:4] == [f"{one}, channels_last" for one in formats]
    assert planned.first_arms == ["fp32, channels_last", "fp16, channels_last"]
    assert "bf16, channels_first, compiled" in planned.arms
    compiled = planned.arms["tf32, channels_last, compiled"]
    assert (compiled.precision, compiled.compile) == ("tf32", True)
    assert (planned.repeats, compiled.batch_size_per_gpu) == (5, 256)
    assert compiled.learning_rate == 0.1
    assert "17 arms" in planned.notes[0]


@pytest.fixture
def old_gpu(drive, monkeypatch):
    """A GPU of the generation before TF32 and BF16."""
    driver = drive(FakeGpu("GPU-a", name="Tesla V100-SXM2-32GB"))
    monkeypatch.setattr(
        "pynvml.nvmlDeviceGetCudaComputeCapability", lambda handle: (7, 0)
    )
    return driver


def test_formats_that_a_gpu_is_too_old_for_are_left_out_and_it_is_said(old_gpu):
    planned = plan(parameters(device="auto"))

    assert {config.precision for config in planned.arms.values()} == {"fp32", "fp16"}
    assert planned.notes[0].startswith("TF32 and BF16 are skipped: Tesla V100")
    assert "compute capability 7.0" in planned.notes[0]


def test_a_format_that_was_asked_for_and_is_missing_is_an_error(old_gpu):
    with pytest.raises(
        ConfigError, match=r"^Number formats not supported: bf16 \(Tesla V100.*7\.0"
    ):
        plan(parameters(device="auto", precision=["fp16", "bf16"]))


def test_the_batch_fits_the_memory_of_the_gpu_and_it_is_said(drive, monkeypatch):
    driver = drive(FakeGpu("GPU-a"))
    size = 16 * GIBIBYTE
    memory = driver.nvmlDeviceGetMemoryInfo(driver.gpus[0])
    memory.total = size
    monkeypatch.setattr("pynvml.nvmlDeviceGetMemoryInfo", lambda *_, **__: memory)

    planned = plan(parameters(device="auto"))
    asked = plan(parameters(device="auto", batch_size_per_gpu=256))

    batches = {config.batch_size_per_gpu for config in planned.arms.values()}
    assert batches == {128}
    assert "The batch size is 128 instead of 256" in planned.notes[0]
    assert asked.arms["fp32, channels_last"].batch_size_per_gpu == 256


def test_the_batch_fits_the_memory_of_a_mig_instance(drive):
    mig = FakeMig("MIG-a", memory_bytes=10 * GIBIBYTE)
    drive(FakeGpu("GPU-a", migs=(mig,)))

    planned = plan(parameters(device="auto"))

    assert "must fit in 10 GiB of GPU memory" in planned.notes[0]


def test_batch_beyond_the_images_is_refused(tmp_path):
    write_folder(tmp_path / "data")

    with pytest.raises(ConfigError, match=r"has 12 training images, .* needs"):
        plan(parameters(data=str(tmp_path / "data"), batch_size_per_gpu=1_000))


@pytest.mark.parametrize(
    ("values", "arms"),
    [
        (
            {"precision": ["bf16"], "memory_format": ["channels_first"]},
            ["fp32, channels_last", "bf16, channels_first"],
        ),
        ({"precision": ["fp32"]}, ["fp32, channels_last", "fp32, channels_first"]),
    ],
)
def test_plan_arms(values, arms):
    planned = plan(parameters(**values, steps=4))

    assert list(planned.arms) == arms
    config = planned.arms[arms[0]]
    assert (config.steps, config.warmup_steps) == (4, 1)


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ({"precision": ["fp32", "tf32"]}, ["TF32 requires a GPU"]),
        (
            {"precision": ["fp32"], "memory_format": ["channels_last"]},
            ["leave only fp32, channels_last"],
        ),
        (
            {"gpus": 0, "repeats": 0, "loss_tolerance": 5.0},
            [
                "gpus=0 is below 1",
                "repeats=0 is below 1",
                "loss_tolerance=5.0 is not between 0 and 1",
            ],
        ),
        # Nothing else is said of it.
        (
            {"batch_size_per_gpu": 0},
            ["batch_size_per_gpu=0 is below 1. Use 1 or more."],
        ),
    ],
)
def test_plan_refused(values, lines):
    with pytest.raises(ConfigError) as raised:
        plan(parameters(**values))

    said = str(raised.value).splitlines()
    assert len(said) == len(lines)
    for line, expected in zip(said, lines, strict=True):
        assert expected in line
