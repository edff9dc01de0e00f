"""Ranks and their loading processes hold the lease of their devices."""

from __future__ import annotations

import os
from pathlib import Path

import nbkit
from nbkit.launch.devices.pool_folder import pool_folder
from tests.waiting import wait_until


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


def test_ranks_hold_leases():
    run = nbkit.launch(wait_for_ever, gpus=2, device="cpu", oversubscribe=True)
    files = run.paths.process_files
    wait_until(lambda: len(files()) == 2, "both ranks", 120)
    # Ranks may say who they are before their supervisor does.
    ranks = wait_until(lambda: started(run), "the supervisor's word", 120)

    supervisor = run.record["supervisor"]["pid"]
    assert held_by(supervisor)
    for pid in ranks:
        assert held_by(pid) == held_by(supervisor)
    run.stop(grace_seconds=0)


def started(run: nbkit.Run) -> list[int]:
    """Return the pids of the ranks; empty before they are known."""
    return next((event["pids"] for event in run.events if "pids" in event), [])


def wait_for_ever():
    import time

    time.sleep(3600)
