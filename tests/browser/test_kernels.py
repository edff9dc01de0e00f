"""Processes that a driver names belong to real kernels, or to nobody of this server."""

from __future__ import annotations

import getpass
import json
import os
from pathlib import Path

from playwright.sync_api import expect

from nbkit.store.paths import RunPaths
from nbkit.store.record import read_json, utc_now, write_json
from tests.browser.rest import ask, kernel_pid, settle, start_kernel
from tests.browser.sidebar import card, open_panel, until
from tests.server.stored_runs import store_run

FAKE_NVML = Path(__file__).parents[1] / "telemetry/fake_nvml"


def driver(*gpus):
    """Return the variables with which a server's sampler finds GPUs."""
    return {"PYTHONPATH": str(FAKE_NVML), "FAKE_NVML": json.dumps({"gpus": gpus})}


def test_kernels_and_instances_are_named_by_what_the_driver_tells(lab, page, tmp_path):
    pids = tmp_path / "pids"
    pids.write_text("")
    instances = [{"uuid": "MIG-a"}, {"uuid": "MIG-b", "pids": [os.getpid()]}]
    divided = {"uuid": "GPU-b", "migs": instances}
    server = lab(None, **driver({"uuid": "GPU-a", "pids_file": str(pids)}, divided))
    kernel = start_kernel(server, "train.ipynb")
    first = kernel_pid(server, kernel)
    pids.write_text(str(first))
    visitor = page(server.address())
    panel = open_panel(visitor)
    holder = card(panel, 0).locator(".nbk-holder")
    expect(holder.get_by_role("button", name="train.ipynb", exact=True)).to_be_visible()
    expect(holder).to_contain_text(f"process {first} ")

    ask(server, f"api/kernels/{kernel}/restart", now=True)
    until(visitor, lambda: kernel_pid(server, kernel) not in (None, first), "a restart")
    # The driver may be late: it still names a process that is no more.
    expect(holder).to_contain_text("outside this server")
    expect(holder).not_to_contain_text("train.ipynb")
    second = kernel_pid(server, kernel)
    pids.write_text(str(second))

    expect(holder.get_by_role("button", name="train.ipynb", exact=True)).to_be_visible()
    expect(holder).to_contain_text(f"process {second} ")
    expect(holder).to_have_count(1)
    # Two instances of one profile are told apart.
    gpu = card(panel, 1)
    for name in ("1g.10gb #1", "1g.10gb #2"):
        meter = gpu.get_by_role("meter", name=f"Memory of MIG instance {name}")
        expect(meter).to_contain_text("1.0 / 80.0 GiB")
    holder = gpu.locator(".nbk-holder")
    expect(holder).to_have_count(1)
    expect(holder).to_contain_text(f"{getpass.getuser()} · outside")
    expect(holder).to_contain_text("1g.10gb #2")
    expect(holder).to_contain_text("MIG-b")
    expect(holder).not_to_contain_text("#1")
    # Starts of runs on an instance are marked in its GPU's history.
    run = RunPaths(store_run(server.store, "20200101-000000-part", "running"))
    record = read_json(run.record) | {"launch": {"devices": ["MIG-b"]}}
    write_json(run.record, record | {"time": {"started": utc_now(), "ended": None}})
    expect(gpu.locator(".nbk-sparkline-mark")).to_have_count(1)
    settle(visitor, server, 1)
