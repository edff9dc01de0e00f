"""What is there after a script has ended, under nbkit and under plain torchrun."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbkit
from nbkit.launch.supervision.leftovers import processes_of_run
from nbkit.store.record import RunState
from tests.endings.case import Case

__all__ = ["Outcome", "under_nbkit", "under_torchrun"]

End = int | str | None
_SCRIPT = "ending.py"
_FAILURE = re.compile(r"rank +: (\d+) .*\n +exitcode +: (-?\d+)")


@dataclass(frozen=True)
class Outcome:
    """How the ranks ended, and what they left behind."""

    ends: tuple[End, ...]
    """Exit code of each rank, or the name of its signal; None if it was ended."""
    files: dict[str, str]
    """Content of the files in the working folder, as Latin-1, by name."""
    log: str
    """Standard error of all ranks."""
    seconds: float
    named: int | None = None
    """The rank that is called the cause."""
    says: str = ""
    """What the cause says, with its traceback."""
    is_torchruns: bool = False

    def differs(self, case: Case) -> dict[str, object]:
        """Return what is not as it should be, by name.

        Of ranks that ended well torchrun tells nothing where another failed. gloo's own
        end may abort a process, now and then or because its peers are gone, upon which
        torchrun ends the others.
        """
        ends = tuple(
            wanted if self._is_untold(end, wanted) else end
            for end, wanted in zip(self.ends, case.ends, strict=True)
        )
        if self.is_torchruns and "SIGABRT" in set(self.ends) - set(case.ends):
            ends = case.ends
        pairs = {"ends": (ends, case.ends), "files": (self.files, case.files)}
        found: dict[str, object] = {
            name: pair for name, pair in pairs.items() if pair[0] != pair[1]
        }
        if case.prints and case.prints not in self.log:
            found["prints"] = self.log
        return found

    def _is_untold(self, end: End, wanted: End) -> bool:
        return wanted is None or (self.is_torchruns and (end, wanted) == (None, 0))


def under_nbkit(case: Case, folder: Path) -> tuple[Outcome, nbkit.Run]:
    """Launch a script or function from the current folder, and wait for its end."""
    script = folder / _SCRIPT
    script.write_text(case.script)
    began = time.monotonic()
    run = nbkit.launch(
        _function(case) if case.is_function else script,
        gpus=case.ranks,
        device="cpu",
        oversubscribe=True,
        collective_timeout_seconds=100,
    )
    run.wait(raise_on_failure=False)
    seconds = time.monotonic() - began
    assert processes_of_run(run.paths) == []
    assert (run.state is RunState.FINISHED) == (case.failing is None)
    if case.is_function and case.failing is None:
        assert run.returns == [case.returns]
    ranks = sorted(run.record["attempts"][-1]["ranks"], key=lambda rank: rank["rank"])
    ends = tuple(rank["signal"] or rank["exit_code"] for rank in ranks)
    cause = run.cause or {}
    log = "".join(run.logs(rank, "stderr") for rank in range(case.ranks))
    says = f"{cause.get('message', '')}\n{cause.get('traceback') or ''}"
    files = _files(folder)
    return Outcome(ends, files, log, seconds, cause.get("rank"), says), run


def _function(case: Case) -> Callable[..., object]:
    """Return the function of a case as if a cell had defined it."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(case.script, names)
    return names["train"]


def under_torchrun(case: Case, folder: Path) -> Outcome:
    """Do the same by torchrun."""
    call = "\ntrain()" if case.is_function else ""
    (folder / _SCRIPT).write_text(case.script + call)
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    began = time.monotonic()
    done = subprocess.run(
        [torchrun, "--standalone", f"--nproc-per-node={case.ranks}", _SCRIPT],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    seconds = time.monotonic() - began
    failed = {int(rank): int(code) for rank, code in _FAILURE.findall(done.stderr)}
    # Of a rank that torchrun ended because of another it tells nothing.
    others = None if failed else done.returncode
    ends = tuple(_end(failed.get(rank, others)) for rank in range(case.ranks))
    files = _files(folder)
    return Outcome(ends, files, done.stderr, seconds, is_torchruns=True)


def _end(code: int | None) -> End:
    if code is None or code >= 0:
        return code
    return signal.Signals(-code).name


def _files(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes().decode("latin-1")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != _SCRIPT
    }
