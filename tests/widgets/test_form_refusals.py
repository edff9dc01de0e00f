"""What a launch would refuse stands beside its field before anybody launches."""

from __future__ import annotations

import threading

import pytest

import nbkit
from nbkit.errors import ConfigError, DeviceError, NbkitError
from nbkit.launch.submit import refusals
from nbkit.widgets import form_refusals
from nbkit.widgets.form_fields import sections
from nbkit.widgets.form_refusals import Refusals, by_field
from tests.telemetry.traces import replay
from tests.waiting import wait_until
from tests.widgets.form_threads import wait_for_form_threads
from tests.widgets.messages import hear

CONTROLS = {it.path: it for section in sections() for it in section.controls}


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("NBKIT_GPU_SOURCE", replay("no-gpu"))
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "store"))


@pytest.fixture
def form():
    form = nbkit.ExperimentForm(device="cpu")
    yield form
    wait_for_form_threads()
    form.close_all()


def enter(form, **entered):
    form.panel.entered = form.panel.entered | entered
    wait_for_form_threads()
    return form.panel.checked["errors"]


@pytest.mark.parametrize(
    ("path", "entered", "said"),
    [
        ("nnodes", "2", "2: engine='local' supports one node. Use nnodes=1"),
        ("gpus", "1024", "1024 exceeds the "),
        ("data", "/nowhere", "'/nowhere' is not a folder or CSV file"),
        ("device", "replay", "'replay': GPUs cannot be read (driver not loaded)"),
        ("task", "script", "'script' requires a script. Pass it"),
    ],
)
def test_it_says_what_launch_raises_beside_the_field(form, path, entered, said):
    before = form.panel.entered[path]
    assert enter(form) == {}

    found = enter(form, **{path: entered})

    assert list(found) == [path]
    assert found[path].startswith(said)
    with pytest.raises(NbkitError) as raised:
        nbkit.launch(form.config)
    assert str(raised.value) == f"{path}={found[path]}"
    # The configuration is valid by itself.
    assert form.panel.checked["commands"]
    assert enter(form, **{path: before}) == {}


def test_a_folder_that_is_there_by_now_is_no_longer_missed(form, tmp_path):
    folder = tmp_path / "images"
    assert "is not a folder" in enter(form, data=str(folder))["data"]

    folder.mkdir()
    hear(form.panel, kind="refresh", request="1")
    wait_for_form_threads()

    assert form.panel.checked["errors"] == {}


def test_what_was_refused_is_forgotten_while_another_field_is_bad(form):
    assert set(enter(form, nnodes="2")) == {"nnodes"}
    assert set(enter(form, steps="many")) == {"steps"}
    assert set(enter(form, nnodes="1")) == {"steps"}
    assert enter(form, steps="") == {}


def test_only_the_newest_of_what_was_entered_meanwhile_is_asked(monkeypatch):
    may_go_on = threading.Event()
    asked: list[int] = []

    def slowly(config):
        asked.append(config.steps)
        may_go_on.wait(60)
        return []

    monkeypatch.setattr(form_refusals, "refusals", slowly)
    told: list[int] = []
    checks = Refusals(lambda config, _: told.append(config.steps))
    checks.ask(nbkit.ExperimentConfig(steps=11))
    wait_until(lambda: asked, "the first question")
    for steps in (12, 13):
        checks.ask(nbkit.ExperimentConfig(steps=steps))
    may_go_on.set()
    wait_for_form_threads()

    assert asked == told == [11, 13]


def test_a_check_that_breaks_is_said_and_is_not_the_end(monkeypatch):
    monkeypatch.setattr(form_refusals, "refusals", lambda _: 1 / 0)
    told: list[str] = []
    checks = Refusals(lambda _, found: told.extend(map(str, found)))

    checks.ask(nbkit.ExperimentConfig())
    wait_for_form_threads()

    assert told == ["Could not check the launch: ZeroDivisionError: division by zero"]


def test_what_names_no_field_of_the_form_is_said_above_all():
    refused = [
        ConfigError("nnodes=2: too many."),
        DeviceError("nobody=1: unknown."),
        DeviceError("2 of 2 devices requested"),
    ]

    found = by_field(refused, CONTROLS)

    assert found == {
        "nnodes": "nnodes=2: too many.",
        "": "nobody=1: unknown.\n2 of 2 devices requested",
    }


def test_all_that_would_be_refused_is_said_at_once():
    config = nbkit.ExperimentConfig(nnodes=2, data="/nowhere")

    begins = [str(error).partition("=")[0] for error in refusals(config)]

    assert begins == ["data", "nnodes"]
