"""What others may have written is opened in `nbkit.reading` alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

OTHERWISE = {
    # What the kernel says: /proc and /sys.
    "launch/gpu_pairs.py": 1,
    "launch/node.py": 2,
    "launch/pool_folder.py": 1,
    "launch/sweep.py": 1,
    "readspeed/meter.py": 2,
    "store/processes.py": 2,
    "telemetry/control_groups.py": 2,
    "telemetry/cpus.py": 3,
    "telemetry/machine.py": 1,
    "telemetry/nvml.py": 1,
    "telemetry/oom.py": 1,
    "telemetry/processes.py": 1,
    "telemetry/storage.py": 2,
    "telemetry/topology.py": 1,
    "telemetry/torch_builds.py": 1,
    "telemetry/virtualization.py": 1,
    "worker/usage.py": 1,
    # Files of nbkit's own.
    "analysis/audit.py": 1,
    "analysis/audit_claims.py": 1,
    "analysis/diagnose_causes.py": 1,
    "analysis/memory.py": 1,
    "analysis/published.py": 1,
    "cli/tables.py": 1,
    "packages.py": 1,
    "server/notebooks.py": 1,
    "study/recipes.py": 1,
    "study/sources.py": 1,
    "study/training_recipes.py": 1,
    "widgets/view.py": 1,
    # A photograph of scikit-image.
    "datasets/photos.py": 1,
    # A file that the user has named, or has just made or imported.
    "datasets/tfrecord.py": 1,
    "datasets/recordio.py": 1,
    "datasets/webdataset.py": 1,
    "launch/entry.py": 2,
    "study/reproduce.py": 1,
    "study/storage_data.py": 1,
    "telemetry/replay.py": 1,
}
"""How many other reads a file has, and why: one more needs a line here."""


def test_files_of_runs_and_studies_are_opened_in_one_place():
    found: dict[str, int] = {}
    for file in sorted((ROOT / "nbkit").rglob("*.py")):
        name = file.relative_to(ROOT / "nbkit").as_posix()
        if name != "reading.py" and (count := len([*reads(file)])):
            found[name] = count

    assert found == OTHERWISE, "read it by nbkit.reading, or say here what it is"


def reads(file: Path) -> Iterator[ast.Call]:
    """Yield the calls by which a module reads a file as a whole, or opens it to."""
    for call in ast.walk(ast.parse(file.read_bytes())):
        if not isinstance(call, ast.Call):
            continue
        match call.func:
            case ast.Attribute(attr="read_text" | "read_bytes"):
                yield call
            case ast.Name(id="open"):
                yield call
            # What writes says so; os.open, a study's and a source's are other things.
            case ast.Attribute(attr="open", value=value) if is_to_read(call):
                if ast.unparse(value) not in ("os", "Image", "tarfile"):
                    yield call


def is_to_read(call: ast.Call) -> bool:
    """Return whether a call of a path's `open` has a mode to read."""
    modes = [*call.args[:1], *(one.value for one in call.keywords if one.arg == "mode")]
    texts = [one.value for one in modes if isinstance(one, ast.Constant)]
    is_default = not call.args and any(one.arg == "encoding" for one in call.keywords)
    return is_default or texts in (["r"], ["rb"])
