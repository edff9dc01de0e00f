"""Ranks agree on a stop."""

from __future__ import annotations

import pytest
import torch.distributed as dist

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
