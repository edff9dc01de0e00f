"""A broken plug-in ends a run with one sentence."""

from __future__ import annotations

import pytest

import nbkit
from nbkit.errors import RunFailedError
from tests.house.test_plugins import broken

__all__ = ["broken"]


def test_a_broken_plugin_ends_the_run_with_one_sentence():
    run = nbkit.launch(model="imports", image_size=32, steps=2, warmup_steps=0)

    with pytest.raises(RunFailedError, match=r"model='imports', which is .* of one, "):
        run.wait()
    assert run.cause["kind"] == "config"
