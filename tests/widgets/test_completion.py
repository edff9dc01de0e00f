"""Tab and the question mark know nbkit's fields, and the names that they may have."""

from __future__ import annotations

import pytest

import nbkit
from nbkit.launch.run import Run
from nbkit.widgets.completion import complete
from tests.notebooks.kernel import running_kernel

NAMES = {
    "nbkit": nbkit,
    "launch": nbkit.launch,
    "config": nbkit.ExperimentConfig(),
    "recipe": nbkit.recipe("netapp_resnet50"),
    "text": "text",
}


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("nbkit.launch(bat", ["batch_size_per_gpu="]),
        ("run = launch(model='x',\n    image", ["image_size=", "images_per_epoch="]),
        ("nbkit.ExperimentConfig(gpu", ["gpus="]),
        ("config.replace(data='(', precision='f", ["fp32", "fp16"]),
        ("recipe.config(nn", ["nnodes="]),
        ("nbkit.SlurmConfig(slurm_p", ["slurm_partition="]),
        ('nbkit.launch(model="resnet5', ["resnet50"]),
        ("nbkit.launch(loader='d", ["dali"]),
        ("nbkit.launch(data='ph", ["photos"]),
    ],
)
def test_a_call_of_nbkit_is_completed(before, found):
    assert complete(before, NAMES)[1] == found


@pytest.mark.parametrize(
    "before",
    [
        "text.replace(lear",
        "unknown.launch(gpu",
        "nbkit.launch(print(gpu",
        "nbkit.launch(args=[gpu",
        "nbkit.launch()\ngpu",
        "nbkit.launch(device=device(type='",
    ],
)
def test_what_is_no_field_of_a_call_is_left_alone(before):
    assert complete(before, NAMES)[1] == []


def test_completion_reads_no_results(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(Run, "config", property(asked.append))

    assert complete("run.config(gpu", {"run": Run(tmp_path)})[1] == []
    assert asked == []


def test_a_kernel_completes_a_call_and_explains_it():
    with running_kernel() as kernel:
        kernel.execute("import nbkit; nbkit.runs()")
        ask, answer = kernel.client, kernel.reply_to
        # The second answer is that of a kernel whose completer has warmed up.
        fields = answer(ask.complete("nbkit.launch(learning_rate_"))
        models = answer(ask.complete('nbkit.launch(model="vit_b'))
        launch = answer(ask.inspect("nbkit.launch"))
        config = answer(ask.inspect("nbkit.ExperimentConfig"))

    assert fields["matches"] == ["learning_rate_warmup_epochs="]
    assert models["matches"] == ["vit_b_16", "vit_b_32"]
    assert (
        "Start a run and return its handle immediately" in launch["data"]["text/plain"]
    )
    text = config["data"]["text/plain"]
    assert "gpus : int >= 1 and <= 1024, default 1" in text
    assert "Width and height of training and evaluation images, in pixels." in text
