"""A server that a JupyterHub has started: what works there, and for whom."""

from __future__ import annotations

import os

import pytest
import websocket

import nbkit
from tests.browser.hub import ALICE, BOB, hub
from tests.launch.conftest import PLUGINS
from tests.server.curves import RUN_ID
from tests.server.stored_runs import store_run, write_scalars
from tests.telemetry.traces import replay
from tests.waiting import wait_until

LAUNCH = """
import nbkit
nbkit.launch(nbkit.ExperimentConfig(
    model="slow", device="cpu", gpus=1, image_size=32, batch_size_per_gpu=4,
    steps=1_000_000, tensorboard=False, name="a long run", checkpoint_period_steps=2,
))
"""


@pytest.fixture(scope="module")
def users(tmp_path_factory, lasting):
    """Return a hub."""
    folders = os.pathsep.join([str(PLUGINS), os.environ["PYTHONPATH"]])
    variables = {"NBKIT_GPU_SOURCE": replay("one-gpu"), "PYTHONPATH": folders}
    with hub(tmp_path_factory.mktemp("hub"), **variables) as made:
        lasting.add(made.pid)
        yield made
    lasting.discard(made.pid)


@pytest.fixture(scope="module")
def alice(users):
    """Return the server of a user with a run that has curves."""
    server = users.start(ALICE)
    write_scalars(store_run(store_of(server), RUN_ID), "train/loss", [3.0, 2.0, 1.0])
    return server


def store_of(server):
    return server.folder / ".local" / "share" / "nbkit"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("nbkit/api/status", None),
        ("nbkit/api/runs", None),
        (f"nbkit/api/runs/{RUN_ID}", None),
        (f"nbkit/api/runs/{RUN_ID}/stop", {}),
        (f"nbkit/api/runs/{RUN_ID}/tensorboard", {}),
        (f"nbkit/tensorboard/{RUN_ID}/", None),
        ("nbkit/api/notebooks", None),
    ],
)
def test_another_user_is_refused(users, alice, path, body):
    assert users.server(ALICE, asker=BOB).request(path, body)[0] == 403


def test_another_user_sees_no_samples(users, alice):
    with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
        users.server(ALICE, asker=BOB).websocket("nbkit/api/stream")


def test_a_run_lives_on_when_the_hub_culls_the_server(users, alice, monkeypatch):
    monkeypatch.setenv("NBKIT_HOME", str(store_of(alice)))
    alice.execute(LAUNCH)
    run = nbkit.runs()[0]
    wait_until(lambda: run.metrics(), "a step")

    users.cull(ALICE)
    steps = len(run.metrics())
    wait_until(lambda: len(run.metrics()) > steps, "a step without the server")
    again = users.start(ALICE)
    rows = again.request("nbkit/api/runs")[1]["runs"]
    stopped = again.request(f"nbkit/api/runs/{run.run_id}/stop", {})

    assert [row["state"] for row in rows if row["run_id"] == run.run_id] == ["running"]
    assert stopped[0] == 202
    assert run.wait(60, raise_on_failure=False).state == "stopped"
