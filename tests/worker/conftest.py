"""Folders of small images, data that is closed, a process that stays as it was."""

from collections.abc import Callable

import psutil
import pytest

from nbkit.config import ExperimentConfig
from nbkit.store.paths import RunPaths
from nbkit.worker import data
from nbkit.worker.data import Placement
from nbkit.worker.rank import Rank
from tests.training import process_kept
from tests.worker.images import CPU, manifest_of, write_classes


@pytest.fixture
def flat(tmp_path):
    """One image for each class, so that its label tells which one it is."""
    return write_classes(tmp_path / "flat")


@pytest.fixture
def split(tmp_path):
    root = tmp_path / "split"
    write_classes(root / "train")
    write_classes(root / "val")
    return root


@pytest.fixture
def opened(tmp_path_factory):
    """Load data that is closed when the test ends."""
    folder = tmp_path_factory.mktemp("manifests")
    all_data = []

    def load(root, batch_size=2, rank=0, world_size=1, **fields):
        loading = {"num_workers": fields.pop("num_workers", 0)}
        loading |= fields.pop("loader_config", {})
        config = ExperimentConfig(
            data=str(root),
            loader_config=loading,
            **{"image_size": 32, **fields},
        )
        manifest = None if root == "synthetic" else manifest_of(root, folder)
        placement = Placement(CPU, rank, world_size)
        all_data.append(data.load(config, manifest, placement, batch_size))
        return all_data[-1]

    yield load
    for one in all_data:
        one.close()


@pytest.fixture
def new_run(tmp_path, monkeypatch):
    """Make the rank of a new run, by its number, in a store of its own."""
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "store"))

    def make(name="run", rank=0, board=None):
        folder = tmp_path / "store" / "runs" / name
        folder.mkdir(parents=True, exist_ok=True)
        return Rank(RunPaths(folder), rank, rank, rank + 1, rank + 1, 0, board)

    return make


@pytest.fixture
def children() -> Callable[[], set[psutil.Process]]:
    """Return what looks up the children that this process has got during the test.

    Those that it had before serve other tests: a cluster, a server, a browser.
    """
    before = set(psutil.Process().children())
    return lambda: set(psutil.Process().children()) - before


@pytest.fixture
def process_as_before():
    """Leave this process as it was: see there."""
    with process_kept():
        yield
