"""What tests of hostile files need."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.waiting import patient


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the test's own store."""
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture
def in_time():
    """Return what fails, in place of the whole suite, if a call does not come back."""

    def call(work):
        answers = []
        # A daemon: what hangs for ever must not keep the tests from ending.
        thread = threading.Thread(target=lambda: answers.append(work()), daemon=True)
        thread.start()
        thread.join(patient(60))
        assert answers, "it hangs"
        return answers[0]

    return call
