"""What becomes of a run when something happens to the kernel that launched it."""

from __future__ import annotations

import nbkit
from nbkit.launch.supervision.leftovers import processes_of_run
from nbkit.store.record import RunState
from tests.notebooks.kernel import running_kernel
from tests.waiting import wait_until


def interrupt(kernel, run):
    """Interrupt the cell that waits for the run."""
    request = kernel.client.execute("print('waiting', flush=True); run.wait()")
    wait_until(lambda: _next_output(kernel) == "waiting\n", "the waiting cell")
    kernel.manager.interrupt_kernel()
    assert kernel.reply_to(request)["ename"] == "KeyboardInterrupt"


def restart(kernel, run):
    """Restart the kernel: nothing of the old process is left."""
    before = kernel.identity
    kernel.disconnect()
    kernel.manager.restart_kernel()
    kernel.connect()
    assert not before.is_alive()


def shut_down(kernel, run):
    """Shut the kernel down, and come back with a new one later."""
    kernel.disconnect()
    kernel.manager.shutdown_kernel()
    assert not kernel.identity.is_alive()
    _wait_for_more_steps(run)
    kernel.start()


def test_kept_run_outlives_kernel(small):
    config = small(model="slow", steps=100_000)
    with running_kernel() as kernel:
        run = nbkit.attach(
            kernel.execute(
                "import nbkit\n"
                f"config = nbkit.ExperimentConfig.from_json({config.to_json()!r})\n"
                "run = nbkit.launch(config, on_owner_exit='keep')",
                "run.run_id",
            )
        )
        wait_until(run.metrics, "a first step", 120)

        for happening in (interrupt, restart, shut_down):
            happening(kernel, run)

            _wait_for_more_steps(run)
            assert run.state is RunState.RUNNING, happening
            at_least = len(run.metrics())
            state, steps = kernel.execute(
                f"import nbkit\nrun = nbkit.attach({run.run_id!r})",
                "str(run.state), [line['step'] for line in run.metrics()]",
            )
            assert state == "running", happening
            assert steps == list(range(1, len(steps) + 1)), happening
            assert len(steps) >= at_least, happening

    run.stop()
    assert run.state is RunState.STOPPED
    wait_until(lambda: not processes_of_run(run.paths), "no process left")


def _wait_for_more_steps(run):
    before = len(run.metrics())
    wait_until(lambda: len(run.metrics()) >= before + 5, "five more steps")


def _next_output(kernel):
    message = kernel.client.get_iopub_msg(timeout=60)
    return message["content"].get("text")
