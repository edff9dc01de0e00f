"""A store of its own for every test, models that misbehave, and small experiments."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nbkit import registry
from nbkit.config import ExperimentConfig

PLUGINS = Path(__file__).parents[1] / "plugins"


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the test's runs in its own folder."""
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the plug-in with misbehaving models, here and in every child."""
    install_plugins(monkeypatch)


def install_plugins(patch: pytest.MonkeyPatch) -> None:
    """Let this process and its children find the plug-in."""
    patch.setenv("PYTHONPATH", str(PLUGINS), prepend=os.pathsep)
    patch.syspath_prepend(str(PLUGINS))
    # To look at every installed package takes longer than most tests.
    if "tiny" not in registry.names("models"):
        registry.forget()


@pytest.fixture(scope="module")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let fixtures of a file launch runs that several tests look at, and leave alone.

    They lie in a store of their own, and know the plug-in.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NBKIT_HOME", str(tmp_path_factory.mktemp("shared") / "store"))
        install_plugins(patch)
        yield


@pytest.fixture(scope="session")
def small() -> Callable[..., ExperimentConfig]:
    """Return a maker of experiments that a CPU rank does in a moment."""

    def make(**fields: object) -> ExperimentConfig:
        values: dict[str, object] = {
            "model": "tiny",
            "device": "cpu",
            "gpus": 1,
            "oversubscribe": True,
            "image_size": 32,
            "batch_size_per_gpu": 4,
            "steps": 8,
            "warmup_steps": 2,
            "tensorboard": False,
            # One that hangs says where, before the test's own time is over.
            "hang_timeout_seconds": 120,
            **fields,
        }
        return ExperimentConfig(**values)

    return make
