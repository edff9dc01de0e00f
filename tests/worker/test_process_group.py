"""Where the ranks of a function meet."""

from __future__ import annotations

import os
import socket

from tests.launch.test_functions import launch


def meet_at(port: int) -> tuple[float, int, int]:
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader

    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", str(port)
    dist.init_process_group("gloo")
    batches = list(DataLoader(torch.ones(8), batch_size=2, num_workers=2))
    total = torch.stack(batches).sum()
    dist.all_reduce(total)
    dist.destroy_process_group()
    return float(total), len(batches), len(os.environ["TMPDIR"])


def test_function_own_master_port_and_long_tmpdir(tmp_path):
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    environment = {"TMPDIR": str(folder)}
    run = launch(meet_at, args=(port,), gpus=2, environment=environment).wait(120)

    assert run.returns == [(16.0, 4, len(str(folder)))] * 2
