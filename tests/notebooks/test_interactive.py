"""The tour under plain papermill."""

from __future__ import annotations

import tempfile
from pathlib import Path

import nbkit
from nbkit.store.record import RunState
from tests.notebooks.executing import execute


def test_the_tour_ends_with_pictures_instead_of_widgets(tmp_path):
    parameters = {"device": "cpu", "model": "tiny", "image_size": 32, "steps": 8}
    options = [text for pair in parameters.items() for text in ("-p", *map(str, pair))]

    done = execute("interactive", tmp_path / "out.ipynb", *options)

    done.assert_complete()
    assert len(done.cells) == 11  # ten, and what papermill adds
    # What was shown under way was replaced by how it ended.
    shown = "\n".join(o.data.get("text/html", "") for o in done.outputs if "data" in o)
    assert shown.count('class="nbkit-picture"><p>') == 3
    assert "at 20" not in shown
    assert "stopped at " in done.text
    assert "The losses of 8 steps are bitwise equal." in shown
    answer = done.cells[-1].outputs[-1].data["text/html"]
    assert "first / NCHW = " in answer
    assert "channels_first" in answer
    states = [run.state for run in nbkit.runs()]
    assert states.count(RunState.FINISHED) == 3
    assert states.count(RunState.STOPPED) == 1
    # Nothing is left where the notebook was started.
    assert [path.name for path in tmp_path.glob("*.zip")] == []
    [first] = [run for run in nbkit.runs() if run.record["name"] == "first"]
    bundle = Path(tempfile.gettempdir(), f"{first.run_id}.zip")
    assert nbkit.import_bundle(bundle).already_there
