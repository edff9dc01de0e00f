"""Every ending under torchrun and under nbkit, three times, as a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.endings.outcomes import Outcome, under_nbkit, under_torchrun
from tests.endings.test_endings import ENDINGS
from tests.launch.conftest import store
from tests.soak.rare_endings import RARE

__all__ = ["store"]

ROUNDS = 3
TABLE = Path(__file__).parents[2] / "build" / "endings.md"


@pytest.mark.timeout(7200)
def test_each_ending_is_that_of_torchrun(tmp_path, monkeypatch):
    rows = ["| ending | torchrun | nbkit | seconds | equal |", "|---|---|---|---|---|"]
    wrong = []
    for case in ENDINGS + RARE:
        for number in range(ROUNDS):
            found: list[Outcome] = []
            for name in ("torchrun", "nbkit"):
                folder = tmp_path / f"{case.name}-{number}-{name}".replace("/", "-")
                folder.mkdir()
                monkeypatch.chdir(folder)
                if name == "torchrun":
                    found.append(under_torchrun(case, folder))
                else:
                    found.append(under_nbkit(case, folder)[0])
            differs = [one.differs(case) for one in found]
            torchrun, nbkit = found
            if number == 0 or any(differs):
                rows.append(
                    f"| {case.name} | {torchrun.ends} | {nbkit.ends} | "
                    f"{torchrun.seconds:.1f}, {nbkit.seconds:.1f} | "
                    f"{'no' if any(differs) else 'yes'} |"
                )
            if any(differs):
                wrong.append((case.name, number, differs))
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text("\n".join(rows) + "\n")
    assert wrong == []
