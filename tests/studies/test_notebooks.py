"""The canonical notebooks are found by name."""

from __future__ import annotations

import pytest

import nbkit
from nbkit.errors import ConfigError


def test_a_notebook_is_found_by_its_name():
    path = nbkit.notebook("scaling")

    assert path.name == "scaling.ipynb"
    assert path.is_file()


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'scaling'"):
        nbkit.notebook("skaling")
