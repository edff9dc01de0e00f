"""Nonsense in every place of a run's files is refused with a sentence."""

from __future__ import annotations

import pytest

from tests.hostile.conftest import store
from tests.hostile.test_damaged_runs import python_errors, runs

__all__ = ["runs", "store"]

pytestmark = pytest.mark.nonfinite


@pytest.mark.parametrize("file", ["record", "submission", "worker", "config"])
def test_nonsense_in_any_place_is_no_error_of_python(runs, file, capsys):
    assert python_errors(runs, file) == []
