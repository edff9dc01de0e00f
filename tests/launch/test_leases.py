"""Ranks and their loading processes hold the lease of their devices."""

from __future__ import annotations

import os
from pathlib import Path

import nbkit
from nbkit.launch.devices.pool_folder import pool_folder
from tests.waiting import patient, wait_until


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


def names_held() -> list[str]:
    return [Path(file).name for file in held_by(os.getpid())]


def names_held_by_workers(start_method):
    """Return what the rank holds, and what each of its loading processes holds."""
    import torch.utils.data

    class Held(torch.utils.data.Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return names_held()

    loader = torch.utils.data.DataLoader(
        Held(), batch_size=None, num_workers=1, multiprocessing_context=start_method
    )
    return names_held(), next(iter(loader))


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


def test_loading_process_holds_lease():
    run = nbkit.launch(
        names_held_by_workers, args=("fork",), device="cpu", oversubscribe=True
    ).wait(patient(120))

    ((by_rank, by_worker),) = run.returns
    assert by_rank
    assert by_worker == by_rank
