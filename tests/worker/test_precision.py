"""Number formats: what is computed in which, and what a device does not have."""

import pytest
import torch
from torch import nn

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.worker import precision
from nbkit.worker.precision import Precision

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def tf32_as_before():
    before = (
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cudnn.allow_tf32,
    )
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize(
    ("name", "computed_in"),
    [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)],
)
def test_convolutions_are_computed_in_the_format_and_weights_stay_fp32(
    name, computed_in
):
    format_ = Precision(ExperimentConfig(precision=name), CPU)
    model = nn.Conv2d(3, 4, 3)

    with format_.autocast():
        output = model(torch.randn(2, 3, 8, 8))

    assert output.dtype == computed_in
    assert model.weight.dtype == torch.float32


@pytest.mark.parametrize(("name", "scaled"), [("fp16", True), ("bf16", False)])
def test_only_fp16_scales_the_loss_and_a_step_undoes_it(name, scaled):
    format_ = Precision(ExperimentConfig(precision=name), CPU)
    weight = nn.Parameter(torch.tensor([1.0]))
    optimizer = torch.optim.SGD([weight], lr=0.5)

    loss = format_.scaler.scale((2 * weight).sum())
    loss.backward()
    format_.scaler.step(optimizer)
    format_.scaler.update()

    assert (loss.item() > 2.0) == scaled
    assert weight.item() == 0.0


def test_fp32_turns_tf32_off_for_products_and_convolutions():
    precision.allow_tf32(True)
    assert torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cudnn.allow_tf32

    Precision(ExperimentConfig(precision="fp32"), CPU)

    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("allowed", [True, False])
def test_old_and_new_readers_of_tf32_agree(allowed):
    precision.allow_tf32(allowed)

    # torch.compile reads this one; it raises where old and new switches were mixed.
    assert (torch.get_float32_matmul_precision() != "highest") == allowed
    if hasattr(torch.backends.cudnn, "conv"):
        assert (torch.backends.cudnn.conv.fp32_precision == "tf32") == allowed
        assert (torch.backends.cuda.matmul.fp32_precision == "tf32") == allowed


@pytest.mark.parametrize("kind", ["matmul", "cudnn"])
def test_a_switch_of_tf32_that_does_nothing_is_noticed(monkeypatch, kind):
    precision.allow_tf32(False)
    if kind == "matmul":
        monkeypatch.setattr(torch._C, "_set_cublas_allow_tf32", lambda _: None)
    else:
        stuck = property(lambda _: False, lambda _, allowed: None)
        module = type(torch.backends.cudnn)
        monkeypatch.setattr(module, "allow_tf32", stuck)

    precision.allow_tf32(False)
    with pytest.raises(ConfigError, match="did not switch TF32 on"):
        precision.allow_tf32(True)


newer_switches = pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"),
    reason="this torch has only the older switches of TF32",
)


def without_switches(monkeypatch, *names):
    """Let the switches of products be those of a torch that has removed some."""
    real = torch.backends.cuda.matmul

    class Switches:
        def __getattr__(self, name):
            return getattr(real, self._known(name))

        def __setattr__(self, name, value):
            setattr(real, self._known(name), value)

        def _known(self, name):
            if name in names:
                message = f"Unknown attribute {name}"
                raise AttributeError(message)
            return name

    monkeypatch.setattr(torch.backends.cuda, "matmul", Switches())


@newer_switches
@pytest.mark.parametrize("allowed", [True, False])
def test_products_without_the_older_switch_of_tf32_get_the_newer(monkeypatch, allowed):
    switches = torch.backends.cuda.matmul
    precision.allow_tf32(not allowed)
    without_switches(monkeypatch, "allow_tf32")

    precision.allow_tf32(allowed)

    assert switches.fp32_precision == ("tf32" if allowed else "ieee")


@newer_switches
@pytest.mark.parametrize("allowed", [True, False])
def test_cudnn_without_the_older_switch_of_tf32_gets_the_newer(monkeypatch, allowed):
    precision.allow_tf32(not allowed)
    monkeypatch.delattr(type(torch.backends.cudnn), "allow_tf32")

    precision.allow_tf32(allowed)

    expected = "tf32" if allowed else "ieee"
    assert torch.backends.cudnn.conv.fp32_precision == expected
    assert torch.backends.cudnn.rnn.fp32_precision == expected
    assert not hasattr(torch.backends.cudnn, "allow_tf32")  # it would mean nothing


@newer_switches
def test_the_older_switch_is_written_after_the_newer_one_was():
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    with pytest.raises(RuntimeError, match="mix"):
        _ = torch.backends.cuda.matmul.allow_tf32

    precision.allow_tf32(False)

    assert torch.backends.cuda.matmul.allow_tf32 is False


def test_a_torch_without_any_switch_of_tf32_is_refused(monkeypatch):
    without_switches(monkeypatch, "allow_tf32", "fp32_precision")

    with pytest.raises(ConfigError, match="did not switch TF32 off"):
        precision.allow_tf32(False)


def test_tf32_that_libraries_are_told_to_leave_out_is_refused(monkeypatch):
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")

    with pytest.raises(ConfigError, match="NVIDIA_TF32_OVERRIDE=0"):
        Precision(ExperimentConfig(precision="tf32"), torch.device("cuda"))


def test_tf32_on_a_cpu_is_refused_rather_than_replaced():
    with pytest.raises(ConfigError, match=r"'tf32'.*cpu. Use 'fp32'"):
        Precision(ExperimentConfig(precision="tf32"), CPU)


@pytest.mark.parametrize("name", ["bf16", "tf32"])
def test_a_gpu_older_than_the_format_is_refused_with_a_format_it_has(monkeypatch, name):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Tesla V100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 0))

    with pytest.raises(ConfigError, match=r"Tesla V100 has 7\.0\. Use 'fp16'"):
        Precision(ExperimentConfig(precision=name), torch.device("cuda"))


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("channels_last", torch.channels_last),
        ("channels_first", torch.contiguous_format),
    ],
)
def test_weights_lie_in_the_configured_layout(name, layout):
    model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)

    Precision(ExperimentConfig(memory_format=name), CPU).to_layout(model)

    assert model.weight.is_contiguous(memory_format=layout)


@pytest.mark.parametrize(
    ("name", "asked_for"),
    [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)],
)
def test_torch_is_asked_who_normalises_batches_in_the_format_of_autocast(
    monkeypatch, name, asked_for
):
    asked = []
    real = torch._C._select_batch_norm_backend

    def spy(images, *rest):
        asked.append((images.dtype, images.shape, rest[-2]))
        return real(images, *rest)

    monkeypatch.setattr(torch._C, "_select_batch_norm_backend", spy)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))

    found = Precision(ExperimentConfig(precision=name), CPU).kernels(model, 8)

    assert found == {"batch_norm": "native"}
    assert asked == [(asked_for, (8, 4, 1, 1), True)]


def test_who_normalises_a_model_that_has_no_batch_normalisation_is_not_known():
    assert Precision(ExperimentConfig(), CPU).kernels(nn.Linear(2, 2), 8) == {
        "batch_norm": None
    }


@pytest.mark.parametrize("without", ["affine", "track_running_stats"])
def test_who_normalises_with_less_than_all_weights_is_not_known(without):
    model = nn.Sequential(nn.BatchNorm2d(4, **{without: False}))

    assert Precision(ExperimentConfig(), CPU).kernels(model, 8)["batch_norm"] is None
