"""What README.md tells each audience, done from nothing and timed: ``make audiences``.

1. The block of README's "Install" and the commands in the reader's row of its table are
   typed one by one, in a separate home folder, with the wheel of this checkout. Reports
   are made from small runs on CPUs.
2. ``nbkit doctor`` says that all is well, and JupyterLab opens with the sidebar.
3. ``make run`` in a fresh clone, twice.

Prints a table, and writes build/audiences.json. Ends with 1 if a command failed or
``make run`` was too slow.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.distributions import ROOT, build
from tests.slurm.cluster import SlurmCluster
from tests.soak.newcomer import Newcomer

__all__ = ["commands_of", "main"]

AUDIENCES = {
    "Laptop": "jupyter lab",
    "GPU server": "jupyter lab",
    # The address at which a hub has the server of a user.
    "JupyterHub": "jupyter lab --ServerApp.base_url=/user/ada/",
    "Slurm": "jupyter lab",
}
"""Rows of the table in README's "Install", and how JupyterLab is opened there."""

CLONE = "Clone"
"""Who tries nbkit from a clone, with ``make run``."""

RUN_LIMIT_SECONDS = 360.0
RERUN_LIMIT_SECONDS = 90.0

_SMALL = "-p gpus 2 -p device cpu -p steps 4 -p repeats 1"
_LAST_CHARACTERS = 2000
_OPENS = re.compile(r"jupyter lab(?!\w)").search


@dataclass(frozen=True)
class Step:
    """One command that was typed."""

    audience: str
    command: str
    seconds: float
    succeeded: bool
    limit_seconds: float | None = None
    said: str = ""
    """The end of what it printed, where it failed."""

    @property
    def is_well(self) -> bool:
        """Whether it succeeded, in time where there is a limit."""
        return self.succeeded and self.seconds <= (self.limit_seconds or self.seconds)


def commands_of(readme: str, audience: str) -> list[str]:
    """Return the commands of "Install" for all, then those in an audience's row.

    Raises
    ------
    LookupError
        If README's "Install" has no block, or its table no row for the audience.
    """
    install = re.search(r"^## Install\n(.*?)(?=^## |\Z)", readme, re.M | re.S)
    text = install[1] if install else ""
    block = re.search(r"^```sh\n(.*?)^```", text, re.M | re.S)
    row = re.search(rf"^\| {re.escape(audience)} \|(.*?\|.*?)\|", text, re.M)
    if not block or not row:
        message = (
            "README.md: '## Install' needs one ```sh block, and a row in its table "
            f"'| {audience} | install | first commands |'; write both."
        )
        raise LookupError(message)
    return [*block[1].splitlines(), *re.findall(r"`(.+?)`", row[1])]


def typed(command: str) -> str:
    """Return a command as it is typed here, where there are no GPUs."""
    return f"{command} {_SMALL}" if command.startswith("papermill") else command


def follow(audience: str, wheel: Path, folder: Path) -> Iterator[Step]:
    """Type an audience's commands, up to the first that fails; then look around."""
    person = Newcomer(folder / audience.replace(" ", "-"))
    (person.folder / "dist").mkdir()
    shutil.copy(wheel, person.folder / "dist")
    with ExitStack() as stack:
        if audience == "Slurm":
            cluster = stack.enter_context(_cluster())
            person.variables["SLURM_CONF"] = str(cluster.conf)
        commands = commands_of((ROOT / "README.md").read_text(), audience)
        if "nbkit doctor" not in commands:
            commands.append("nbkit doctor")
        if not any(map(_OPENS, commands)):
            commands.append(AUDIENCES[audience])
        for command in commands:
            step = _step(audience, person, typed(command))
            yield step
            if not step.is_well:
                return


def run_twice(folder: Path) -> Iterator[Step]:
    """Do ``make run`` in a fresh clone, and again where all is set up."""
    person = Newcomer(folder / CLONE)
    yield _step(CLONE, person, f"git clone --quiet {ROOT} nbkit && cd nbkit")
    for limit in (RUN_LIMIT_SECONDS, RERUN_LIMIT_SECONDS):
        yield _step(CLONE, person, "make run", limit)


@contextmanager
def _cluster() -> Iterator[SlurmCluster]:
    cluster = SlurmCluster()
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


def _step(
    audience: str, person: Newcomer, command: str, limit_seconds: float | None = None
) -> Step:
    started = time.monotonic()
    try:
        if _OPENS(command):
            with person.opens(command) as server:
                said = f"{server.request('nbkit/api/status')} {server.log}"
                succeeded = server.request("nbkit/api/status").status == 200
        else:
            done = person.types(command)
            said, succeeded = done.stdout, done.returncode == 0
    except AssertionError as error:
        said, succeeded = str(error), False
    seconds = round(time.monotonic() - started, 1)
    step = Step(
        audience,
        command,
        seconds,
        succeeded,
        limit_seconds,
        "" if succeeded else said[-_LAST_CHARACTERS:],
    )
    limit = f" of at most {limit_seconds:g} s" if limit_seconds else ""
    word = "well" if step.is_well else "slow" if succeeded else "FAILED"
    print(f"{audience:12} {seconds:7.1f} s  {word:6}  {command}{limit}", flush=True)
    if step.said:
        print(step.said, flush=True)
    return step


def main(names: list[str]) -> int:
    """Follow the audiences of these names, else all; return the exit status."""
    steps: list[Step] = []
    with tempfile.TemporaryDirectory(prefix="nbkit-audiences-") as temporary:
        folder = Path(temporary)
        wheel = build("wheel", ROOT, folder)
        for name in names or [*AUDIENCES, CLONE]:
            is_clone = name == CLONE
            steps += run_twice(folder) if is_clone else follow(name, wheel, folder)
    report = ROOT / "build/audiences.json"
    report.parent.mkdir(exist_ok=True)
    report.write_text(json.dumps([asdict(step) for step in steps], indent=1) + "\n")
    return 0 if all(step.is_well for step in steps) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
