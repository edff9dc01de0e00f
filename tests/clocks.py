"""A clock that a test sets, in the place of a module's `time`."""

from __future__ import annotations

import time

import pytest


class PlayedTime:
    """Stands for the module `time` in a module, and goes on where a test says so."""

    sleep = staticmethod(time.sleep)

    def __init__(self, patch: pytest.MonkeyPatch, module: str) -> None:
        self.seconds = 1e9
        patch.setattr(f"{module}.time", self)

    def monotonic(self) -> float:
        """Return the time that the test has set."""
        return self.seconds

    time = monotonic
