"""Real tests under real environments, as `make test-newest` runs them."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.newest.__main__ import examine
from tests.newest.environment import changes
from tests.newest.result import Result, Trial
from tests.newest.suite import ITSELF, Suite
from tests.newest.test_newest import environment, result

__all__ = ["environment"]

TESTS = """
import pathlib, pytest, thing

def test_first():
    seen = pathlib.Path("seen")
    is_seen = seen.exists()
    seen.touch()
    assert is_seen, "too early"

def test_version():
    assert thing.VERSION == 1, "another thing"

@pytest.mark.parametrize("size", ["a[b]", "c"])
def test_sized(size):
    assert size != "c"

class TestInside:
    def test_method(self):
        raise ValueError("many\\nlines")

def test_passes():
    pass
"""


def test_failed_tests_are_run_with_the_lock_and_with_one_newer_package(
    environment, tmp_path, monkeypatch
):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_things.py").write_text(TESTS)
    newest, lock = environment("newest", "2"), environment("lock", "1")
    found = result()
    found.changed = changes(lock.versions(), newest.versions())

    examine(found, newest, lambda: lock, Suite(tmp_path, tmp_path, ["tests"]))

    file = "tests/test_things.py"
    assert found.failed == {
        f"{file}::test_first": "AssertionError: too early",
        f"{file}::test_version": "AssertionError: another thing",
        f"{file}::test_sized[c]": "AssertionError: assert 'c' != 'c'",
        f"{file}::TestInside::test_method": "ValueError: many",
    }
    assert set(found.failed_again) == set(found.failed) - {f"{file}::test_first"}
    assert found.passes_with_lock == [f"{file}::test_version"]
    assert found.trials == [Trial(["thing"], [f"{file}::test_version"])]
    assert found.headline == (
        "1 test fails with thing 2 in place of 1; 2 tests fail with the lock too; "
        "1 test failed once, but not when repeated."
    )
    assert lock.versions() == {"thing": "1"}
    assert (lock.python.parents[1] / ".ready").exists()
    assert Result.read(tmp_path) == found


def test_a_suite_that_cannot_begin_is_a_failure_too(tmp_path):
    """A file that cannot be imported is named; without one it is pytest itself."""
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_broken.py").write_text("import thing_that_nobody_has")
    suite = Suite(tmp_path, tmp_path)
    python = Path(sys.executable)

    assert suite.again(python, ["test_broken.py"]) == ["test_broken.py"]
    assert suite.again(python, ["test_gone.py::test_a"]) == ["test_gone.py::test_a"]
    (tmp_path / "conftest.py").write_text("import thing_that_nobody_has")
    assert suite.again(python, [ITSELF]) == [ITSELF]
