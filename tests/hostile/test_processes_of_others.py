"""A run of somebody else names no process that is then ended."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from nbkit.launch.supervision.leftovers import processes_of_run, sweep
from nbkit.store.paths import RunPaths
from nbkit.store.processes import ProcessIdentity, run_markers
from nbkit.store.record import write_json
from tests.hostile.written import write_run


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that waits for the end of its input."""
    program = "import sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1) as process:
        yield process


@pytest.mark.parametrize("way", ["imported", "another user's folder", "a file for all"])
def test_a_process_that_anothers_run_names_is_not_ended(process, way):
    run = write_run()
    file = run.paths.rank(0, 0).process
    file.parent.mkdir(parents=True)
    write_json(file, ProcessIdentity.of(process.pid).to_dict())
    if way == "imported":
        write_json(run.paths.imported, {"host": "node7"})
    elif way == "a file for all":
        file.chmod(0o666)
    else:
        os.chown(run.paths.root, 12_345, -1)

    assert sweep(run.run_id) == []

    assert process.poll() is None


@pytest.mark.parametrize("folder", ["a copy", "a link", "where it was before"])
def test_a_process_of_a_copy_in_another_store_is_not_ended(tmp_path, folder):
    run = write_run()
    there = tmp_path / "there" / run.run_id
    if folder == "a copy":
        shutil.copytree(run.paths.root, there)
    elif folder == "a link":
        there.parent.symlink_to(run.paths.root.parent)
    program = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, **run_markers(RunPaths(there))},
        stdin=-1,
        stdout=-1,
    ) as process:
        process.stdout.readline()
        identity = ProcessIdentity.of(process.pid)
        # What was copied names it as its own rank, too.
        file = run.paths.rank(0, 0).process
        file.parent.mkdir(parents=True)
        write_json(file, identity.to_dict())

        ended = [one.process for one in sweep()]

        assert ended == ([] if folder == "a copy" else [identity])
        if folder == "a copy":
            assert process.poll() is None
            assert processes_of_run(RunPaths(there)) == [identity]
