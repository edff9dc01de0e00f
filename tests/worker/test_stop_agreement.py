"""Ranks agree on a stop."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch.distributed as dist

from nbkit.config import ExperimentConfig
from nbkit.store.paths import RunPaths
from nbkit.worker import rank_context
from nbkit.worker.distributed import StopAgreement
from nbkit.worker.rank import Rank


@pytest.fixture
def group():
    """Return a process group of one rank."""
    store = dist.HashStore()  # pyright: ignore[reportPrivateImportUsage]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_a_loop_around_the_one_that_heard_of_a_stop_hears_of_it_too(group, tmp_path):
    rank = Rank(tmp_path, 0, 0, 2, 2, 0, None)
    agreement = StopAgreement(rank, group)
    assert not agreement.reached()
    rank.stop_requested = True

    heard = [agreement.reached() for _ in range(5)]

    assert heard == [False, True, True, True, True]
    agreement.close()


@pytest.mark.parametrize(
    ("seconds_per_call", "calls_per_agreement"), [(0.01, 4), (0.4, 2), (3.0, 1)]
)
def test_should_stop_agrees_at_every_fourth_fast_call(
    seconds_per_call, calls_per_agreement, group, tmp_path, monkeypatch
):
    rank = Rank(RunPaths(tmp_path), 0, 0, 2, 2, 0, None)
    config = ExperimentConfig(tensorboard=False)
    run = rank_context.Context(rank, config, None)
    calls, agreements = [0], []
    clock = SimpleNamespace(monotonic=lambda: 1e4 + seconds_per_call * calls[0])
    monkeypatch.setattr(rank_context, "time", clock)
    reached = StopAgreement.reached
    monkeypatch.setattr(
        StopAgreement,
        "reached",
        lambda self, **flags: agreements.append(calls[0]) or reached(self, **flags),
    )

    def is_to_stop():
        calls[0] += 1
        return run.should_stop()

    assert not any(is_to_stop() for _ in range(50))
    gaps = [late - early for early, late in itertools.pairwise(agreements)]
    assert gaps[-3:] == [calls_per_agreement] * 3
    rank.stop_requested = True
    answers = [is_to_stop() for _ in range(2 * calls_per_agreement + 5)]

    first = answers.index(True)
    assert first < 2 * calls_per_agreement
    assert all(answers[first:])
    run.close()
