"""The server and the sampler's own process together, with traces in place of GPUs."""

from __future__ import annotations

import base64
import json

from nbkit.server.history import GAP
from tests.waiting import wait_until


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
