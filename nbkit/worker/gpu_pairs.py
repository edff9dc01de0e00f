"""`python -m nbkit.worker.gpu_pairs`: an all-reduce over each pair of GPUs, bounded.

Each GPU has a process, forked from this one after it has imported torch, so that one
that hangs is replaced. Pairs without a GPU in common take their turns side by
side. What a pair did is a line of JSON; one that fails is tried again without
peer-to-peer access, which tells what is at fault. All have ended when this one has.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import FileStore  # pyright: ignore[reportPrivateImportUsage]

from nbkit.health import end_with_parent

_MESSAGE_BYTES = 32 * 2**20
_REPEATS = 3
_ENDED_SECONDS = 1.0
"""For a killed process to end; one that hangs in the driver is left to it."""
_LONGEST_WAIT_SECONDS = 3600.0
_TIMEOUT = datetime.timedelta(minutes=5)
"""torch's own, which would end the process without a word: it is never reached."""


@dataclass
class _Task:
    """An all-reduce of two GPUs."""

    pair: tuple[int, int]
    without_p2p: bool = False
    began: float | None = None
    """When both got the command to begin; None while one of them is not ready."""
    seconds: float = 0.0
    """How long it may take from then on."""
    answers: list[dict[str, Any]] = field(default_factory=list)


class _Agent:
    """The process of one GPU."""

    def __init__(self, gpu: int, device: str, without_p2p: bool) -> None:
        self.gpu = gpu
        self.device = device
        self.without_p2p = without_p2p
        self.is_ready = False
        self.has_met = False
        """Whether it has done an all-reduce before; the first one starts NCCL."""
        self.task: _Task | None = None
        # Forked: torch is imported, and nothing has used CUDA yet.
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        arguments = (gpu, device, without_p2p, theirs)
        self.process = context.Process(target=_serve, args=arguments, daemon=True)
        self.process.start()
        theirs.close()

    def end(self) -> None:
        self.process.kill()
        self.process.join(_ENDED_SECONDS)
        self.pipe.close()


def check_pairs(
    num_gpus: int,
    *,
    deadline: float,
    pair_seconds: float,
    first_pair_seconds: float,
    device: str = "cuda",
) -> Iterator[dict[str, Any]]:
    """Yield what each pair did: as soon as it did, and at the end those not checked."""
    pairs = list(combinations(range(num_gpus), 2))
    with tempfile.TemporaryDirectory(prefix="nbkit-pairs-") as folder:
        patience = pair_seconds, first_pair_seconds
        schedule = _Schedule(pairs, device, folder, *patience)
        try:
            while schedule.goes_on and time.monotonic() < deadline:
                yield from schedule.advance(deadline)
        finally:
            schedule.end()
        yield from schedule.rest()


class _Schedule:
    """Which pairs are checked next, and now, and by which processes."""

    def __init__(
        self,
        pairs: Sequence[tuple[int, int]],
        device: str,
        folder: str,
        pair_seconds: float,
        first_pair_seconds: float,
    ) -> None:
        self._device = device
        self._folder = folder
        self._pair_seconds = pair_seconds
        self._first_pair_seconds = first_pair_seconds
        self._number = 0
        self._tasks = deque(_Task(pair) for pair in pairs)
        self._running: list[_Task] = []
        self._have_begun: set[int] = set()
        gpus = sorted({gpu for pair in pairs for gpu in pair})
        self._agents = {gpu: _Agent(gpu, device, without_p2p=False) for gpu in gpus}

    @property
    def goes_on(self) -> bool:
        return bool(self._tasks or self._running)

    def advance(self, deadline: float) -> Iterator[dict[str, Any]]:
        """Start what can start, wait until something happens, and yield what it is."""
        self._assign()
        ends = [
            one.began + one.seconds for one in self._running if one.began is not None
        ]
        patience = max(0.0, min([deadline, *ends]) - time.monotonic())
        patience = min(patience, _LONGEST_WAIT_SECONDS)
        agents = {agent.pipe: agent for agent in self._agents.values()}
        for pipe in wait(list(agents), patience):
            agent = agents[pipe]  # type: ignore[index]
            if self._agents.get(agent.gpu) is agent:
                yield from self._hear(agent)
        now = time.monotonic()
        for task in list(self._running):
            if task.began is not None and now > task.began + task.seconds:
                said = f"it hangs: nothing within {task.seconds:g} s"
                yield self._failed(task, said)

    def rest(self) -> Iterator[dict[str, Any]]:
        """Yield the pairs that were not checked; one that is tried again was."""
        tasks = [*self._running, *self._tasks]
        pairs = sorted(task.pair for task in tasks if not task.without_p2p)
        if not pairs:
            return
        for gpu in self._agents.keys() - self._have_begun:
            yield {"gpu": gpu, "error": "CUDA does not begin on it in time"}
        yield {"not_reached": pairs}

    def end(self) -> None:
        for agent in self._agents.values():
            agent.process.kill()
        for agent in self._agents.values():
            agent.end()

    def _assign(self) -> None:
        for task in list(self._tasks):
            agents = [self._agents[gpu] for gpu in task.pair]
            if any(agent.task is not None for agent in agents):
                continue
            self._tasks.remove(task)
            self._running.append(task)
            for agent in agents:
                if agent.without_p2p != task.without_p2p:
                    self._renew(agent, task.without_p2p)
                self._agents[agent.gpu].task = task
        for task in self._running:
            agents = [self._agents[gpu] for gpu in task.pair]
            if task.began is None and all(agent.is_ready for agent in agents):
                self._number += 1
                task.began = time.monotonic()
                has_met = all(agent.has_met for agent in agents)
                task.seconds = (
                    self._pair_seconds if has_met else self._first_pair_seconds
                )
                for rank, agent in enumerate(agents):
                    agent.pipe.send((rank, f"{self._folder}/{self._number}"))

    def _hear(self, agent: _Agent) -> Iterator[dict[str, Any]]:
        try:
            said = agent.pipe.recv()
        except (EOFError, ConnectionResetError):
            agent.process.join(_ENDED_SECONDS)
            code = agent.process.exitcode
            said = {"error": f"the process of one ended with {code}"}
        if "ready" in said:
            agent.is_ready = True
            self._have_begun.add(agent.gpu)
        elif not agent.is_ready:
            yield {"gpu": agent.gpu, **said}
            self._give_up(agent)
        elif "error" in said and agent.task is not None:
            yield self._failed(agent.task, said["error"])
        elif "error" in said:
            self._renew(agent, without_p2p=False)
        elif agent.task is not None:
            task = agent.task
            task.answers.append(said)
            if len(task.answers) == len(task.pair):
                yield self._done(task)

    def _done(self, task: _Task) -> dict[str, Any]:
        self._release(task)
        for gpu in task.pair:
            self._agents[gpu].has_met = True
        slower = max(one["seconds"] for one in task.answers)
        return {
            "pair": task.pair,
            "without_p2p": task.without_p2p,
            "bytes_per_second": _MESSAGE_BYTES / slower,
        }

    def _failed(self, task: _Task, said: str) -> dict[str, Any]:
        """Replace both processes, since the other one waits; try without P2P next."""
        self._release(task)
        for gpu in task.pair:
            self._renew(self._agents[gpu], without_p2p=not task.without_p2p)
        if not task.without_p2p:
            self._tasks.appendleft(_Task(task.pair, without_p2p=True))
        return {"pair": task.pair, "without_p2p": task.without_p2p, "error": said}

    def _release(self, task: _Task) -> None:
        self._running.remove(task)
        for gpu in task.pair:
            self._agents[gpu].task = None

    def _renew(self, agent: _Agent, without_p2p: bool) -> None:
        agent.end()
        self._agents[agent.gpu] = _Agent(agent.gpu, self._device, without_p2p)

    def _give_up(self, agent: _Agent) -> None:
        """Leave a GPU out; the one that was to meet it is free."""
        if agent.task is not None:
            self._release(agent.task)
        agent.end()
        del self._agents[agent.gpu]
        self._tasks = deque(task for task in self._tasks if agent.gpu not in task.pair)


def _serve(gpu: int, device: str, without_p2p: bool, pipe: Connection) -> None:
    """Answer until no more is asked; the process of one GPU."""
    end_with_parent()
    os.environ["NCCL_DEBUG"] = os.environ.get("NCCL_DEBUG", "WARN")
    if without_p2p:
        os.environ["NCCL_P2P_DISABLE"] = "1"
    try:
        here = torch.device("cpu")
        if device == "cuda":
            here = torch.device("cuda", gpu)
            torch.cuda.set_device(here)
            torch.zeros(1, device=here)
        pipe.send({"ready": True})
        while True:
            rank, file = pipe.recv()
            pipe.send({"seconds": _all_reduce(rank, file, here)})
    except EOFError:
        return
    except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
        pipe.send({"error": " ".join(str(error).split()) or type(error).__name__})


def _all_reduce(rank: int, file: str, device: torch.device) -> float:
    """Return how long an all-reduce of two ranks takes, in seconds; check its sum."""
    on_gpu = device.type == "cuda"
    options: dict[str, Any] = {"device_id": device} if on_gpu else {}
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        store=FileStore(file, 2),
        rank=rank,
        world_size=2,
        timeout=_TIMEOUT,
        **options,
    )
    message = torch.full((_MESSAGE_BYTES // 4,), rank + 1.0, device=device)
    dist.all_reduce(message)
    if not bool((message == 3).all()):
        error = "the sum is wrong: what a GPU sends does not arrive as it was"
        raise ArithmeticError(error)
    start = time.perf_counter()
    for _ in range(_REPEATS):
        dist.all_reduce(message)
    if on_gpu:
        torch.cuda.synchronize(device)
    seconds = (time.perf_counter() - start) / _REPEATS
    dist.destroy_process_group()
    return seconds


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what each pair does, a line of JSON each; end this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, required=True)
    parser.add_argument("--deadline", type=float, required=True)
    parser.add_argument("--pair-seconds", type=float, default=6.0)
    parser.add_argument("--first-pair-seconds", type=float, default=10.0)
    parser.add_argument("--device", default="cuda")
    asked = parser.parse_args(arguments)
    end_with_parent()
    # What NCCL and torch print is for the log, not for the reader of the answers.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as output:
        os.dup2(2, 1)
        # Who reads them must not wait for a process that hangs in the driver.
        os.register_at_fork(after_in_child=output.close)
        write: Callable[[str], Any] = output.write
        for row in check_pairs(
            asked.gpus,
            deadline=asked.deadline,
            pair_seconds=asked.pair_seconds,
            first_pair_seconds=asked.first_pair_seconds,
            device=asked.device,
        ):
            write(json.dumps(row) + "\n")
            output.flush()
    # Python's own end waits for each process, one that cannot be killed too.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
