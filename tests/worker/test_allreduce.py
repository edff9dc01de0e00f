"""All-reduces that are timed: what is sent, and the signs of progress between them."""

import pytest
import torch
import torch.distributed as dist

from nbkit.config import AllReduceConfig
from nbkit.worker.allreduce import message_sizes, time_all_reduces


@pytest.fixture
def group(tmp_path):
    file = f"file://{tmp_path / 'group'}"
    dist.init_process_group("gloo", init_method=file, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_what_is_recorded_is_what_is_sent():
    sizes = AllReduceConfig(bytes_min=7, bytes_max=120)

    assert list(message_sizes(sizes)) == [4, 28, 112]


@pytest.mark.usefixtures("group")
def test_each_reduction_says_that_there_is_progress():
    """All of one size may take longer than a rank may be silent."""
    signs = []
    asked = AllReduceConfig(iterations=3, warmup_iterations=2)

    seconds = time_all_reduces(4, asked, torch.device("cpu"), lambda: signs.append(1))

    assert (len(seconds), len(signs)) == (3, 5)


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("damaged", [slice(1), slice(None)], ids=["one", "all"])
def test_a_sum_that_is_wrong_is_an_error(monkeypatch, damaged):
    monkeypatch.setattr(dist, "all_reduce", lambda message: message[damaged].add_(1))

    with pytest.raises(ArithmeticError, match="data are corrupted in transfer"):
        time_all_reduces(8, AllReduceConfig(), torch.device("cpu"), list)
