"""Runs whose ranks people start: a torchrun line pasted twice on one host."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

import nbkit
from nbkit.errors import ConfigError
from nbkit.launch.manual.engine import ManualEngine, manual_line
from nbkit.launch.manual.job import ManualDevices, wait_for_torchrun
from nbkit.launch.manual.ranks import TorchrunNode, TorchrunNodes
from nbkit.launch.supervision.leftovers import processes_of_run
from nbkit.store.processes import ProcessIdentity, hostname
from nbkit.store.record import RunState, write_json
from nbkit.store.stored_runs import create_run_folder
from tests.launch.terminals import by_hand, terminals
from tests.waiting import wait_until

__all__ = ["by_hand", "terminals"]

HOSTILE = 'a store\'s $$HOME `x`; "y" & z'


def test_manual_run_on_two_hosts(by_hand, terminals, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / HOSTILE))
    run = nbkit.launch(by_hand(steps=20))
    line = run.torchrun_line
    assert f"Paste this line on each of 2 hosts:\n\n{line}\n" in capsys.readouterr().out
    wait_until(lambda: run.queue, "the supervisor")
    assert run.state is RunState.QUEUED
    waits = "waiting for torchrun on 2 hosts: paste run.torchrun_line there"
    assert run.queue["reason"] == waits

    terminals.paste(line)
    ready = f"waiting for torchrun on 2 hosts; 1 running ({hostname()})"
    wait_until(lambda: run.queue and run.queue["reason"] == ready, "a host", 600)
    terminals.paste(line)
    run.wait(600)

    assert [rank["exit_code"] for rank in run.record["attempts"][0]["ranks"]] == [0] * 2
    # One host plays both nodes, which have their numbers in their names.
    names = {rank["node"] for rank in run.worker["ranks"]}
    assert names == {f"{hostname()}-0", f"{hostname()}-1"}
    assert {run.paths.system(name).exists() for name in names} == {True}
    assert run.record["system"]["nodes"].keys() == names
    assert run.record["launch"]["torchrun"] == line
    assert run.summary.world_size == 2
    assert run.summary.images_per_second is not None
    assert len(run.metrics()) == 20
    for rank in range(2):
        assert run.paths.rank(0, rank).process.exists()
        assert "Traceback" not in run.logs(rank)
    assert not processes_of_run(run.paths)
    assert f"run {run.run_id}: this host is ready (nnodes=2)" in terminals.screen(0)
    terminals.paste(line)
    assert "attempt 0 of run" in terminals.screen(2)
    terminals.close()
    assert [shell.returncode for shell in terminals.opened] == [0, 0, 1]


def test_manual_line_in_a_shell(by_hand, tmp_path):
    root = tmp_path / HOSTILE / "runs" / "20250101-000000-it"
    shown = tmp_path / "py thon"
    shown.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        "print(json.dumps([os.environ['OMP_NUM_THREADS'], *sys.argv[1:]]))\n"
    )
    shown.chmod(0o755)
    line = manual_line(
        by_hand(nnodes=3, gpus=8),
        root,
        2,
        host="node-1",
        port=29_400,
        python=str(shown),
        threads=6,
    )
    done = subprocess.run(["/bin/sh", "-c", line], stdout=subprocess.PIPE, check=True)

    threads, *argv = json.loads(done.stdout)
    assert threads == "6"
    assert argv[:3] == ["-P", "-m", "torch.distributed.run"]
    assert {"--nnodes=3", "--nproc-per-node=8", "--rdzv-endpoint=node-1:29400"} < {
        *argv
    }
    assert f"--log-dir={root}/logs/2" in argv
    assert "--rdzv-id=20250101-000000-it-2" in argv
    # torchrun itself makes one dollar sign of two.
    assert argv[-4:] == ["-P", "-m", "nbkit.worker", str(root).replace("$", "$$")]
    assert "\n" not in line
    assert shlex.split(line)[0] == "env"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_restarts": 2}, r"max_restarts=2: .* Run\.resume\(\)"),
        (
            {"device": "auto", "devices": (0,)},
            r"devices=\(0,\): engine='manual' does not support",
        ),
        ({"device": "replay"}, r"device='replay'\. .* engine='local'"),
        (
            {"device": "auto", "manual": {"rendezvous_host": "far.example"}},
            r"device='auto' .*far\.example.* Set device='cuda'",
        ),
    ],
)
def test_manual_engine_refusals(by_hand, fields, message):
    with pytest.raises(ConfigError, match=message):
        ManualEngine().check(by_hand(**fields))


def test_manual_engine_port_in_use(by_hand):
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        config = by_hand(manual={"rendezvous_port": port})
        with pytest.raises(ConfigError, match=f"rendezvous_port={port} is in use"):
            ManualEngine().check(config)

    assert ManualEngine().check(config)["request"] == {"kind": "cpu"}


def test_manual_engine_other_host(by_hand):
    there = {"rendezvous_host": "far.example"}
    wanted = ManualEngine().check(by_hand(manual=there))

    assert wanted["cpus_per_rank"] is None
    assert wanted["rendezvous_host"] == "far.example"


@pytest.mark.parametrize(
    ("hosts", "is_here"), [(["far"], False), (["far", hostname()], True)]
)
def test_manual_devices_here(hosts, is_here):
    started = [SimpleNamespace(report={"host": host}) for host in hosts]

    assert ManualDevices({}, SimpleNamespace(started=started)).is_here == is_here


@pytest.mark.parametrize(
    ("told", "fields", "threads"),
    [
        ("", {"gpus": 4}, 16),
        ("", {"cpus": (0, 1)}, 2),
        ("3", {"cpus": (0, 1)}, 3),
        ("4,2", {}, 4),
        ("0", {"gpus": 2}, 32),
    ],
)
def test_manual_engine_threads(told, fields, threads, by_hand, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", told)
    monkeypatch.setattr("nbkit.launch.devices.choice.usable_cpus", lambda: 64.0)

    assert ManualEngine().check(by_hand(**fields))["cpus_per_rank"] == threads


@pytest.mark.parametrize("host", ["node-1:29400", "two hosts", "a;b", "$(id)"])
def test_manual_rendezvous_host(by_hand, host):
    with pytest.raises(ConfigError, match="rendezvous_port"):
        by_hand(manual={"rendezvous_host": host})


def test_torchrun_node_silent():
    process = {**ProcessIdentity.of().to_dict(), "host": "elsewhere"}
    told = {"process": process, "name": "elsewhere", "is_over": False, "looks": 1}
    node = TorchrunNode(told)
    node.update(told, 40)
    assert node.loss is None
    node.update({**told, "looks": 2}, 40)
    node.update({**told, "looks": 2}, 40)
    assert node.loss is None
    node.update({**told, "looks": 2}, 40)
    assert node.loss == "no message from torchrun for 60 s"
    node.update({**told, "looks": 3, "is_over": True}, 90)
    assert node.loss is None


def test_torchrun_nodes_interrupted(by_hand):
    paths = create_run_folder(by_hand())
    folder = paths.torchrun(0)
    folder.mkdir(parents=True)
    waits = {"is_over": False, "looks": 1, "group_rank": 0, "ranks": []}
    waits["process"] = ProcessIdentity.of().to_dict()
    for host in "abc":
        told = {
            **waits,
            "host": host,
            "name": host,
            "ranks": [{}] if host == "c" else [],
        }
        write_json(folder / f"{host}-1.json", told)
    nodes = TorchrunNodes(paths, 0)
    nodes.look()
    assert nodes.ready == ["a", "b", "c"]

    (folder / "b-1.json").unlink()
    (folder / "c-1.json").unlink()
    nodes.look()

    assert nodes.ready == ["a", "c"]
    assert [node.name for node in nodes.started] == ["c"]


def test_wait_for_torchrun_file_server_away(by_hand):
    paths = create_run_folder(by_hand())
    paths.torchrun(0).mkdir(parents=True)
    (paths.torchrun(0) / "host-1.json").write_text("{")
    stop = {"by": "user", "grace_seconds": 0}
    asked = iter([[], [], [stop]])
    requests = SimpleNamespace(look=lambda: next(asked))
    journal = SimpleNamespace(
        record={"queue": None},
        error=None,
        set_state=lambda state, **details: None,
        write_heartbeat=lambda: None,
    )

    nodes = TorchrunNodes(paths, 0)
    assert wait_for_torchrun(paths.root, journal, nodes, requests) == stop
