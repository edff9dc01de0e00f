"""Training against a plain loop: every format with every optimizer in every way."""

from __future__ import annotations

import pytest

from tests.launch.conftest import plugins, store
from tests.worker.conftest import process_as_before
from tests.worker.test_plain_loop import (
    FORMATS,
    OPTIMIZERS,
    WAYS,
    compare,
    quickly_growing_scale,
)

__all__ = ["plugins", "process_as_before", "quickly_growing_scale", "store"]


@pytest.mark.usefixtures("process_as_before", "quickly_growing_scale")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("precision", FORMATS)
def test_every_combination_trains_as_the_plain_loop(precision, optimizer, way):
    compare(precision, optimizer, way)
