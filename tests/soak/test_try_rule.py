"""The rule of `nbkit try` by simulation: false keeps, power, and what early ends cost.

``python -m tests.soak.test_try_rule`` prints the table of ``nbkit/studies/README.md``.
"""

from __future__ import annotations

import functools
import subprocess
from dataclasses import dataclass
from itertools import pairwise

import pytest

from nbkit.cli.main import main
from nbkit.questions.metric_report import metric_rows
from nbkit.questions.trial import DISCARD_FLOORS
from nbkit.statistics import MINIMUM_RUNS
from nbkit.studies.metric import Metric
from tests.launch.conftest import store
from tests.soak.test_noise_models import MODELS, study

__all__ = ["store"]

LOOPS, REAL_CALLS = 1_000, 10
NOISY = """
import os, random, sys
from version import FACTOR, LABEL
repeat = os.environ["STUDY_REPEAT"]
noise = random.Random(f"{LABEL} {sys.argv[1]} {repeat}").gauss(0, 0.01)
print("loss:", FACTOR * (1 + noise))
"""
EFFECTS = (0.0, 0.01, 0.02, 0.05, -0.05, -0.2)
"""By how much the new version is better."""
SHOWN = ("lognormal 2%", "Student t(3), 2%", "2%, one start in ten 20% slow")


@dataclass(frozen=True)
class Shares:
    """What became of the loops of one case."""

    kept: float
    """Share of changes with the verdict better."""
    discarded: float
    """Share that ended early."""
    starts: float
    """Mean starts of both versions together; without early ends 10."""


@functools.cache
def simulate(model: str, effect: float) -> Shares:
    """Try a change of the metric, a loss, so many times."""
    metric = Metric("loss", "lower", 0.0, MINIMUM_RUNS, DISCARD_FLOORS)
    kept = discarded = starts = 0
    for seed in range(LOOPS):
        base, new = study(model, 2, MINIMUM_RUNS, seed)
        values = {"base": base, "new": [value * (1 - effect) for value in new]}
        done = next(n for n in range(2, MINIMUM_RUNS + 1) if ends(metric, values, n))
        seen = {arm: many[:done] for arm, many in values.items()}
        kept += metric_rows(metric, seen, "base")[1].verdict == "better"
        discarded += done < MINIMUM_RUNS
        starts += 2 * done
    return Shares(kept / LOOPS, discarded / LOOPS, starts / LOOPS)


def ends(metric: Metric, values: dict[str, list[float]], repeats: int) -> bool:
    """Return whether a call ends after so many starts per version."""
    floors = metric.floors_worse(values["new"][:repeats], values["base"][:repeats])
    return repeats == MINIMUM_RUNS or floors is not None


@pytest.mark.parametrize("model", MODELS)
def test_false_keeps_of_equal_versions_are_at_most_5_percent(model):
    assert simulate(model, 0.0).kept <= 0.05


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("effect", EFFECTS[:4])
def test_changes_that_are_no_worse_are_rarely_discarded(model, effect):
    # 1.6% where every other start is 10% slower, at most 0.4% elsewhere.
    assert simulate(model, effect).discarded <= 0.02


def test_power_grows_with_the_effect():
    powers = [simulate("lognormal 2%", effect).kept for effect in EFFECTS[:4]]

    assert all(less < more for less, more in pairwise(powers))
    assert powers[-1] > 0.8


def test_a_much_worse_version_ends_early():
    found = simulate("lognormal 2%", -0.2)

    assert found.discarded > 0.5
    assert found.starts < 9


@pytest.mark.parametrize(("factor", "fewest", "most"), [(0.5, 0, 1), (0.475, 8, 10)])
def test_real_calls_keep_a_5_percent_change_and_no_equal_version(
    tmp_path, monkeypatch, factor, fewest, most
):
    def git(*arguments: str) -> None:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)

    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(NOISY)
    (folder / "version.py").write_text("LABEL, FACTOR = 'base', 0.5")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    kept = 0
    for number in range(REAL_CALLS):
        version = f"LABEL, FACTOR = 'new {number}', {factor}"
        (folder / "version.py").write_text(version)
        wanted = ("--metric", "loss", "--better", "lower", "--device", "cpu")
        kept += main(["try", "train.py", *wanted, "--", str(number)]) == 0
    assert fewest <= kept <= most


def print_table() -> None:
    """Print what becomes of the changes in each case."""
    for model in SHOWN:
        for effect in EFFECTS:
            one = simulate(model, effect)
            print(
                f"| {model} | {effect * 100:+g} % | {one.kept:.1%} | "
                f"{one.discarded:.1%} | {one.starts:.1f} |"
            )


if __name__ == "__main__":
    print_table()
