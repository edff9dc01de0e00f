"""What cannot run is refused or ends at once, and the text says what to do."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from nbkit.errors import ConfigError, DeviceError, LaunchError
from nbkit.store.record import RunState
from tests.slurm.runs import TwoNodes

ACTIVATE = f". {sys.prefix}/bin/activate"
ON_N2 = '[ "$SLURMD_NODENAME" = n1 ] ||'


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        (
            {"slurm": {"slurm_partition": "moon"}},
            LaunchError,
            "invalid partition specified: moon",
        ),
        ({"cpus": [0, 1]}, ConfigError, "because Slurm assigns cpus"),
    ],
    ids=["partition", "cpus"],
)
def test_what_slurm_or_its_cluster_cannot_do_is_refused(
    two_nodes: TwoNodes, store: Path, fields, error, text
):
    with pytest.raises(error, match=text):
        two_nodes.launch(**fields)

    assert not list(store.glob("runs/*"))


def test_a_store_in_memory_is_refused(
    two_nodes: TwoNodes, monkeypatch: pytest.MonkeyPatch
):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        monkeypatch.setenv("NBKIT_HOME", folder)

        with pytest.raises(DeviceError, match=r"is in memory \(tmpfs\)"):
            two_nodes.launch()

        assert not list(Path(folder).glob("runs/*"))


def end_of(two_nodes: TwoNodes, *lines: str) -> str:
    """Return why a run failed before its ranks were started."""
    run = two_nodes.launch(slurm={"setup": (ACTIVATE, *lines)})
    two_nodes.end(run)
    assert run.state is RunState.FAILED
    assert (run.cause or {})["kind"] == "launch"
    (attempt,) = run.record["attempts"]
    assert all(rank["pid"] is None for rank in attempt["ranks"])
    return (run.cause or {})["message"]


def test_a_setup_line_that_fails_on_one_node_is_named_with_it(two_nodes: TwoNodes):
    said = end_of(two_nodes, f"{ON_N2} false")

    assert said.startswith("node n2: a slurm.setup line failed with exit status 1: ")
