"""Where each rank of a run is now, and which devices it holds, while it goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import nbkit
from nbkit.cli.main import main
from nbkit.errors import RunError
from nbkit.launch.devices.pool_folder import pool_folder
from nbkit.store.record import RunState
from tests.waiting import patient, wait_until

SCRIPT = """
import os, signal, sys, time
from pathlib import Path
folder, rank = Path(sys.argv[1]), os.environ["RANK"]

def even_rank():
    while not (folder / "gate").exists():
        print("busy", file=sys.stderr, flush=True)
        time.sleep(0.01)

def odd_rank():
    while not (folder / "gate").exists():
        time.sleep(0.01)

signal.signal(signal.SIGUSR2, lambda *_: os._exit(3))  # before a preemption
(folder / rank).touch()
{"0": even_rank, "1": odd_rank}[rank]()
"""


def held_by(pid: int) -> list[str]:
    """Return the device files that a process has open."""
    files = []
    for entry in os.scandir(f"/proc/{pid}/fd"):
        try:
            target = str(Path(entry.path).readlink())
        except FileNotFoundError:
            continue
        if target.startswith(f"{pool_folder()}/devices/"):
            files.append(target)
    return files


def started(run: nbkit.Run) -> list[int]:
    """Return the pids of the ranks; empty before they are known."""
    return next((event["pids"] for event in run.events if "pids" in event), [])


def test_stacks_and_leases_of_a_run_that_goes_on(tmp_path, capsys):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    run = nbkit.launch(
        script, args=[tmp_path], gpus=2, device="cpu", oversubscribe=True
    )
    begun = [tmp_path / rank for rank in "01"]
    wait_until(lambda: all(file.exists() for file in begun), "both ranks", 120)
    # Ranks may say who they are before their supervisor does.
    ranks = wait_until(lambda: started(run), "the supervisor's word", 120)
    supervisor = run.record["supervisor"]["pid"]
    assert held_by(supervisor)
    for pid in ranks:
        assert held_by(pid) == held_by(supervisor)

    def both():
        texts = run.stacks()
        is_there = all("_rank\n" in text for text in texts.values())
        return texts if is_there else None

    by_rank = wait_until(both, "both ranks in their functions")
    code = main(["stacks", run.run_id, "--json"])

    assert set(by_rank) == {0, 1}
    for rank, name, line in ((0, "even_rank", 9), (1, "odd_rank", 13)):
        frames = [text for text in by_rank[rank].splitlines() if f"in {name}" in text]
        assert frames[0].startswith(f'  File "{script}", line ')
        assert int(frames[0].split(", line ")[1].split()[0]) in range(
            line - 2, line + 1
        )
    assert "busy" not in by_rank[0]
    assert code == 0
    assert "in odd_rank" in json.loads(capsys.readouterr().out)["1"]

    (tmp_path / "gate").touch()
    assert run.wait(patient(120)).state is RunState.FINISHED
    with pytest.raises(RunError, match=r"\(finished\) has no rank of this user"):
        run.stacks()
