"""Recipes: no flag of a published command is missing, and each became what it says."""

from __future__ import annotations

import html
import json
import re
from importlib.resources import files
from itertools import chain

import pytest

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.worker import schedule
from nbkit.worker.train import evaluation_is_due

NAMES = ["netapp_resnet50", "paddle_ngc_pytorch", "vsphere_resnet50"]
RUNS = [(name, run) for name in NAMES for run in nbkit.recipe(name).runs]

# What a shell sees as one, in a command without quotes.
FLAG = re.compile(r"(?<!\S)-{1,2}[a-z][\w-]*")


def netapp(**overrides: object) -> ExperimentConfig:
    return nbkit.recipe("netapp_resnet50").config(**overrides)


@pytest.mark.parametrize("name", NAMES)
def test_every_flag_of_the_command_is_in_the_table(name: str):
    recipe = nbkit.recipe(name)
    printed = {
        flag for command in recipe.commands.values() for flag in FLAG.findall(command)
    }

    assert printed <= {row[0] for row in recipe.flags.rows}


@pytest.mark.parametrize("name", NAMES)
def test_every_meaning_is_of_something_published(name: str):
    recipe = nbkit.recipe(name)
    file = files("nbkit.recipes") / "experiments" / f"{name}.json"

    assert set(json.loads(file.read_text())["settings"]) == {
        setting.name
        for run in recipe.runs
        for setting in recipe.settings(run)
        if setting.name != run
    }


@pytest.mark.parametrize(("name", "run"), RUNS)
def test_every_setting_became_a_field_or_has_a_reason(name: str, run: str):
    for setting in nbkit.recipe(name).settings(run):
        assert setting.fields or len(setting.because) > 10, setting
        assert bool(setting.fields) == (setting.outcome != "not carried over")


@pytest.mark.parametrize(("name", "run"), RUNS)
def test_a_number_that_is_not_the_published_one_has_a_reason(name: str, run: str):
    for setting in nbkit.recipe(name).settings(run):
        published = number(setting.value)
        for value in map(number, setting.fields.values()):
            same = None in (published, value) or published == value
            assert same or setting.because, setting


@pytest.mark.parametrize(("name", "run"), RUNS)
def test_flags_with_the_same_meaning_agree(name: str, run: str):
    found: dict[str, set[str]] = {}
    for setting in nbkit.recipe(name).settings(run):
        if setting.name == run:
            continue  # it stands in place of the others
        for field, value in setting.fields.items():
            same = value if number(value) is None else number(value)
            found.setdefault(field, set()).add(str(same))

    assert {field: v for field, v in found.items() if len(v) > 1} == {}


@pytest.mark.parametrize(("name", "run"), RUNS)
def test_the_configuration_has_the_values_of_the_table(name: str, run: str):
    recipe = nbkit.recipe(name)
    expected = dict(
        chain.from_iterable(setting.fields.items() for setting in recipe.settings(run))
    )
    config = recipe.config(run)

    for path, value in expected.items():
        actual = config
        for part in path.split("."):
            actual = getattr(actual, part)
        actual = list(actual) if isinstance(actual, tuple) else actual
        assert actual == value or number(actual) == number(value), path


def test_the_netapp_learning_rate_follows_the_original():
    config = netapp()
    per_epoch = 1_281_167 // (8 * 408)
    total, warmup = 37 * per_epoch, 2 * per_epoch

    for step in range(0, total, 97):
        # PolySchedule of the original program, which counts updates from 1.
        update = step + 1
        if update <= warmup:
            original = 10.5 * update / warmup
        else:
            share = (update - warmup) / (total - warmup)
            original = 0.0001 + (10.5 - 0.0001) * (1 - share) ** 2
        ours = schedule.learning_rate(config, step, per_epoch, total)
        assert ours == pytest.approx(original, abs=0.002)


def test_the_netapp_evaluation_follows_the_epochs_of_the_original_but_its_first():
    config = netapp()
    # The original counts from 0 and evaluates after an epoch with epoch % 4 == 2.
    original = [epoch + 1 for epoch in range(37) if epoch % 4 == 2]

    ours = [
        epoch
        for epoch in range(1, 38)
        if evaluation_is_due(config, epoch, at_end=epoch == 37)
    ]

    assert original[0] == 3
    assert ours == [*original[1:], 37]


def test_a_field_that_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="weight_decay=-1: is below 0"):
        netapp(weight_decay=-1)


def test_a_matrix_asks_which_run_is_meant():
    recipe = nbkit.recipe("paddle_ngc_pytorch")

    with pytest.raises(ConfigError, match=r"has 10 runs\. Choose one: v100_1_gpu_fp32"):
        recipe.config()
    with pytest.raises(ConfigError, match="Did you mean 'v100_8_gpus_amp'"):
        recipe.config("v100_8_gpu_amp")


def test_an_unknown_recipe_is_answered_with_those_there_are():
    with pytest.raises(ConfigError, match=f"Use one of {', '.join(NAMES)}"):
        nbkit.recipe("?")
    with pytest.raises(ConfigError, match="Did you mean 'netapp_resnet50'"):
        nbkit.recipe("netapp_resnet")


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_shows_as_its_table_with_its_source(name: str):
    recipe = nbkit.recipe(name)
    bundle = recipe._repr_mimebundle_()

    for text in (html.unescape(bundle["text/html"]), bundle["text/plain"]):
        assert recipe.title in text
        assert recipe.source["title"] in text
        assert all(row[0] in text for row in recipe.flags.rows)
    assert "–" in bundle["text/plain"]


def number(text: object) -> float | None:
    """Return what a text means as a number; None if it is none."""
    try:
        return None if isinstance(text, bool) else float(str(text))
    except ValueError:
        return None


def test_configs_of_every_run():
    paddle, vsphere = map(nbkit.recipe, ("paddle_ngc_pytorch", "vsphere_resnet50"))

    sizes = {run: (c.nnodes, c.gpus) for run, c in vsphere.configs.items()}
    assert sizes["one_vm_2_gpus"] == (1, 2)
    assert sizes["4_nodes_bare_metal"] == (4, 1)
    assert vsphere.commands == {}
    assert "No command line of these runs is known" in vsphere.flags.to_text()
    config = paddle.configs["v100_32_gpus_amp"]
    assert (config.nnodes, config.gpus, config.precision) == (4, 8, "fp16")
    assert config.memory_format == "channels_first"
    assert config.name == "paddle_ngc_pytorch v100_32_gpus_amp"
    assert paddle.configs["a100_8_gpus_fp32"].precision == "tf32"


def test_config_of_other_fields():
    config = netapp(data="synthetic", gpus=2, steps=50)

    assert (config.data, config.gpus) == ("synthetic", 2)
    assert (config.epochs, config.steps) == (None, 50)
    assert (config.name, config.batch_size_per_gpu) == ("netapp_resnet50", 408)
