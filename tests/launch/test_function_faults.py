"""Which rank of a function failed, where and how; nothing is left running."""

from __future__ import annotations

from tests.launch.function_faults import (
    CELL,
    EXPECTED,
    STUBBORN_CELL,
    check_fault,
    check_stop,
)
from tests.notebooks.kernel import running_kernel


def test_the_failing_rank_is_named_with_the_line_of_its_cell():
    with running_kernel() as kernel:
        kernel.execute(CELL)
        for bad, how in enumerate(EXPECTED):
            check_fault(kernel, how, bad % 4)
        kernel.execute(STUBBORN_CELL)
        check_stop(kernel)
