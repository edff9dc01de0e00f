"""The one Slurm of a test process, for whichever folder asks for it first.

Two would take `SLURM_CONF` from each other, so this is a plugin, and not a fixture that
files import: pytest makes another one for each of these.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.slurm.cluster import SlurmCluster, slurm_variables


@pytest.fixture(scope="session")
def slurm(request: pytest.FixtureRequest, lasting: set[int]) -> Iterator[SlurmCluster]:
    """Start Slurm, and let every command in this process and its children mean it."""
    cluster = SlurmCluster()
    failed_before = request.session.testsfailed
    cluster.start()
    try:
        lasting.update(cluster.pids.values())
        with slurm_variables(cluster):
            yield cluster
    finally:
        lasting.difference_update(cluster.pids.values())
        cluster.stop(keep=request.session.testsfailed > failed_before)


@pytest.fixture
def empty_slurm(slurm: SlurmCluster, lasting: set[int]) -> Iterator[SlurmCluster]:
    """End every job that a test has left, and bring back the nodes that it has lost.

    A job may be left to this; a process that has got away from its job may not.
    """
    assert os.environ["SLURM_CONF"] == str(slurm.conf), "another cluster is meant"
    before = set(slurm.pids.values())
    yield slurm
    left = slurm.clear()
    lasting.difference_update(before)
    lasting.update(slurm.pids.values())
    assert not left, f"left behind on the nodes: {left}"
