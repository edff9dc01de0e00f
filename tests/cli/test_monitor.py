"""GPUs with their holders in a terminal: traces are played, and labelled so."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from nbkit.cli.gpu_table import gpu_table, gpu_values
from nbkit.cli.main import main
from nbkit.telemetry.frames import GPU_COLUMNS, HOST_COLUMNS
from tests.cli.conftest import COMMAND
from tests.telemetry.traces import replay
from tests.widgets.stored_run import WrittenRun

INVENTORY = {"host": "n1", "driver_version": None, "source": "nvml", "gpus": []}
INVENTORY |= {"gpus_unavailable": None, "gpu_columns": GPU_COLUMNS, "cpus": 64}
INVENTORY |= {"usable_cpus": None, "memory_limit_mib": None, "memory_total_mib": 4096}
INVENTORY |= {"clock_event_words": [], "host_columns": HOST_COLUMNS}
HOST = {"t": 0.0, "host_values": [50.0, 1.5, 1024, *[None] * (len(HOST_COLUMNS) - 3)]}


def test_monitor_replay(nbkit_command, store):
    last = "GPU-5c810007-7e1a-4b0d-9c2f-6e6270690007"
    WrittenRun(store).record("running", launch={"devices": [last]})

    done = nbkit_command("monitor", "--once", NBKIT_GPU_SOURCE="replay:eight-gpus")

    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "driver 570.86.15  CUDA 12.8" in lines[0]
    assert lines[1] == "REPLAY of eight-gpus: not this machine's GPUs"
    places = [place for place, line in enumerate(lines) if "NVIDIA H100" in line]
    assert [lines[place].split()[0] for place in places] == [str(n) for n in range(8)]
    of_first, of_fifth = lines[places[0] + 1], lines[places[5] + 1]
    assert of_first.strip() == "62.5 GiB  run resnet50, 4 GPUs, ann, pid 3000"
    assert "bob, pid 3205: python finetune.py" in of_fifth
    assert "explore.ipynb, ann, pid 3104, idle for 1 h 30 min" in lines[places[4] + 1]
    assert lines[places[7] + 1].strip() == "– GiB  run written"
    # Two readings make a share: it is of this machine's processors.
    assert " CPUs " in lines[-1]
    assert "–" not in lines[-1]


def test_monitor_json(monkeypatch, capsys):
    monkeypatch.setenv("NBKIT_GPU_SOURCE", "replay:eight-gpus")

    assert main(["monitor", "--json"]) == 0

    values = json.loads(capsys.readouterr().out)
    assert values["replay"] == "eight-gpus"
    first = values["gpus"][0]
    assert (first["name"], first["memory_total_mib"]) == (
        ("NVIDIA H100 80GB HBM3", 80 * 1024)
    )
    assert 0 <= first["utilization_percent"] <= 100
    [holder] = first["holders"]
    assert (holder["user"], holder["pid"]) == ("ann", 3000)
    assert holder["memory_used_mib"] / 1024 == pytest.approx(62.5, abs=0.1)


@pytest.mark.parametrize(
    ("then", "said"), [("", "in despair"), ("; os.utime(2, (0, 0))", "no output")]
)
def test_monitor_sampler_ended(store, monkeypatch, capsys, then, said):
    program = f"import os; os.write(2, b'in despair'){then}"
    monkeypatch.setattr("nbkit.server.monitor.FEED_COMMAND", ["-c", program])

    assert main(["monitor", "--once"]) == 2
    assert f"ended ({said})" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("trace", "said"),
    [
        ("no-gpu", "GPUs cannot be read (driver not loaded): "),
        ("throttling", "! slowed: "),
        ("nosuchtrace", "nosuchtrace.jsonl cannot be used"),
    ],
)
def test_what_is_unusual_is_said(monkeypatch, capsys, trace, said):
    monkeypatch.setenv("NBKIT_GPU_SOURCE", replay(trace))

    assert main(["monitor", "--once"]) == 0

    assert said in capsys.readouterr().out


def test_gpu_table_mig_holder():
    unknown = "index name memory_total_mib memory_unified power_limit_watts error xid"
    gpu = dict.fromkeys([*unknown.split(), "ecc_uncorrected_count"])
    holder = {"kind": "outside", "name": None, "path": None, "run_id": None}
    holder |= {"user": "eve", "pid": 7, "idle_since": None, "mig_uuid": "MIG-b"}
    holder["command"] = "python\x1b[2J a\nb\u202e.py"
    instances = [{"uuid": f"MIG-{name}", "memory_total_mib": 9} for name in "abc"]
    gpu |= {"holders": [holder], "mig_instances": instances}
    sample = {"gpus": [None], "mig": [[1, 2, 3]], "holders": [[1024]], **HOST}

    *_, held, _, _ = gpu_table(INVENTORY | {"gpus": [gpu]}, sample)

    [values] = gpu_values(INVENTORY | {"gpus": [gpu], "replay": None}, sample)["gpus"]
    assert [mig["memory_used_mib"] for mig in values["mig_instances"]] == [1, 2, 3]
    assert "MIG 1" in held
    assert held.endswith("eve, pid 7: python [2J a b .py")


@pytest.mark.parametrize(
    ("usable_cpus", "limit", "said"),
    [
        (None, None, "64 CPUs 50%, load 1.5, memory 1.0 / 4.0 GiB"),
        (0.5, 2048, "64 CPUs (0.5 usable) 50%, load 1.5, memory 1.0 / 4.0 GiB (2.0 "),
    ],
)
def test_gpu_table_host(usable_cpus, limit, said):
    inventory = {"usable_cpus": usable_cpus, "memory_limit_mib": limit}

    *_, host = gpu_table(INVENTORY | inventory, HOST)

    assert host.startswith(said)


def test_monitor_without_terminal():
    with subprocess.Popen(
        [*COMMAND, "monitor", "--interval", "0.25"],
        env={**os.environ, "NBKIT_GPU_SOURCE": replay("one-gpu")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        tables = 0
        while tables < 3:
            tables += " CPUs " in process.stdout.readline()
        process.stdout.close()  # as `head` does
        said = process.stderr.read()

    assert (process.returncode, said) == (141, "")
