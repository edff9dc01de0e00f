"""Waiting for a quiet machine: until it is, or until patience is over."""

from __future__ import annotations

from itertools import chain, repeat

import pytest

from nbkit.errors import ConfigError
from nbkit.study.quiet import wait_until_quiet


def looks(*found):
    answers = chain(found, repeat(found[-1]))
    return lambda: next(answers)


def test_a_machine_is_quiet_when_it_was_for_three_looks_in_a_row():
    told, seen = [], []
    answers = looks({"CPUs": 0.97}, {}, {}, {"GPU 0": 0.5}, {})

    def busy():
        seen.append(answers())
        return seen[-1]

    wait = wait_until_quiet(600, told.append, busy)

    assert seen == [{"CPUs": 0.97}, {}, {}, {"GPU 0": 0.5}, {}, {}, {}]
    assert told == ["Waiting for a quiet machine, 600 s at most: CPUs 97 %."]
    assert wait.busy == {}
    assert str(wait) == "Waited 0 s until the machine was quiet."


def test_patience_ends_on_a_machine_that_stays_busy():
    wait = wait_until_quiet(0.01, print, looks({"CPUs": 0.5, "GPU 3": 1.0}))

    assert str(wait).endswith("the machine was not quiet: CPUs 50 %, GPU 3 100 %.")


@pytest.mark.parametrize("patience", [-1, float("nan"), float("inf")])
def test_a_patience_that_is_no_time_is_refused(patience):
    with pytest.raises(ConfigError, match="pass a number from 0 on"):
        wait_until_quiet(patience, print, looks({}))
