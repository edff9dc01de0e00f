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


LAUNCH = """
import nbkit, time
def train():
    for step in range(1_000_000):
        nbkit.log({"loss": 1.0}, step=step)
        time.sleep(0.05)
options = {"device": "cpu", "oversubscribe": True, "tensorboard": False}
run = nbkit.launch(train, **options)
"""


def test_run_of_a_page_outlives_its_kernel():
    # It is kept unless the launch says otherwise.
    with running_kernel() as kernel:
        run = nbkit.attach(kernel.execute(LAUNCH, "run.run_id"))
        wait_until(lambda: _steps(run), "a first step", 120)

        for happening in (interrupt, restart, shut_down):
            happening(kernel, run)

            _wait_for_more_steps(run)
            assert run.state is RunState.RUNNING, happening
            at_least = len(_steps(run))
            state, steps = kernel.execute(
                f"import nbkit\nrun = nbkit.attach({run.run_id!r})",
                "str(run.state), [line['step'] for line in run.metrics('log')]",
            )
            assert state == "running", happening
            assert steps == list(range(len(steps))), happening
            assert len(steps) >= at_least, happening

    run.stop()
    assert run.state is RunState.STOPPED
    wait_until(lambda: not processes_of_run(run.paths), "no process left")


def _steps(run):
    return run.metrics("log")


def _wait_for_more_steps(run):
    before = len(_steps(run))
    wait_until(lambda: len(_steps(run)) >= before + 5, "five more steps")


def _next_output(kernel):
    message = kernel.client.get_iopub_msg(timeout=60)
    return message["content"].get("text")
