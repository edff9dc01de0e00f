"""A script that is gone runs again, and moves to another store."""

from __future__ import annotations

import pytest

import nbkit
from nbkit.errors import RunError
from tests.questions.conftest import cluster, drive, plugins, small, store
from tests.reproduction.test_repetition import checkout, launch

__all__ = ["checkout", "cluster", "drive", "plugins", "small", "store"]


# Every module that this process has loaded is a source of a run.
pytestmark = pytest.mark.filterwarnings("ignore:the bundle may contain secrets")


def test_a_script_that_is_gone_runs_again_and_moves_to_another_store(
    checkout, tmp_path, monkeypatch
):
    script = tmp_path / "script.py"
    script.write_text("import sys, mine_here\nprint(mine_here.VALUE, sys.argv[1:])\n")
    original = launch(script, args=(0.5,)).wait()
    script.unlink()

    again = nbkit.reproduce(original, progress=False)
    bundle = nbkit.export(original, tmp_path / "s.zip", include_arguments=True)
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "elsewhere"))
    nbkit.import_bundle(bundle)

    moved = nbkit.attach(original.run_id)
    for run in (again.run, moved):
        assert run.logs(stream="stdout") == "1 ['0.5']\n"
    assert moved.state == "finished"
    assert again.ratio is None
    assert again.sentence == (
        "No ratio: a run has no measured steps (images per second). No step has a loss "
        "in both runs."
    )
    assert moved.stop().state == "finished"
    (moved.paths.source / "script" / "script.py").unlink()
    with pytest.raises(RunError, match="is incomplete"):
        nbkit.reproduce(moved, trust=True)
