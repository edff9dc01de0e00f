"""Rank initialization: device, process group, agreement."""

from __future__ import annotations

import datetime
import os
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

from nbkit.config import ExperimentConfig
from nbkit.errors import DeviceError, NvmlUnavailableError
from nbkit.packages import pip_install
from nbkit.plural import plural
from nbkit.telemetry.cuda_errors import cuda_advice, first_line
from nbkit.telemetry.torch_builds import covers, last_torch
from nbkit.worker.collectives import record_collectives
from nbkit.worker.rank import Rank, device_kind


def choose_device(rank: Rank, config: ExperimentConfig) -> torch.device:
    """Return this rank's own device, checked against the build of torch."""
    kind = device_kind(config)
    if kind in ("cpu", "replay") or (kind == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise DeviceError(_why_no_cuda())
    count = torch.cuda.device_count()
    if rank.local_world_size > count and not config.oversubscribe:
        message = (
            f"{rank.local_world_size} ranks share {plural(count, 'visible GPU')} "
            f"(limit: one rank per GPU). Use gpus={count} or oversubscribe=True."
        )
        raise DeviceError(message)
    device = torch.device("cuda", rank.local_rank % count)
    check_build(torch.cuda.get_device_capability(device), torch.cuda.get_arch_list())
    torch.cuda.set_device(device)
    return device


def check_build(capability: tuple[int, int], architectures: list[str]) -> None:
    """Raise if this build of torch has no code for a GPU."""
    if covers(architectures, capability):
        return
    architecture = f"sm_{capability[0]}{capability[1]}"
    message = (
        f"torch {torch.__version__} has no kernels for this GPU ({architecture}), only "
        f"for {' '.join(architectures)}. {_remedy(capability)}"
    )
    raise DeviceError(message)


def create_process_group(
    rank: Rank, config: ExperimentConfig, device: torch.device
) -> dist.ProcessGroup | None:
    """Make the process group; return a group for objects and flags on the host."""
    # A lone rank needs none and gets None. NCCL refuses two ranks on a device, so that
    # ranks which really share a GPU talk through gloo.
    if rank.world_size == 1:
        return None
    timeout = datetime.timedelta(seconds=config.collective_timeout_seconds)
    shared = device.type == "cuda" and rank.local_world_size > torch.cuda.device_count()
    nccl = device.type == "cuda" and not shared
    options: dict[str, Any] = {"device_id": device} if nccl else {}
    if nccl:
        record_collectives(rank)
    dist.init_process_group(
        "nccl" if nccl else "gloo",
        store=rendezvous(rank, timeout),
        rank=rank.rank,
        world_size=rank.world_size,
        timeout=timeout,
        **options,
    )
    group = dist.new_group(backend="gloo", timeout=timeout)
    assert isinstance(group, dist.ProcessGroup)
    return group


def final_barrier(group: dist.ProcessGroup | None) -> None:
    """Wait until every rank has finished communicating."""
    # The groups are not destroyed: with a peer gone, gloo's destructor has been seen to
    # wait for ever (torch 2.7). The process ends right after this and frees them all.
    if group is not None:
        dist.barrier(group)


class StopAgreement:
    """Ranks agree on a stop at the step boundary, one step late and without waiting.

    Every step starts an all-reduce of three numbers on the host and looks at those of
    the step before, so that neither the device nor the other ranks are waited for.
    """

    def __init__(self, rank: Rank, group: dist.ProcessGroup | None) -> None:
        self.alarm = False
        """Whether any rank has reported an error; the same on all ranks."""
        self.window_steps = 0
        """Rank 0's newest proposal of a number of steps; the same on all ranks."""
        self._agreed = False
        self._rank = rank
        self._group = group
        self._flags = torch.zeros(3, dtype=torch.int32)
        self._work: Any = None

    def reached(self, *, alarm: bool = False, window_steps: int = 0) -> bool:
        """Return whether every rank stops here; called by all at each boundary."""
        # An agreed stop stays agreed: a loop around the one that heard it may ask, too.
        proposed = 0 if self._rank.rank else window_steps
        if self._group is None:
            self.alarm = alarm
            self.window_steps = proposed or self.window_steps
            return self._rank.stop_requested
        self._agreed = self._agreed or self._wait()
        if not self._agreed:
            self._flags[0], self._flags[1] = self._rank.stop_requested, alarm
            self._flags[2] = proposed
            self._work = dist.all_reduce(
                self._flags, dist.ReduceOp.MAX, group=self._group, async_op=True
            )
        return self._agreed

    def close(self) -> None:
        """Wait for the last exchange, so that no rank leaves before it is over."""
        self._wait()

    def _wait(self) -> bool:
        if self._work is None:
            return False
        self._work.wait()
        self._work = None
        stop, alarm, window_steps = self._flags.tolist()
        self.alarm = self.alarm or bool(alarm)
        self.window_steps = window_steps or self.window_steps
        return bool(stop)


def gather(
    values: dict[str, Any], rank: Rank, group: dist.ProcessGroup | None
) -> list[dict[str, Any]]:
    """Return every rank's values, by rank, on every rank."""
    if group is None:
        return [values]
    gathered: list[Any] = [None] * rank.world_size
    dist.all_gather_object(gathered, values, group=group)
    return gathered


def rendezvous(rank: Rank, timeout: datetime.timedelta) -> TCPStore:
    """Return the store through which ranks find each other."""
    # The supervisor has bound the port already and rank 0 inherits the socket, so that
    # no other program can take it meanwhile. Under plain torchrun the agent has it.
    listener = os.environ.get("NBKIT_LISTEN_FD")
    under_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    options = {
        "host_name": os.environ["MASTER_ADDR"],
        "port": int(os.environ["MASTER_PORT"]),
        "world_size": rank.world_size,
        "is_master": rank.rank == 0 and not under_agent,
        "timeout": timeout,
        "wait_for_workers": False,
        # A server that `init_process_group` asks for in this process is the same one.
        "multi_tenant": True,
    }
    if not listener:
        return TCPStore(**options)
    inherited: dict[str, Any] = {"master_listen_fd": int(listener)}
    try:
        return TCPStore(**options, **inherited)
    except NotImplementedError:
        # Until torch 2.7 only the older server takes an inherited socket.
        return TCPStore(**options, **inherited, use_libuv=False)


def _why_no_cuda() -> str:
    """Return why torch sees no GPU although the driver shows one."""
    built_for = torch.version.cuda
    if built_for is None:
        return (
            f"torch {torch.__version__} is a build without CUDA. Install the default "
            f"wheel: {pip_install('torch', 'torchvision', options='--force-reinstall')}"
        )
    from nbkit.telemetry.nvml import open_nvml

    try:
        with open_nvml() as nvml:
            version, supports = nvml.driver_version, nvml.cuda_driver_version
        driver = f"driver {version}, which supports CUDA up to {supports}"
    except NvmlUnavailableError as error:
        driver = f"a driver that cannot be queried ({str(error).rstrip('.')})"
    try:
        torch.cuda.init()
    except Exception as error:  # noqa: BLE001 - torch wraps errors of the driver in many
        problem = first_line(str(error))
    else:
        problem = "CUDA initializes but reports no GPU"
    advice = cuda_advice(problem)
    remedy = advice.text if advice else "run nvidia-smi for details"
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        driver += f", and CUDA_VISIBLE_DEVICES={visible!r}"
    return (
        f"torch {torch.__version__} is built for CUDA {built_for} and sees no GPU with "
        f"{driver}: {problem}; {remedy}."
    )


def _remedy(capability: tuple[int, int]) -> str:
    build = last_torch([capability])
    if build is None:
        return "No torch build on the package index has such kernels: set device='cpu'."
    if build.below is not None:
        command = pip_install(build.requirement, "torchvision")
        return f"Install the last version with such kernels: {command}"
    command = pip_install("torch", "torchvision", options="--upgrade")
    return f"Install a newer torch: {command}"
