"""Runs of a cluster in the sidebar: for what one waits, and what another's nodes do."""

from __future__ import annotations

import json

from playwright.sync_api import expect

from nbkit.store.paths import RunPaths
from nbkit.store.record import read_json, utc_now, write_json
from tests.browser.sidebar import open_panel
from tests.server.stored_runs import store_run

QUEUED = "20200103-000000-waits-aaaa"
RUNNING = "20200104-000000-runs-aaaa"
REASON = "Slurm: jobs of higher priority are ahead (Priority); starts about 14:05 UTC"


def _store(store, run_id, state, **values):
    paths = RunPaths(store_run(store, run_id, state))
    write_json(paths.record, {**(read_json(paths.record) or {}), **values})
    return paths


def _write_sample(paths, node, t, percent, gibibytes):
    gpu = {
        "index": 0,
        "uuid": f"GPU-{node}",
        "name": "A100",
        "gpu_utilization_percent": percent,
        "memory_used_bytes": gibibytes << 30,
        "memory_total_bytes": 80 << 30,
    }
    sample = {"kind": "sample", "t": t, "gpus": [gpu], "host": {"cpu_percent": 12.0}}
    file = paths.system(node)
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(sample) + "\n")


def test_a_run_of_a_cluster_says_why_it_waits_and_what_its_nodes_do(shared_lab, page):
    server = shared_lab("replay:no-gpu")
    queue = {"position": None, "length": None, "reason": REASON, "since": utc_now()}
    _store(server.store, QUEUED, "queued", name="waits", queue=queue)
    uuids = ["GPU-n1", "GPU-n2"]
    paths = _store(
        server.store, RUNNING, "running", name="runs", launch={"devices": uuids}
    )
    _write_sample(paths, "n1", 4e9, 75, 40)
    _write_sample(paths, "n2", 1e9, None, 8)
    panel = open_panel(page(server.address()))

    waits = panel.locator(".nbk-run", has_text="waits")
    expect(waits).to_contain_text(REASON)
    expect(waits).not_to_contain_text("place")

    runs = panel.locator(".nbk-run", has_text="runs")
    unfold = runs.get_by_role("button", name="GPUs of 2 nodes")
    expect(unfold).to_have_attribute("aria-expanded", "false")
    unfold.click()
    busy = runs.get_by_role("meter", name="Utilization of GPU 0 of n1")
    expect(busy).to_have_attribute("aria-valuenow", "75")
    expect(runs.get_by_role("listitem", name="n1")).to_contain_text("40.0 / 80.0 GiB")
    silent = runs.get_by_role("listitem", name="n2")
    expect(silent).to_contain_text("CPU 12% · last values ")
    expect(silent).to_contain_text("–")

    # What it shows is of now: it is asked for again.
    _write_sample(paths, "n1", 4e9, 20, 40)
    expect(busy).to_have_attribute("aria-valuenow", "20")
    unfold.click()
    expect(busy).to_have_count(0)
