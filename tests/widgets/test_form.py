"""The form without a page: fields, checks, commands, GPUs, messages."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
from types import SimpleNamespace

import pytest

import nbkit
from nbkit.config import (
    AllReduceConfig,
    DaliConfig,
    ExperimentConfig,
    LoaderConfig,
    Model,
)
from nbkit.config import experiment as experiment_source
from nbkit.errors import ConfigError
from nbkit.launch.devices.pool import Lease, QueueTicket
from nbkit.recipes.catalogue import recipe, recipe_names
from nbkit.telemetry.gpu_reader import GpuReader, GpuReading
from nbkit.telemetry.gpu_source import SourceSetting
from nbkit.telemetry.sample import GpuProcess, GpuSample
from nbkit.widgets import form_gpus
from nbkit.widgets.form_check import FormCheck, python_line
from nbkit.widgets.form_fields import entered_of, fields_of, sections
from nbkit.widgets.form_gpus import GpuLook, describe_gpus
from tests.telemetry.traces import TRACES, replay
from tests.widgets.form_threads import wait_for_form_threads
from tests.widgets.messages import hear

CONTROLS = {it.path: it for section in sections() for it in section.controls}

CONFIGS = [
    ExperimentConfig(),
    ExperimentConfig(epochs=3, devices=(0, "GPU-1"), gpus=2, step_epochs=(1, 2.5)),
    ExperimentConfig(
        batch_size_per_gpu="max",
        loader_config={"pin_memory": False, "dali": {"roi_decode": False}},
        hang_timeout_seconds=None,
        data='a "quoted" folder',
    ),
    *(config for name in recipe_names() for config in recipe(name).configs.values()),
]


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch):
    monkeypatch.setenv("NBKIT_GPU_SOURCE", replay("no-gpu"))


@pytest.fixture
def form():
    form = nbkit.ExperimentForm()
    yield form
    wait_for_form_threads()
    form.close_all()


def told(form, **message):
    """Send what a page would; return what the form then says."""
    hear(form.panel, request="1", **message)
    return form.panel.note


def paths(model, prefix=""):
    for name, field in model.model_fields.items():
        if isinstance(field.default, Model):
            yield from paths(type(field.default), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def test_every_field_has_a_control_with_a_text():
    assert set(CONTROLS) == set(paths(ExperimentConfig))
    assert all(control.help for control in CONTROLS.values())


def test_the_headings_are_those_of_the_source():
    source = inspect.getsource(experiment_source)
    found = re.findall(r"\n    # (.+)\n    (\w+):", source)
    headings = {field: title for title, field in found}

    assert ExperimentConfig.model_json_schema()["groups"] == headings
    titles = [section.title for section in sections()]
    assert titles == ["Experiment", *headings.values()]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name or None)
def test_a_config_goes_through_the_controls_and_through_the_line_of_python(config):
    fields = fields_of(entered_of(config, CONTROLS), CONTROLS)
    facade = SimpleNamespace(
        launch=ExperimentConfig,
        LoaderConfig=LoaderConfig,
        DaliConfig=DaliConfig,
        AllReduceConfig=AllReduceConfig,
    )
    line = python_line(fields)

    assert ExperimentConfig(**fields) == config
    assert eval(line, {"nbkit": facade}) == config
    assert max(map(len, line.splitlines())) <= 88


def test_all_that_is_wrong_is_said_at_once_and_what_was_typed_stays(form):
    wrong = {
        "batch_size_per_gpu": "many",
        "steps": "1o",
        "loader_config.num_workers": "-1",
        "loader_config.dali.hw_decoder_load": "7",
        "allreduce.bytes_max": "2",
        "step_epochs": "1, two",
    }

    form.panel.entered = form.panel.entered | wrong

    assert set(form.panel.checked["errors"]) == set(wrong)
    said = form.panel.checked["errors"]["loader_config.dali.hw_decoder_load"]
    assert said == "7: is above 1.0. Use 1.0 or less."
    assert form.panel.checked["commands"] == []
    assert wrong.items() <= form.panel.entered.items()
    with pytest.raises(ConfigError) as raised:
        _ = form.config
    assert set(raised.value.fields) == set(wrong)
    assert told(form, kind="launch", entered=form.panel.entered)["is_error"]
    assert form.run is None


def test_numbers_are_read_as_people_write_them(form):
    typed = {
        "learning_rate": " 1e-3 ",
        "devices": "[0,1]",
        "gpus": "2",
        "num_classes": "",
        "loader_config.pin_memory": "true",
    }

    form.panel.entered = form.panel.entered | typed

    assert form.config == ExperimentConfig(
        learning_rate=1e-3,
        devices=(0, 1),
        gpus=2,
        loader_config={"pin_memory": True},
    )


def test_filling_in_replaces_what_was_entered_and_refuses_what_is_wrong(form):
    form.fill(model="resnet18", steps=5, warmup_steps=0)
    with pytest.raises(ConfigError, match="gpus=0"):
        form.fill(gpus=0)

    assert form.config.model == "resnet18"
    form.fill(epochs=2)
    assert (form.config.epochs, form.config.steps) == (2, None)
    form.fill(ExperimentConfig())
    assert form.config == ExperimentConfig()


def test_a_preset_fills_in_a_published_experiment(form):
    wait_for_form_threads()
    for preset in form.panel.presets:
        said = told(form, kind="preset", name=preset)
        name, _, run = preset.partition(": ")
        assert form.config == recipe(name).config(run or None)
        assert f'nbkit.recipe("{name}")' in said["text"]
        is_missing = form.config.data != "synthetic"
        assert ("cannot be used on this machine" in said["text"]) is is_missing
    assert len(form.panel.presets) > len(recipe_names()) > 0


def test_a_task_that_needs_code_is_refused_beside_the_button(form):
    form.fill(task="function")

    said = told(form, kind="launch", entered=form.panel.entered)

    assert said["is_error"]
    assert "task='function' requires a function. Pass it" in said["text"]


def test_the_commands_name_the_devices_of_the_run():
    gpus = [
        {"device": str(place), "uuid": f"GPU-{place}", "is_free": place > 0}
        for place in range(3)
    ]

    def torchrun(**fields):
        config = ExperimentConfig(**fields)
        return FormCheck({}, config).commands(gpus)[1]

    assert "CUDA_VISIBLE_DEVICES=GPU-1,GPU-2 torchrun" in torchrun(gpus=2)["text"]
    assert "CUDA_VISIBLE_DEVICES=GPU-0 torchrun" in torchrun(devices=(0,))["text"]
    assert "CUDA_VISIBLE_DEVICES= torchrun" in torchrun(device="cpu")["text"]
    elsewhere = ExperimentConfig.from_store('{"engine": "cluster"}')
    shown = FormCheck({}, elsewhere).commands(gpus)[1]
    assert shown["text"] == ""
    assert "engine=cluster" in shown["note"]


def test_no_run_gets_a_gpu_of_a_trace(form):
    wait_for_form_threads()
    form.panel.gpus = gpus_of("eight-gpus")

    shown = form.panel.checked["commands"][1]["text"]

    assert "CUDA_VISIBLE_DEVICES= torchrun" in shown


def test_a_form_that_is_closed_lets_go_of_page_and_gpus(form, monkeypatch):
    wait_for_form_threads()
    closed = []
    monkeypatch.setattr(GpuReader, "close", lambda reader: closed.append(reader))

    form.close()

    assert (form.comm, form.panel.comm) == (None, None)
    assert len(closed) == 1


def test_a_look_that_is_closed_reads_no_more():
    shown = []
    look = GpuLook(shown.append)
    look.close()

    look.start()
    wait_for_form_threads()

    assert shown == []


def test_where_nobody_can_use_a_widget_a_table_is_shown(form):
    form.fill(model="resnet18", name="<b>")
    form.panel.entered = form.panel.entered | {"gpus": "none"}

    shown = form._repr_mimebundle_()

    assert set(shown) == {"text/plain", "text/html"}
    assert "resnet18" in shown["text/html"]
    assert "&lt;b&gt;" in shown["text/html"]
    assert "is not a whole number" in shown["text/html"]
    call = "<pre>nbkit.launch(name=&quot;&lt;b&gt;&quot;, model=&quot;resnet18&quot;"
    assert call in shown["text/html"]
    line = shown["text/plain"].removeprefix("<ExperimentForm ").removesuffix(">")
    ast.parse(line)


def gpus_of(trace):
    reader = GpuReader(SourceSetting("replay", trace))
    return describe_gpus(reader.read(), replayed=True)


def test_the_gpus_say_who_holds_them(monkeypatch, tmp_path):
    monkeypatch.setenv("NBKIT_POOL", str(tmp_path))
    last = gpus_of("eight-gpus")["gpus"][7]
    assert last["is_free"]
    wanted = {
        "kind": "replay",
        "candidates": [(last["uuid"], "GPU 7")],
        "count": 1,
        "oversubscribe": False,
    }
    claim = QueueTicket.enter("20260101-me", wanted)

    lease = claim.attempt()
    assert isinstance(lease, Lease)
    try:
        found = gpus_of("eight-gpus")
    finally:
        lease.release()
        claim.close()

    assert found["replayed"]
    assert found["text"].startswith("Replay, not GPUs of this machine: 0 of 8 free")
    assert found["gpus"][7]["holders"] == ["run 20260101-me"]
    assert found["gpus"][4]["holders"] == ["kernel notes/explore.ipynb of ann"]
    assert gpus_of("eight-gpus")["gpus"][7]["is_free"]


def test_a_gpu_is_free_if_the_pool_would_give_it_to_a_run(monkeypatch, tmp_path):
    monkeypatch.setenv("NBKIT_POOL", str(tmp_path))
    stranger = os.getppid()
    used = [(os.getpid(), 40), (stranger, 1), (stranger, 40), (stranger, None)]
    gpus = [
        GpuSample(
            place,
            f"GPU-{place}",
            memory_total_bytes=80 << 30,
            processes=(GpuProcess(pid, size and size << 30),),
        )
        for place, (pid, size) in enumerate(used)
    ]

    found = describe_gpus(GpuReading(tuple(gpus)), replayed=False)

    # This process itself, and a bare CUDA context, leave room.
    assert [gpu["is_free"] for gpu in found["gpus"]] == [True, True, False, False]
    assert found["text"] == "2 of 4 free."


def test_gpus_that_cannot_be_read_are_said_to_be_so(monkeypatch):
    monkeypatch.setattr(form_gpus, "describe_gpus", lambda *_, **__: [][0])
    shown = []
    look = GpuLook(shown.append)

    look.start()
    wait_for_form_threads()

    look.close()
    (found,) = shown
    assert "could not be read: IndexError: list index out of range" in found["text"]
    assert found["gpus"] == []


def test_instances_are_offered_in_the_place_of_a_divided_gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("NBKIT_POOL", str(tmp_path))

    gpus = gpus_of(str(TRACES / "mig.jsonl"))["gpus"]
    titles = {gpu["title"]: gpu["device"] for gpu in gpus}

    assert titles.pop("GPU 1") == "1"
    assert list(titles) == ["GPU 0 MIG 0", "GPU 0 MIG 1", "GPU 0 MIG 2"]
    assert all(device.startswith("MIG-") for device in titles.values())


def test_without_gpus_it_says_how_many_cpus(form):
    wait_for_form_threads()

    assert re.match(r"No usable GPU: ranks run on \d+ CPU", form.panel.gpus["text"])
    assert "driver not loaded" in form.panel.gpus["text"]


def test_a_driver_that_hangs_is_said_to_hang(monkeypatch, tmp_path):
    lines = [
        {"kind": "header", "schema": 1, "scripted": True, "t": 0.0, "devices": []},
        {"kind": "sample", "t": 0.0, "gpus": [{"index": 0, "uuid": "GPU-a"}]},
        {"kind": "hang", "seconds": 2},
        {"kind": "sample", "t": 60.0, "gpus": [{"index": 0, "uuid": "GPU-a"}]},
    ]
    trace = tmp_path / "hangs.jsonl"
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setenv("NBKIT_GPU_SOURCE", f"replay:{trace}")
    monkeypatch.setattr(form_gpus, "LIMIT_SECONDS", 0.1)
    shown = []
    look = GpuLook(shown.append)

    look.start()
    look.start()
    wait_for_form_threads()

    look.close()
    texts = [it["text"] for it in shown]
    assert len(texts) == 2
    assert texts[0].startswith("The GPU driver has not responded")
    assert "has not responded" not in texts[1]
