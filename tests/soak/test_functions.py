"""Every fault of a function twenty times, each rank in turn."""

from __future__ import annotations

import pytest

from tests.launch.conftest import plugins, store
from tests.launch.faults import DETECTED_WITHIN_SECONDS
from tests.launch.function_faults import (
    CELL,
    EXPECTED,
    RANKS,
    STUBBORN_CELL,
    check_fault,
    check_stop,
    launch_fault,
)
from tests.notebooks.kernel import running_kernel
from tests.soak.test_faults import ROUNDS

__all__ = ["plugins", "store"]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("how", EXPECTED)
def test_fault(how):
    with running_kernel() as kernel:
        kernel.execute(CELL)
        for round_number in range(ROUNDS):
            bad = round_number % RANKS
            seconds = check_fault(launch_fault(kernel, how, bad), how, bad)
            assert seconds <= DETECTED_WITHIN_SECONDS


@pytest.mark.timeout(3600)
def test_stop():
    with running_kernel() as kernel:
        kernel.execute(STUBBORN_CELL)
        for _ in range(ROUNDS):
            assert check_stop(kernel) <= DETECTED_WITHIN_SECONDS
