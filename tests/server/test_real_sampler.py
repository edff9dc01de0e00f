"""The server and the sampler's own process together, with traces in place of GPUs."""

from __future__ import annotations

import base64
import json

import nbkit
from nbkit.server.history import GAP
from nbkit.store.processes import hostname
from tests.launch.conftest import plugins, small, store
from tests.waiting import wait_until

__all__ = ["plugins", "small", "store"]


def test_a_trace_is_shown_as_one_and_fills_the_history(start):
    server = start(
        "--NbkitServer.metrics=True",
        real_sampler=True,
        variables={"NBKIT_GPU_SOURCE": "replay:eight-gpus"},
    )
    with server.view() as view:
        inventory = view.next("inventory")
        sample = view.next("sample")
        seconds = sample["t"] + 2
        wait_until(lambda: view.next("sample")["t"] > seconds, "some samples")

    with server.view() as view:
        history = view.next("history")
        again = view.next("sample")
    assert inventory["source"] == "replay"
    assert inventory["replay"] == "eight-gpus"
    uuids = [gpu["uuid"] for gpu in inventory["gpus"]]
    assert len(set(uuids)) == 8
    assert len(sample["gpus"]) == 8
    assert again["inventory"] == inventory["seq"]
    assert len(json.dumps(sample, separators=(",", ":"))) < 2048
    fine = history["parts"][0]
    assert list(fine["gpus"]) == uuids
    for columns in fine["gpus"].values():
        for column in columns.values():
            assert set(base64.b64decode(column)) - {GAP}
    assert set(base64.b64decode(fine["host"]["cpu_percent"])) - {GAP}
    # Replayed GPUs are not gauges.
    body = server.request("metrics").body
    assert "# TYPE nbkit_gpu_power_watts gauge" in body
    assert "nbkit_gpu_power_watts{" not in body


def test_what_a_run_has_sampled_is_in_the_history_of_the_first_viewer(
    start, store, plugins, small
):
    run = nbkit.launch(small(model="slow", steps=100_000))
    samples = run.paths.system(hostname())
    wait_until(
        lambda: samples.exists() and samples.read_text().count("\n") > 5, "samples"
    )
    server = start(real_sampler=True, variables={"NBKIT_HOME": str(store)})
    with server.view() as view:
        first = view.next("history")
        filled = view.next("history")
    run.stop(grace_seconds=0)

    lines = samples.read_text().splitlines()[1:3]
    assert all(part["count"] == 0 for part in first["parts"])
    fine = filled["parts"][0]
    # The first has no rate yet.
    assert fine["t0"] in [int(json.loads(line)["t"]) for line in lines]
    assert set(base64.b64decode(fine["host"]["memory_used_percent"])) - {GAP}
