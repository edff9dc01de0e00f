"""Which rank of a function failed, where and how; nothing is left running."""

from __future__ import annotations

from nbkit.launch.devices.claims import leases
from tests.launch.function_faults import (
    CELL,
    RANKS,
    STUBBORN_CELL,
    check_fault,
    check_stop,
    launch_fault,
)
from tests.notebooks.kernel import running_kernel


def test_function_faults_in_a_cell():
    with running_kernel() as kernel:
        kernel.execute(CELL)
        for bad, how in enumerate(("exception", "SIGSEGV", "out of memory")):
            check_fault(launch_fault(kernel, how, bad % RANKS), how, bad % RANKS)
        assert leases("cpu") == {}
        kernel.execute(STUBBORN_CELL)
        check_stop(kernel)
