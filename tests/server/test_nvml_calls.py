"""How often the driver is asked does not depend on how many look."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from pathlib import Path

from tests.waiting import wait_until

FAKE = Path(__file__).parents[1] / "telemetry" / "fake_nvml"


def calls_of_five_samples(server, calls):
    """Count calls from one sample to the fifth after it, as a new viewer sees them."""
    with server.view() as view:
        view.next("sample")
        before = Counter(calls.read_text().splitlines())
        for _ in range(5):
            view.next("sample")
        return Counter(calls.read_text().splitlines()) - before


def test_the_driver_is_asked_as_often_for_sixteen_viewers_as_for_one(start, tmp_path):
    calls = tmp_path / "calls"
    gpus = [{"uuid": f"GPU-{index}"} for index in range(2)]
    fake = json.dumps({"gpus": gpus, "calls_file": str(calls)})
    server = start(
        real_sampler=True,
        variables={"PYTHONPATH": str(FAKE), "FAKE_NVML": fake},
    )
    with server.view() as view:
        for _ in range(3):  # what is asked once is known by then
            view.next("sample")
        for_one = calls_of_five_samples(server, calls)
        with contextlib.ExitStack() as stack:
            for _ in range(15):
                stack.enter_context(server.view()).next("sample")
            for_sixteen = calls_of_five_samples(server, calls)

    wait_until(lambda: server.sampler() is None, "the end of the sampler")
    for_all = Counter(calls.read_text().splitlines())
    utilization = "nvmlDeviceGetUtilizationRates"
    assert for_one[utilization] >= 4
    # Sixteen times as often if each were served by itself.
    assert for_sixteen[utilization] < 4 * for_one[utilization]
    assert for_all["nvmlInit"] == 1
    # It takes 20 ms; counters say the same.
    assert "nvmlDeviceGetPcieThroughput" not in for_all
