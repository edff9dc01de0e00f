"""Every case of every question whose study is stored."""

from __future__ import annotations

from tests.golden.cases_answers import ANSWERS
from tests.golden.cases_input import INPUT
from tests.golden.cases_speed import SPEED
from tests.golden.studies import Case

__all__ = ["CASES"]

CASES: dict[str, Case] = {**SPEED, **INPUT, **ANSWERS}
