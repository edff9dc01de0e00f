"""Which rank of a function failed, where and how; tests/soak has every fault."""

from __future__ import annotations

from nbkit.launch.devices.claims import leases
from tests.launch.function_faults import CELL, check_fault, launch_fault
from tests.notebooks.kernel import running_kernel


def test_function_fault_in_a_cell():
    with running_kernel() as kernel:
        kernel.execute(CELL)
        check_fault(launch_fault(kernel, "exception", 1), "exception", 1)
        assert leases("cpu") == {}
