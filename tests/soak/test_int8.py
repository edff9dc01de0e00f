"""INT8 on CPUs by torchao, for a torch that no longer has a quantization of its own."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nbkit.packages import pip_install

SERVE = """
import json, sys, torch
from torch.profiler import ProfilerActivity, profile
from nbkit.config import ExperimentConfig
from nbkit.worker import models
from nbkit.worker.quantize import quantize

sys.modules["torch.ao.quantization.quantize_fx"] = None
config = ExperimentConfig(
    task="inference", precision="int8", model="resnet18", device="cpu", compile=True
).replace(image_size=32)
torch.manual_seed(0)
model = models.build(config, 8).eval().to(memory_format=torch.channels_last)
images = torch.randn(4, 3, 32, 32).contiguous(memory_format=torch.channels_last)
off, operators = [], set()
with torch.inference_mode():
    expected = model(images)
batches = [images, images[:1], images[:3]]
quantized, facts = quantize(model, config, torch.device("cpu"), batches)
quantized.eval()  # of an exported model it returns nothing
with torch.inference_mode():
    for count in (4, 1):
        torch.compiler.reset()
        served = torch.compile(quantized, dynamic=False)
        served(images[:count])
        with profile(activities=[ProfilerActivity.CPU]) as traced:
            found = served(images[:count])
        operators |= {one.key for one in traced.key_averages()}
        off.append(((found - expected[:count]).abs().max() / expected.max()).item())
print(json.dumps({"facts": facts, "off": off, "operators": sorted(operators)}))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what a process with torchao, and without torch's own, has found."""
    folder = tmp_path_factory.mktemp("torchao")
    install = pip_install("torchao", options=f"--quiet --no-deps --target {folder}")
    subprocess.run([sys.executable, "-m", *shlex.split(install)], check=True)
    path = os.pathsep.join([str(folder), str(Path(__file__).parents[2])])
    answer = subprocess.check_output(
        [sys.executable, "-c", SERVE], env={**os.environ, "PYTHONPATH": path}, text=True
    )
    return json.loads(answer.splitlines()[-1])


def test_every_layer_is_int8_and_answers_like_fp32(told: dict[str, Any]):
    assert told["facts"]["library"] == "torchao.quantization.pt2e"
    assert told["facts"]["calibration_images"] == 8
    assert told["facts"]["int8_multiply_add_share"] > 0.99
    assert max(told["off"]) < 0.2


def test_torch_compile_makes_kernels_of_int8_of_it(told: dict[str, Any]):
    assert any("qconv" in name for name in told["operators"])
