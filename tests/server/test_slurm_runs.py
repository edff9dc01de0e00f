"""Rows of runs that are jobs of Slurm, and what their nodes do."""

from __future__ import annotations

import json
import os

import pytest

from nbkit.errors import RunNotFoundError
from nbkit.live.nodes import MOST_NODES
from nbkit.server import rest
from nbkit.server.run_table import StoredRunTable
from nbkit.store.paths import RunPaths
from nbkit.store.processes import hostname
from nbkit.store.record import read_json, write_json
from tests.server.stored_runs import store_run
from tests.slurm_programs import SlurmPrograms

RUN_ID = "20200101-000000-far-aaaa"
SUBMITTED = "2020-01-01T00:00:00.000Z"
ELSEWHERE = {"pid": 7, "start_ticks": 7, "host": "n1", "boot_id": "b"}


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    return SlurmPrograms(tmp_path, monkeypatch)


@pytest.fixture
def paths(tmp_path, monkeypatch):
    """Return the files of a run that Slurm has, the only one of its store."""
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    paths = RunPaths(store_run(tmp_path, RUN_ID))
    paths.record.unlink()
    submission = {
        "attempt": 0,
        "time": SUBMITTED,
        "name": "far away",
        "supervisor": None,
        "job": {"id": "7", "cluster": None},
    }
    write_json(paths.submission, submission)
    return paths


def _row():
    [row] = StoredRunTable(None).poll([]).rows
    return row


def _write_record(paths, state="running", nodes=()):
    launch = {"devices": ["GPU-a", "GPU-b"], "job": {"nodes": nodes}}
    record = {"attempt": 0, "state": state, "supervisor": ELSEWHERE, "launch": launch}
    write_json(paths.record, {**record, "name": "far away"})


def _write_samples(paths, node, *samples):
    file = paths.system(node)
    file.parent.mkdir(exist_ok=True)
    lines = [{"kind": "header"}, *samples]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def _sample(t, uuid, percent):
    gpu = {"index": 0, "uuid": uuid, "name": "A100", "memory_used_bytes": 1 << 30}
    gpus = [{**gpu, "gpu_utilization_percent": percent}, {"index": 1, "uuid": "other"}]
    return {"kind": "sample", "t": t, "gpus": gpus, "host": {"cpu_percent": 12.5}}


def test_a_run_that_waits_in_slurm_has_a_name_a_reason_and_no_place(paths, slurm):
    slurm.tell("squeue", "7|PENDING|1580738700||Priority")

    row = _row()

    assert (row["name"], row["state"], row["cause"]) == ("far away", "queued", None)
    queue = row["queue"]
    assert (queue["position"], queue["length"], queue["since"]) == (
        None,
        None,
        SUBMITTED,
    )
    assert "higher priority are ahead (Priority)" in queue["reason"]
    assert "starts about 2020-02-03 14:05 UTC" in queue["reason"]


def test_a_run_that_was_cancelled_before_its_start_has_an_end(paths, slurm):
    slurm.tell("squeue", "7|CANCELLED|N/A||None")
    write_json(paths.stop, {"attempt": 0, "by": "user"})

    row = _row()

    assert (row["state"], row["queue"]) == ("stopped", None)
    assert row["cause"] == "stopped by user, before its ranks were started"
    assert row["ended"] is not None


def test_a_resumed_run_whose_job_was_cancelled_ended_after_the_attempt_before(
    paths, slurm
):
    slurm.tell("squeue", "7|CANCELLED|N/A||None")
    _write_record(paths, "stopped")
    paths.metrics.touch()
    submission = {**(read_json(paths.submission) or {}), "attempt": 1}
    write_json(paths.submission, submission)
    for file, seconds in ((paths.record, 10), (paths.metrics, 20)):
        os.utime(file, (seconds, seconds))
    os.utime(paths.submission, (30, 30))

    row = _row()

    assert (row["state"], row["started"]) == ("stopped", None)
    assert row["ended"] == "1970-01-01T00:00:30.000Z"


def test_a_run_under_way_says_how_many_other_hosts_tell_of_it(paths, slurm):
    slurm.tell("squeue", "7|RUNNING|1580738700|n[1-2]|None")
    _write_record(paths)
    for node in ("n1", "n2", hostname()):
        _write_samples(paths, node)

    assert (_row()["state"], _row()["num_nodes"]) == ("running", 2)
    _write_record(paths, nodes=["n2", "n7"])  # it was put back, and n1 is another's
    assert _row()["num_nodes"] == 1
    _write_record(paths, "finished")
    assert _row()["num_nodes"] == 0


def test_the_newest_values_of_each_node_are_of_the_runs_gpus_only(paths):
    _write_record(paths)
    _write_samples(paths, "n1", _sample(1.0, "GPU-a", 10), _sample(2.0, "GPU-a", 90))
    _write_samples(paths, "n2", _sample(2.5, "GPU-b", None))
    with paths.system("n2").open("a") as file:
        file.write('{"kind": "sample", "t": 9')
    _write_samples(paths, "n3")

    found = rest.other_nodes(RUN_ID)

    first, second, third = found["nodes"]
    assert (first["node"], first["t"], first["cpu_percent"]) == ("n1", 2.0, 12.5)
    [gpu] = first["gpus"]
    assert (gpu["uuid"], gpu["gpu_utilization_percent"]) == ("GPU-a", 90)
    assert gpu["memory_used_bytes"] == 1 << 30
    assert second["t"] == 2.5
    assert second["gpus"][0]["gpu_utilization_percent"] is None
    assert (third["node"], third["t"], third["gpus"]) == ("n3", None, [])
    assert found["num_more"] == 0


def test_of_many_nodes_only_some_are_read(paths):
    _write_record(paths)
    for number in range(MOST_NODES + 3):
        _write_samples(paths, f"n{number:03d}")

    found = rest.other_nodes(RUN_ID)

    assert (len(found["nodes"]), found["num_more"]) == (MOST_NODES, 3)


def test_nodes_of_what_is_no_run_are_refused(paths):
    with pytest.raises(RunNotFoundError):
        rest.other_nodes("../../etc")


def test_a_run_that_slurm_has_put_back_is_queued_though_slurm_was_silent_at_first(
    paths, slurm, monkeypatch
):
    launch = {"devices": [], "job": {"id": "7", "cluster": None}}
    cause = {"kind": "stopped", "by": "slurm", "message": "stopped by Slurm"}
    values = {"supervisor": ELSEWHERE, "launch": launch, "cause": cause}
    write_json(paths.record, {"attempt": 0, "state": "stopped", **values})
    table = StoredRunTable(None)
    slurm.tell("squeue", status=1, words="Unable to contact slurm controller")
    assert [row["state"] for row in table.poll([]).rows] == ["stopped"]

    slurm.tell("squeue", "7|PENDING|N/A||Priority")
    monkeypatch.setattr("nbkit.store.jobs.clusters", {})  # its rest is over

    [row] = table.poll([]).rows
    assert (row["state"], row["cause"]) == ("queued", None)
    assert "(Priority)" in row["queue"]["reason"]
