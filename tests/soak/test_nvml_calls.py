"""How often the driver is asked does not depend on how many look."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from pathlib import Path

from tests.server.conftest import start
from tests.waiting import wait_until

__all__ = ["start"]

FAKE = Path(__file__).parents[1] / "telemetry" / "fake_nvml"
UTILIZATION = "nvmlDeviceGetUtilizationRates"


def calls_per_sample(server, calls):
    """Return how often utilization is read for a sample, as a new viewer sees them."""

    def count():
        return time.time(), calls.read_text().splitlines().count(UTILIZATION)

    with server.view() as view:
        times = [view.next("sample")["t"]]
        begun, before = count()
        while times[-1] < begun + 1.25:
            times.append(view.next("sample")["t"])
        ended, after = count()
        # The viewer may be late.
        while times[-1] < ended:
            times.append(view.next("sample")["t"])
    return (after - before) / sum(begun < t <= ended for t in times)


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
        for_one = calls_per_sample(server, calls)
        with contextlib.ExitStack() as stack:
            for _ in range(15):
                stack.enter_context(server.view()).next("sample")
            for_sixteen = calls_per_sample(server, calls)

    wait_until(lambda: server.sampler() is None, "the end of the sampler")
    for_all = Counter(calls.read_text().splitlines())
    # Sixteen times as often if each were served by itself.
    assert for_sixteen < 4 * for_one
    assert for_all["nvmlInit"] == 1
    # It takes 20 ms; counters say the same.
    assert "nvmlDeviceGetPcieThroughput" not in for_all
