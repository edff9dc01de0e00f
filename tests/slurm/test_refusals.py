"""What cannot run is refused or ends at once, and the text says what to do."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from nbkit.errors import ConfigError, DeviceError, LaunchError
from nbkit.store.record import RunState
from tests.slurm.runs import TwoNodes, job_of

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


def test_a_setup_line_that_fails_is_named(two_nodes: TwoNodes):
    run = two_nodes.launch(slurm={"setup": (ACTIVATE, "module load moon")})

    two_nodes.end(run)

    assert run.state is RunState.LOST
    log = run.paths.job_log(job_of(run))
    assert str(log) in (run.cause or {})["message"]
    assert "of this setup line: module load moon" in log.read_text()


def _end_of(two_nodes: TwoNodes, *lines: str) -> str:
    """Return why a run failed before its ranks were started."""
    run = two_nodes.launch(slurm={"setup": (ACTIVATE, *lines)})
    two_nodes.end(run)
    assert run.state is RunState.FAILED
    assert (run.cause or {})["kind"] == "launch"
    (attempt,) = run.record["attempts"]
    assert all(rank["pid"] is None for rank in attempt["ranks"])
    return (run.cause or {})["message"]


def test_a_setup_line_that_fails_on_one_node_is_named_with_it(two_nodes: TwoNodes):
    said = _end_of(two_nodes, f"{ON_N2} false")

    assert said.startswith("node n2: status 1 of this setup line: ")


def test_a_node_with_another_nbkit_is_named(two_nodes: TwoNodes, tmp_path: Path):
    other = tmp_path / "other" / "jupyterlab_nbkit-0.0.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Name: jupyterlab-nbkit\nVersion: 0.0.1\n")

    said = _end_of(two_nodes, f"{ON_N2} export PYTHONPATH={other.parent}:$PYTHONPATH")

    assert said.startswith("node n2: its environment differs from the launch env")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_node_that_does_not_see_the_store_is_named(
    two_nodes: TwoNodes, store: Path, tmp_path: Path
):
    wrapper = tmp_path / "bin" / "python"
    wrapper.parent.mkdir()
    hide = f'mount -t tmpfs none "{store}" && exec "$0" "$@"'
    wrapper.write_text(
        f"#!/bin/sh\nexec unshare --mount sh -c '{hide}' {sys.executable} \"$@\"\n"
    )
    wrapper.chmod(0o755)

    said = _end_of(two_nodes, f"{ON_N2} export PATH={wrapper.parent}:$PATH")

    assert said.startswith("node n2: ")
    assert "Set NBKIT_HOME to a folder on a shared" in said
