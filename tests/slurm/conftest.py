"""A real Slurm of two nodes for the tests of this folder, empty before each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import nbkit
from tests.launch.conftest import install_plugins, plugins, small, store
from tests.slurm.cluster import SlurmCluster, slurm_variables
from tests.slurm.runs import TwoNodes

__all__ = ["plugins", "small", "store"]


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


@pytest.fixture(autouse=True)
def empty_slurm(slurm: SlurmCluster, lasting: set[int]) -> Iterator[None]:
    """End every job that a test has left, and bring back the nodes that it has lost.

    A job may be left to this; a process that has got away from its job may not.
    """
    before = set(slurm.pids.values())
    yield
    left = slurm.clear()
    lasting.difference_update(before)
    lasting.update(slurm.pids.values())
    assert not left, f"left behind on the nodes: {left}"


@pytest.fixture(scope="session")
def two_nodes(slurm: SlurmCluster, small) -> TwoNodes:
    """Return what launches runs on both nodes."""
    return TwoNodes(slurm, small)


@pytest.fixture(scope="session")
def finished(
    two_nodes: TwoNodes, tmp_path_factory: pytest.TempPathFactory
) -> nbkit.Run:
    """Return a run that was left alone to its end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NBKIT_HOME", str(tmp_path_factory.mktemp("shared") / "store"))
        install_plugins(patch)
        run = two_nodes.launch(tags={"study": "s1"})
        return two_nodes.end(run)
