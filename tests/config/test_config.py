"""Every field is declared once, checked at once, and survives the disk."""

from __future__ import annotations

import inspect
import pydoc
import subprocess
import sys
from importlib.metadata import entry_points

import pytest
import torchvision

from nbkit import config
from nbkit.config import ExperimentConfig, LoaderConfig
from nbkit.errors import ConfigError, LaunchError, NbkitError


def test_fields_have_descriptions():
    for model in (ExperimentConfig, LoaderConfig):
        for name, field in model.model_json_schema()["properties"].items():
            assert field["description"], f"{model.__name__}.{name}"


@pytest.mark.parametrize("name", config.__all__)
def test_help_defaults(name):
    model = getattr(config, name)

    assert "PydanticUndefined" not in model.__doc__ + str(inspect.signature(model))
    assert all(f"\n{name} : " in pydoc.getdoc(model) for name in model.model_fields)


def test_models_of_torchvision():
    ours = {
        entry.name
        for entry in entry_points(group="nbkit.models")
        if entry.value.startswith("torchvision.models:")
    }

    theirs = set(torchvision.models.list_models(module=torchvision.models))

    # An older torchvision lacks the newest; whatever it has is known.
    assert theirs <= ours


def test_a_config_survives_the_disk():
    config = ExperimentConfig(
        model="resnet18", devices=(0, "GPU-1"), gpus=2, loader_config={"num_workers": 3}
    )

    assert ExperimentConfig.from_json(config.to_json()) == config


def test_replace_checks_the_new_value():
    with pytest.raises(ConfigError, match=r"batch_size_per_gpu=-5: is below 1"):
        ExperimentConfig().replace(batch_size_per_gpu=-5)


def test_replace_length():
    by_steps = ExperimentConfig(steps=50)

    by_epochs = by_steps.replace(epochs=2)

    assert (by_epochs.epochs, by_epochs.steps) == (2, None)
    assert by_epochs.replace(steps=30).epochs is None


def test_config_without_a_length_measures_for_a_time():
    assert ExperimentConfig().has_time_window
    assert "6 s at a stable rate (at least 20 steps)" in ExperimentConfig().length
    assert not ExperimentConfig(task="allreduce").has_time_window
    assert not ExperimentConfig(steps=30).has_time_window
    assert ExperimentConfig(steps=30).length == "30 steps (10 warm-up)"
    assert ExperimentConfig(epochs=1).length == "1 epoch (10 warm-up steps)"


def test_config_warmup_of_a_short_run():
    short = ExperimentConfig(steps=10)

    assert short.num_warmup_steps == 5
    stored = ExperimentConfig.model_validate(short.model_dump())
    assert stored.replace(steps=40).num_warmup_steps == 10
    assert ExperimentConfig(steps=11).num_warmup_steps == 10
    assert ExperimentConfig(steps=1, warmup_steps=3).num_warmup_steps == 0
    assert ExperimentConfig(task="load", steps=9).num_warmup_steps == 4
    assert ExperimentConfig(task="inference", steps=4).num_warmup_steps == 10


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"gpus": "lots"}, r"gpus='lots': is not a whole number"),
        ({"precision": "fp8"}, r"precision='fp8': is unknown. Use 'fp32', 'tf32'"),
        ({"epochs": 1, "steps": 5}, r"steps=5: cannot be combined with epochs=1. Set"),
        ({"learning_rate": float("nan")}, r"learning_rate=nan"),
        ({"momentum": 1.0}, r"momentum=1.0: is not below 1"),
        ({"crop_area_min": 0.5, "crop_area_max": 0.2}, r"below crop_area_min=0.5"),
        ({"target_accuracy": 0.7}, r"Set evaluation_period_epochs"),
        ({"cudnn_benchmark": True}, r"cudnn_benchmark=True: is not a number"),
        ({"cudnn_benchmark": 0}, r"cudnn_benchmark=0: is below 1. .*, or 'off' or 'ex"),
        (
            {"cudnn_benchmark": 4, "deterministic": True},
            r"cannot be combined with cudnn_benchmark=4, .* Use cudnn_benchmark='off'",
        ),
        ({"device": "cpu", "cuda_graphs": True}, r"CUDA graphs require a GPU"),
        ({"device": "cpu", "batch_size_per_gpu": "max"}, r"Use a number"),
        ({"compile": True, "cuda_graphs": True}, r"Set only one"),
        ({"cuda_graphs": True, "gradient_accumulation_steps": 2}, r"Use 1, or cuda_g"),
        (
            {"task": "inference", "cuda_graphs": True},
            r"cuda_graphs=True: requires training steps.* cuda_graphs=False; comp",
        ),
        (
            {"model": "inception_v3", "image_size": 32},
            r"image_size=32: is below 75, the minimum of inception_v3. Use 75",
        ),
        ({"emulated_step_seconds": 0.1}, r"not task='train'. Set task="),
        ({"task": "load", "batch_size_per_gpu": "max"}, r"'load' has none. Use a"),
        ({"task": "load", "weights": "pretrained"}, r"Use 'random'"),
        ({"weights": ""}, r"weights='': is empty"),
        ({"precision": "int8"}, r"is only supported by task='inference'. Use"),
        ({"task": "inference", "gpus": 2}, r"gpus=2: .* supports one device. Use 1"),
        ({"inference": {"batch_sizes": ()}}, r"batch_sizes=\(\): is empty"),
        ({"inference": {"batch_sizes": (1, 1)}}, r"lists a batch size twice"),
        ({"data": ""}, r"data='': is empty"),
        ({"steps": 0}, r"steps=0: is below 1"),
        ({"steps": False}, r"steps=False: is not a number"),
        ({"device": "cpu", "precision": "tf32"}, r"TF32 requires a GPU"),
        (
            {"device": "cuda", "precision": "int8", "task": "inference"},
            r"device='cuda': precision='int8' is slower than fp16 .* Set compile=True",
        ),
        (
            {"device": "cuda", "deterministic": True, "model": "vgg16"},
            r"device='cuda': .* in vgg16 is not .*. Use deterministic=False, device=",
        ),
        ({"devices": (0, "0")}, r"lists a device twice"),
        ({"devices": (0, 0)}, r"lists a device twice"),
        ({"devices": (0,), "gpus": 2}, r"Use gpus=1 or oversubscribe=True"),
        ({"device": "cpu", "devices": (0,)}, r"Remove devices"),
        ({"loader": "tourch"}, r"Did you mean 'torch'"),
        ({"model": "resnet5"}, r"Use .*, \w+ and \d+ others\. Did you mean"),
        ({"engine": "slrum"}, r"is not registered. Use .*local"),
        (
            {"presicion": "fp16"},
            r"presicion='fp16' is not a field. Did you mean 'precision'",
        ),
        ({"loader_config": {"num_workers": -1}}, r"num_workers=-1: is below 0"),
        ({"allreduce": {"bytes_min": 64, "bytes_max": 32}}, r"below bytes_min=64"),
    ],
)
def test_config_refusals(fields, text):
    with pytest.raises(ConfigError, match=text):
        ExperimentConfig(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"device": "cuda", "model": "vgg16"},
        {"device": "cpu", "model": "vgg16", "deterministic": True},
        {"device": "auto", "model": "vgg16", "deterministic": True},
        {"device": "cuda", "model": "resnet50", "deterministic": True},
        {
            "device": "cuda",
            "model": "vgg16",
            "deterministic": True,
            "task": "inference",
        },
        {"device": "cpu", "precision": "int8", "task": "inference"},
        {"device": "cuda", "precision": "int8", "task": "inference", "compile": True},
    ],
)
def test_config_accepted(fields):
    ExperimentConfig(**fields)


def test_from_store_old_config():
    text = ExperimentConfig(model="vgg16", deterministic=True).to_json()

    read = ExperimentConfig.from_store(text.replace('"auto"', '"cuda"'))

    assert (read.device, read.model, read.deterministic) == ("cuda", "vgg16", True)
    text = (
        '{"task": "inference", "model": "vgg11", "image_size": 16, "cuda_graphs": true}'
    )
    assert ExperimentConfig.from_store(text).cuda_graphs


def test_config_all_errors_at_once():
    with pytest.raises(ConfigError) as raised:
        ExperimentConfig(model="r", gpus=0, precision="fp8", epoch=2)  # pyright: ignore[reportCallIssue]

    assert len(str(raised.value).splitlines()) == 4


def test_config_error_classes():
    assert issubclass(ConfigError, ValueError)
    assert issubclass(ConfigError, NbkitError)


def test_config_is_frozen():
    with pytest.raises(ValueError, match="frozen"):
        ExperimentConfig().gpus = 8


def test_config_import_lazy_modules(tmp_path):
    (tmp_path / "late.py").write_text("import no_such_module\n")
    code = """
import importlib.util, sys, types
class Lazy(types.ModuleType):
    def __getattr__(self, name):
        raise ModuleNotFoundError("No module named 'flash_attn'")
sys.modules["lazy"] = Lazy("lazy")
spec = importlib.util.spec_from_file_location("late", sys.argv[1])
spec.loader = importlib.util.LazyLoader(spec.loader)
sys.modules["late"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["late"])
import nbkit
fields = nbkit.ExperimentConfig.model_json_schema()["properties"]
assert all(field["description"] for field in fields.values())
"""
    subprocess.run([sys.executable, "-c", code, tmp_path / "late.py"], check=True)


def test_config_without_entry_points(monkeypatch):
    monkeypatch.setattr("nbkit.config.checks.names", lambda _: [])

    with pytest.raises(LaunchError, match=r"but not installed, .* pip install -e /"):
        ExperimentConfig(model="resnet18", loader="naive")
