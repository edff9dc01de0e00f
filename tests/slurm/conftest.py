"""A real Slurm of two nodes for the tests of this folder, empty after each of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import nbkit
from tests.launch.conftest import install_plugins, plugins, small, store
from tests.slurm.cluster import SlurmCluster
from tests.slurm.runs import TwoNodes, losses

__all__ = ["plugins", "small", "store"]


@pytest.fixture(autouse=True)
def empty_after_each_test(empty_slurm: SlurmCluster) -> None:
    """Let every test of this folder leave Slurm as it found it."""


@pytest.fixture(scope="session")
def two_nodes(slurm: SlurmCluster, small) -> TwoNodes:
    """Return what launches runs on both nodes."""
    return TwoNodes(slurm, small)


@pytest.fixture(scope="session")
def finished(
    two_nodes: TwoNodes, tmp_path_factory: pytest.TempPathFactory
) -> nbkit.Run:
    """Return a run of one rank on each node that was left alone to its end."""
    with _shared_store(tmp_path_factory):
        run = two_nodes.launch(tags={"study": "s1"})
        return two_nodes.end(run)


@pytest.fixture(scope="session")
def left_alone(
    two_nodes: TwoNodes, tmp_path_factory: pytest.TempPathFactory
) -> dict[int, float]:
    """Return the losses of one rank on each node whom nothing happens to.

    They are those of two ranks here: nodes change no loss.
    """
    with _shared_store(tmp_path_factory):
        return losses(two_nodes.launch(engine="local", nnodes=1, gpus=2).wait())


@contextmanager
def _shared_store(factory: pytest.TempPathFactory) -> Iterator[None]:
    """Launch runs that several tests look at into a store of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NBKIT_HOME", str(factory.mktemp("shared") / "store"))
        install_plugins(patch)
        yield
