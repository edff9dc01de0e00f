"""What the inference notebook will measure is decided, and said, before it starts."""

from __future__ import annotations

from functools import partial

import pytest

from nbkit.errors import ConfigError
from nbkit.questions.inference.planning import plan
from nbkit.store.paths import runs_folder
from tests.datasets.images import write_folder
from tests.questions.conftest import notebook_parameters
from tests.telemetry.fake_nvml.fake_driver import FakeGpu

parameters = partial(notebook_parameters, "inference")


def test_on_a_cpu_fp16_is_left_out_and_that_is_said():
    planned = plan(parameters(compile=True))
    asked = plan(parameters(precisions=["int8", "fp16"], control=False))

    assert (list(asked.arms), asked.control) == (["fp32", "int8", "fp16"], None)
    assert not any(note.startswith("FP16") for note in asked.notes)

    assert list(planned.arms) == ["fp32", "bf16", "int8"]
    assert planned.first_arms == ["fp32", "bf16"]
    assert [it.compile for it in planned.arms.values()] == [True, True, False]
    assert planned.notes[1].startswith("FP16 is skipped: few CPUs support it")


def test_on_gpus_convolutions_have_no_int8_and_transformers_have(drive):
    drive(FakeGpu("GPU-a"))

    convolutions = plan(parameters(device="auto"))
    transformer = plan(parameters(device="auto", model="vit_b_16"))

    assert list(convolutions.arms) == ["fp32", "tf32", "fp16", "bf16"]
    assert convolutions.first_arms == ["fp32", "fp16"]
    assert convolutions.notes[0].startswith("INT8 is skipped: torch has no INT8 conv")
    assert list(transformer.arms) == ["fp32", "tf32", "fp16", "bf16", "int8"]
    assert (convolutions.repeats, convolutions.arms["fp16"].image_size) == (5, 224)


def test_on_gpus_int8_is_compiled_and_so_is_what_it_is_compared_with(drive):
    drive(FakeGpu("GPU-a"))
    transformer = {"device": "auto", "model": "vit_b_16"}

    planned = plan(parameters(**transformer))
    without = plan(parameters(**transformer, precisions=["fp16", "bf16"]))
    refused = plan(parameters(**transformer, compile=False))

    assert {one.compile for one in planned.arms.values()} == {True}
    assert "All formats are compiled: INT8 without" in planned.notes[0]
    assert {one.compile for one in without.arms.values()} == {False}
    assert "int8" not in refused.arms
    assert refused.notes[0].startswith("INT8 is skipped: without compile")
    with pytest.raises(ConfigError, match=r"precision='int8' .* Set compile=True"):
        plan(parameters(**transformer, compile=False, precisions=["fp16", "int8"]))


def test_an_older_gpu_has_neither_tf32_nor_bf16(drive, monkeypatch):
    drive(FakeGpu("GPU-a", name="Tesla V100-SXM2-32GB"))
    monkeypatch.setattr(
        "pynvml.nvmlDeviceGetCudaComputeCapability", lambda handle: (7, 0)
    )

    planned = plan(parameters(device="auto"))

    assert list(planned.arms) == ["fp32", "fp16"]
    assert "TF32 and BF16 are skipped: Tesla V100" in planned.notes[0]


def test_tf32_that_the_environment_turns_off_is_refused_before_weights_are_trained(
    drive, monkeypatch
):
    drive(FakeGpu("GPU-a"))
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")

    with pytest.raises(ConfigError, match="NVIDIA_TF32_OVERRIDE=0 disables"):
        plan(parameters(device="auto"))


def test_weights_are_trained_only_where_nobody_has_any(tmp_path):
    (tmp_path / "mine.pt").touch()
    (runs_folder() / "20260101-000000-mine").mkdir(parents=True)

    trained = plan(parameters(training_steps=9))
    assert trained.training.steps == 9
    assert trained.training.checkpoint_at_end
    assert trained.training.stop_on_nonfinite
    assert {one.weights for one in trained.arms.values()} == {"random"}
    for weights in ("pretrained", "random", "20260101-000000-mine"):
        planned = plan(parameters(weights=weights))
        assert planned.training is None
        assert {one.weights for one in planned.arms.values()} == {weights}
    planned = plan(parameters(weights=str(tmp_path / "mine.pt")))
    assert planned.arms["fp32"].weights == str(tmp_path / "mine.pt")
    assert "accuracy is not meaningful" in plan(parameters(weights="random")).notes[-1]
    notes = plan(parameters(weights="pretrained")).notes
    assert any("output layer is untrained" in note for note in notes)


def test_it_is_said_how_many_images_a_verdict_on_accuracy_takes():
    notes = plan(parameters(accuracy_margin=0.02)).notes

    assert "(2-point margin) requires at least 137 evaluation images" in notes[-1]
    synthetic = plan(parameters(data="synthetic", weights="random"))
    assert not any("evaluation images" in note for note in synthetic.notes)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"precisions": ["fp32"]}, "leaves only fp32, so there is no comparison"),
        ({"precisions": ["tf32"]}, "tf32, which requires a GPU"),
        ({"weights": "20260101-000000-none"}, "is not a run of the store, a file"),
        ({"data": "synthetic"}, "weights='train' requires real images"),
        ({"repeats": 0}, "repeats=0 is below 1"),
        ({"accuracy_margin": 1.0}, "accuracy_margin=1.0 is not between 0 and 1"),
        ({"batch_sizes": [4, 4]}, "lists a batch size twice"),
        ({"model": "resnet19"}, "Did you mean"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_starts(values, words):
    with pytest.raises(ConfigError, match=words):
        plan(parameters(**values))


def test_batch_beyond_the_images_is_refused(tmp_path):
    write_folder(tmp_path / "data")

    with pytest.raises(ConfigError, match=r"has 12 training images, .* needs"):
        plan(parameters(data=str(tmp_path / "data")))
