"""A job that a rank has submitted completes, however the run ends."""

from __future__ import annotations

import pytest

from tests.slurm.conftest import (
    empty_after_each_test,
    plugins,
    small,
    store,
    two_nodes,
)
from tests.slurm.test_submitted_jobs import ENDS, check_submitted_job

__all__ = ["empty_after_each_test", "plugins", "small", "store", "two_nodes"]


@pytest.mark.parametrize("how", ENDS)
def test_submitted_job_completes(how, two_nodes, slurm, tmp_path):
    check_submitted_job(how, two_nodes, slurm, tmp_path)
