"""A script that nbkit launches ends as plain Python does, and as under torchrun.

What each ending makes is declared beside it; `make soak` holds torchrun to it too.
"""

from __future__ import annotations

import pytest

from tests.endings.case import Case
from tests.endings.one_rank import ONE_RANK
from tests.endings.outcomes import under_nbkit
from tests.endings.several_ranks import SEVERAL_RANKS
from tests.launch.conftest import store

__all__ = ["store"]


@pytest.mark.parametrize("case", ONE_RANK + SEVERAL_RANKS, ids=lambda case: case.name)
def test_a_script_ends_as_under_torchrun(case: Case, tmp_path, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)

    outcome, _ = under_nbkit(case, folder)

    assert outcome.differs(case) == {}
    assert outcome.named == case.failing
