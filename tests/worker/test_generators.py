"""Random generators go on from where a checkpoint found them."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.store.paths import RunPaths
from nbkit.worker import checkpoint
from nbkit.worker.generators import pack, random_state, restore_random_state, unpack
from nbkit.worker.rank import Rank
from nbkit.worker.rank_context import Context

BITS = [np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox]
MADE: dict[str, Callable[[], Any]] = {
    "Python's": lambda: random.Random(7),
    "torch's": lambda: torch.Generator().manual_seed(7),
    "NumPy's old one": lambda: np.random.RandomState(7),
    "an old one with new bits": lambda: np.random.RandomState(np.random.PCG64(7)),
    "SFC64": lambda: np.random.Generator(np.random.SFC64(7)),
    **{bits.__name__: lambda bits=bits: np.random.Generator(bits(7)) for bits in BITS},
}


def draw(generator: Any) -> list[float]:
    """Return what any generator draws next."""
    if isinstance(generator, torch.Generator):
        return torch.rand(3, generator=generator).tolist()
    if isinstance(generator, random.Random):
        return [generator.random() for _ in range(3)]
    # A normal number keeps half of a pair for the next one.
    return [*generator.normal(size=3), *generator.uniform(size=3)]


def saved(folder, state: dict[str, Any]) -> Any:
    """Return a state after a checkpoint, as the only rank."""
    shared, generators = pack(state)
    own = {**random_state(), "generators": generators}
    path = checkpoint.save(folder, 1, shared, own, 0, 1, lambda: None, 1)
    loaded, own = checkpoint.load(path, 0)
    restore_random_state(own)
    return unpack(loaded, own["generators"])


@pytest.mark.parametrize("name", MADE)
def test_a_generator_in_the_state_goes_on_from_where_it_was(tmp_path, name):
    generator = MADE[name]()
    draw(generator)
    state = {"rng": [generator], "weights": torch.ones(2), "step": np.int64(4)}

    loaded = saved(tmp_path, state)

    assert draw(loaded["rng"][0]) == draw(generator)
    assert loaded["step"] == 4
    assert state["rng"] == [generator]


def test_the_process_own_generators_go_on(tmp_path):
    np.random.seed(7)
    random.seed(7)
    torch.manual_seed(7)
    np.random.normal()

    def drawn() -> list[float]:
        return [np.random.normal(), random.random(), torch.rand(()).item()]

    shared, _ = pack({})
    own = {**random_state(), "generators": []}
    path = checkpoint.save(tmp_path, 1, shared, own, 0, 1, lambda: None, 1)
    expected = drawn()
    restore_random_state(checkpoint.load(path, 0)[1])

    assert drawn() == expected


def test_a_rank_without_a_generator_goes_on_from_that_of_rank_0():
    first, second = random.Random(1), random.Random(2)
    shared, _ = pack({"a": first, "b": second})
    own = random.Random(3)

    loaded = unpack(shared, pack({"a": own})[1])

    assert draw(loaded["a"]) == draw(own)
    assert draw(loaded["b"]) == draw(second)


def test_a_generator_in_two_places_stays_one():
    generator = np.random.default_rng(7)
    loaded = unpack(*pack({"g": generator, "loader": {"g": generator}}))

    assert loaded["g"] is loaded["loader"]["g"]


def test_what_a_checkpoint_cannot_hold_is_named_with_its_place(tmp_path):
    state = {"best": {"at": np.ones(2), "value": np.float32(0.5)}}

    with pytest.raises(ConfigError, match=r"\(state\['best'\]\['at'\] is a ndarray\)"):
        saved(tmp_path, state)


def test_each_rank_goes_on_with_the_generators_of_its_own_state(tmp_path, monkeypatch):
    both = threading.Barrier(2)
    monkeypatch.setattr(Context, "_barrier", lambda self: both.wait)
    paths = RunPaths(tmp_path / "runs" / "20260101-000000-two-aaaa")
    paths.root.mkdir(parents=True)
    config = ExperimentConfig(task="function", gpus=2, device="cpu")
    ranks = [
        Context(Rank(paths, number, number, 2, 2, 0, None), config, torch.device("cpu"))
        for number in range(2)
    ]
    generators = [np.random.default_rng(number) for number in range(2)]
    saving = [
        threading.Thread(target=rank.save_checkpoint, args=({"rng": generator}, 1))
        for rank, generator in zip(ranks, generators, strict=True)
    ]
    for thread in saving:
        thread.start()
    for thread in saving:
        thread.join()

    for rank, generator in zip(ranks, generators, strict=True):
        state = rank.load_checkpoint()
        assert state is not None
        assert draw(state["rng"]) == draw(generator)
