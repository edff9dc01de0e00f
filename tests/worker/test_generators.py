"""Random generators go on from where a checkpoint found them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.store.paths import RunPaths
from nbkit.worker.rank import Rank
from nbkit.worker.rank_context import Context


def drawn() -> list[float]:
    # A normal number keeps half of a pair for the next one.
    return [np.random.normal(), random.random(), torch.rand(()).item()]


@pytest.fixture
def rank(tmp_path):
    """Return the context of the only rank of a run."""
    paths = RunPaths(tmp_path / "runs" / "20260101-000000-two-aaaa")
    paths.root.mkdir(parents=True)
    config = ExperimentConfig(task="function", device="cpu")
    return Context(Rank(paths, 0, 0, 1, 1, 0, None), config, torch.device("cpu"))


def test_load_checkpoint_continues_the_generators_of_the_process(rank):
    np.random.seed(7)
    random.seed(7)
    torch.manual_seed(7)
    drawn()
    rank.save_checkpoint({}, 1)
    expected = drawn()
    drawn()

    assert rank.load_checkpoint() == {}

    assert drawn() == expected


def test_save_checkpoint_turns_numbers_of_numpy_into_pythons(rank):
    state: dict[str, Any] = {"step": np.int64(4), "best": [(np.float32(0.5), "a")]}
    rank.save_checkpoint(state, 1)

    assert rank.load_checkpoint() == {"step": 4, "best": [(0.5, "a")]}
    assert isinstance(state["step"], np.int64)


def test_save_checkpoint_keeps_a_state_dict_as_it_is(rank):
    model = torch.nn.BatchNorm2d(2)
    rank.save_checkpoint({"model": model.state_dict()}, 1)

    state = rank.load_checkpoint()
    assert state is not None
    assert state["model"]._metadata == model.state_dict()._metadata


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.ones(2), "ndarray"),
        (np.random.default_rng(7), "Generator"),
        (np.random.RandomState(7), "RandomState"),
        (random.Random(7), "Random"),
        (torch.Generator(), "Generator"),
    ],
    ids=["array", "NumPy", "RandomState", "Python", "torch"],
)
def test_save_checkpoint_names_what_it_cannot_hold(rank, value, kind):
    with pytest.raises(ConfigError, match=rf"\(state\['best'\]\['at'\] is a {kind}\)"):
        rank.save_checkpoint({"best": {"at": value}}, 1)


def test_a_state_of_a_generator_can_be_saved(rank):
    generator = np.random.default_rng(7)
    rank.save_checkpoint({"rng": generator.bit_generator.state}, 1)
    expected = generator.random()

    state = rank.load_checkpoint()
    assert state is not None
    generator.bit_generator.state = state["rng"]
    assert generator.random() == expected
