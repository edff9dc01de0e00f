"""Each end of a notebook that takes its run along, as one round; tests and soak."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import nbkit
from nbkit.store.processes import ProcessIdentity
from tests.launch.faults import Make, Outcome, outcome
from tests.notebooks.executing import papermill_argv
from tests.notebooks.kernel import running_kernel
from tests.waiting import patient, wait_until


def papermill_is_ended(folder: Path, how: signal.Signals) -> Outcome:
    """End papermill while a run of the scaling notebook is under way."""
    argv = papermill_argv(
        "scaling",
        folder / "out.ipynb",
        *("-p", "device", "cpu", "-p", "gpus", "1", "-p", "model", "slow"),
        *("-p", "steps", "100000", "-p", "repeats", "1"),
    )
    null = subprocess.DEVNULL
    with subprocess.Popen(argv, stdout=null, stderr=null) as papermill:
        run = wait_until(lambda: nbkit.runs() and nbkit.runs()[0], "a run", 120)
        wait_until(lambda: len(run.metrics()) >= 3, "three steps", 120)
        began = time.time()
        os.kill(papermill.pid, how)
    return _outcome_without_kernel(run, began)


def kernel_group_is_killed(make: Make) -> Outcome:
    """Kill a kernel's whole process group while its run is under way."""
    config = make(model="slow", steps=10_000)
    with running_kernel() as kernel:
        run = nbkit.attach(
            kernel.execute(
                "import nbkit\n"
                f"config = nbkit.ExperimentConfig.from_json({config.to_json()!r})\n"
                "run = nbkit.launch(config, on_owner_exit='stop')",
                "run.run_id",
            )
        )
        wait_until(lambda: len(run.metrics()) >= 3, "three steps", 120)
        began = time.time()
        os.killpg(kernel.identity.pid, signal.SIGKILL)
        return _outcome_without_kernel(run, began)


def _outcome_without_kernel(run: nbkit.Run, began: float) -> Outcome:
    kernel = ProcessIdentity.from_dict(run.submission["owner"])
    run.wait(patient(120), raise_on_failure=False)
    ended = outcome(run, began)
    wait_until(lambda: not kernel.is_alive(), "the kernel's end")
    return ended
