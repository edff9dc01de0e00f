"""A driver that the test describes, in this process."""

from __future__ import annotations

from collections.abc import Callable

import pynvml
import pytest

from tests.telemetry.fake_nvml.fake_driver import FakeDriver, FakeGpu


@pytest.fixture
def drive(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeDriver]:
    """Return a maker of drivers that stand behind pynvml until the test ends."""

    def make(*gpus: FakeGpu, **behaviour: object) -> FakeDriver:
        driver = FakeDriver(gpus, **behaviour)
        driver.install(pynvml, monkeypatch.setattr)
        return driver

    return make
