"""What nbkit launches ends as under plain Python, and as under torchrun.

What each ending makes is declared beside it; `make soak` adds rare ones and holds
torchrun to all.
"""

from __future__ import annotations

import pytest

from tests.endings.case import Case
from tests.endings.functions import FUNCTIONS
from tests.endings.one_rank import ONE_RANK
from tests.endings.outcomes import under_nbkit
from tests.endings.several_ranks import SEVERAL_RANKS
from tests.launch.conftest import store

__all__ = ["store"]


ENDINGS = ONE_RANK + FUNCTIONS + SEVERAL_RANKS


@pytest.mark.parametrize("case", ENDINGS, ids=lambda case: case.name)
def test_it_ends_as_under_torchrun(case: Case, tmp_path, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)

    outcome, _ = under_nbkit(case, folder)

    assert outcome.differs(case) == {}
    assert outcome.named == case.failing
