"""Which variables of the environment a record keeps."""

from __future__ import annotations

import pytest

from nbkit.launch.variables import is_recorded


@pytest.mark.parametrize("name", ["SLURM_JWT", "NBKIT_TOKEN", "HOME"])
def test_a_secret_is_never_recorded(name):
    assert not is_recorded(name)


@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "NCCL_DEBUG", "OMP_NUM_THREADS"])
def test_what_changes_results_is_recorded(name):
    assert is_recorded(name)
