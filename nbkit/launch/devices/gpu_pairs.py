"""What `nbkit doctor --gpus` says of GPUs that work together: each pair of free ones.

A GPU that a run or another user's process uses is left alone; the others are leased
for as long as it takes, as a run would lease them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from nbkit.errors import DeviceError, NvmlUnavailableError
from nbkit.health import CheckResult, tell
from nbkit.launch.devices.choice import Candidate, visible_gpus
from nbkit.launch.devices.pool import Claim, Lease, Waiting
from nbkit.telemetry.cuda_errors import cuda_advice
from nbkit.telemetry.gpu_health import named
from nbkit.telemetry.health import shared_memory
from nbkit.telemetry.nvml import Nvml, open_nvml
from nbkit.telemetry.occupants import occupants

_WHAT = "All-reduce"
_SLOW = 0.5
"""A pair below this share of the fastest is named."""
_POLL_SECONDS = 0.05
_PATIENCE_SECONDS = 1.0
_PCI_DEVICES = Path("/sys/bus/pci/devices")
_SHARED_MEMORY = re.compile(
    rf"shared memory|/dev/shm|No space left|ended with -{int(signal.SIGBUS)}\b",
    re.IGNORECASE,
)
"""What a process says of it; one that finds none where it was promised says nothing,
and ends by SIGBUS."""
_ENDED = "the process of one ended"
_IS_P2P = "export NCCL_P2P_DISABLE=1 trains until it is fixed"


def findings(deadline: float) -> Iterator[CheckResult]:
    """Yield what is found."""
    try:
        gpus = [gpu for gpu in visible_gpus("auto") if not gpu.is_instance]
        if len(gpus) < 2:
            yield CheckResult(_WHAT, "info", _no_pair(len(gpus)))
            return
        yield shared_memory(len(gpus))
        with ExitStack() as stack:
            nvml = stack.enter_context(open_nvml(detailed=True))
            free, descriptors = [], []
            for gpu, lease in _leases(stack, gpus, nvml, deadline):
                if isinstance(lease, Lease):
                    free.append(gpu)
                    descriptors += lease.descriptors
                else:
                    yield CheckResult(gpu.label, "info", f"not checked: {lease}")
            if len(free) < 2:
                found = f"{len(free)} of {len(gpus)} GPUs free: no pair to check"
                remedy = "run it again when no one trains here: nbkit monitor"
                yield CheckResult(_WHAT, "info", found, remedy)
                return
            rows = _check(free, descriptors, deadline)
            yield from judge_pairs(list(rows), free, _paths(nvml))
            yield from _heard(nvml)
            yield from _redirected(nvml)
    except (DeviceError, NvmlUnavailableError) as error:
        yield CheckResult(_WHAT, "failure", str(error), "nbkit doctor says more")


def _no_pair(count: int) -> str:
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    left = "" if setting is None else f" that CUDA_VISIBLE_DEVICES={setting!r} leaves"
    whole = "no whole GPU" if not count else "one whole GPU"
    return f"{whole}{left}: no pair to check"


def _leases(
    stack: ExitStack, gpus: Sequence[Candidate], nvml: Nvml, deadline: float
) -> Iterator[tuple[Candidate, Lease | str]]:
    """Yield a lease of each GPU until the stack is left, or who has it."""
    used = occupants(nvml.read(), [gpu.name for gpu in gpus], ())
    for number, gpu in enumerate(gpus):
        if gpu.name in used:
            yield gpu, f"{used[gpu.name]} uses it"
            continue
        request = {
            "kind": "cuda",
            "candidates": [(gpu.name, gpu.label)],
            "count": 1,
            "oversubscribe": False,
        }
        claim = Claim.enter(f"doctor-{os.getpid()}-{number}", request)
        stack.callback(claim.close)
        claim.take_over()
        claim.call("nbkit doctor --gpus")
        answer = claim.attempt()
        while answer is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)  # another run chooses its devices
            answer = claim.attempt()
        if isinstance(answer, Lease):
            stack.callback(answer.release)
            yield gpu, answer
        else:
            claim.close()
            reason = answer.reason if isinstance(answer, Waiting) else "it is asked for"
            yield gpu, reason


def _check(
    gpus: Sequence[Candidate], descriptors: Sequence[int], deadline: float
) -> Iterator[dict[str, Any]]:
    """Yield what the processes on the GPUs tell; none is left at the end."""
    argv = [sys.executable, "-P", "-m", "nbkit.worker.gpu_pairs"]
    argv += ["--gpus", str(len(gpus)), "--deadline", str(deadline)]
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        pass_fds=descriptors,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(gpu.name for gpu in gpus)},
    )
    assert process.stdout is not None
    # Until it has imported torch, it does not look at the time itself.
    patience = max(0.0, deadline + _PATIENCE_SECONDS - time.monotonic())
    timer = threading.Timer(min(patience, threading.TIMEOUT_MAX), process.kill)
    timer.start()
    has_begun = False
    try:
        for line in process.stdout:
            has_begun = True
            yield json.loads(line)
        code = process.wait()
        if code and time.monotonic() > deadline:
            late = "torch was not imported in time: no pair was checked"
            yield {"late": "not all pairs were checked in time" if has_begun else late}
        elif code:
            yield {"broken": f"its process ended with exit code {code}"}
    finally:
        timer.cancel()
        timer.join()
        process.kill()
        process.stdout.close()
        process.wait()


def judge_pairs(
    rows: Sequence[dict[str, Any]],
    gpus: Sequence[Candidate],
    paths: dict[tuple[str, str], str | None],
) -> Iterator[CheckResult]:
    """Yield what pairs of GPUs did, and what is at fault where they did not."""
    told = {
        (tuple(row["pair"]), row["without_p2p"]): row for row in rows if "pair" in row
    }
    speeds = {
        pair: row["bytes_per_second"]
        for (pair, without), row in told.items()
        if not without and "error" not in row
    }
    if speeds:
        yield _speeds(speeds, gpus)
    for (pair, without), row in told.items():
        if not without and "error" in row:
            path = paths.get((gpus[pair[0]].name, gpus[pair[1]].name))
            again = told.get((pair, True))
            remedy = _remedy(row["error"], again, path)
            what = named([_number(gpus[place]) for place in pair])
            yield CheckResult(what, "failure", f"{_WHAT}: {row['error']}", remedy)
    for row in rows:
        if "gpu" in row:
            advice = cuda_advice(row["error"])
            remedy = advice.text if advice else "run nvidia-smi, which may say more"
            yield CheckResult(gpus[row["gpu"]].label, "failure", row["error"], remedy)
        elif "broken" in row:
            remedy = "nbkit doctor says whether torch works here"
            yield CheckResult(_WHAT, "failure", row["broken"], remedy)
        elif "not_reached" in row or "late" in row:
            found = row.get("late") or f"{len(row['not_reached'])} pairs not checked"
            remedy = "nbkit doctor --gpus --limit 60"
            yield CheckResult(_WHAT, "warning", found, remedy)


def _speeds(speeds: dict[Any, float], gpus: Sequence[Candidate]) -> CheckResult:
    """Say how fast the pairs are that work; one that is far slower is a warning."""
    slow, fast = min(speeds, key=speeds.__getitem__), max(speeds.values())
    count = "1 pair works" if len(speeds) == 1 else f"{len(speeds)} pairs work"
    found = f"{count}, at {speeds[slow] / 1e9:.1f} to {fast / 1e9:.1f} GB/s"
    if speeds[slow] >= _SLOW * fast:
        return CheckResult(_WHAT, "ok", found)
    who = named([_number(gpus[place]) for place in slow])
    found += f", {who} slowest"
    return CheckResult(_WHAT, "info", found, "nvidia-smi topo -m shows how they are wired")


def _remedy(said: str, again: dict[str, Any] | None, path: str | None) -> str:
    """Say what is at fault, and the command for it."""
    if _SHARED_MEMORY.search(said):
        return (
            "NCCL needs shared memory: docker run --shm-size=8g, or sudo mount -o "
            "remount,size=8G /dev/shm"
        )
    if _ENDED in said:
        return "sudo dmesg | tail says who ended it; then nbkit doctor --gpus once more"
    if again is not None and "error" not in again:
        if path in ("NVLINK", "INTERNAL"):
            cause = "NVLink is at fault: nvidia-smi nvlink -e, and reset the GPUs"
        else:
            cause = (
                "peer-to-peer through IOMMU or PCIe ACS is at fault: add iommu=pt to "
                "the kernel's command line, disable ACS in the BIOS, and reboot"
            )
        return f"it works without peer-to-peer, so {cause}; {_IS_P2P}"
    advice = cuda_advice(said)
    if advice is not None:
        return advice.text
    if again is not None:
        return (
            "it fails without peer-to-peer too: check df -h /dev/shm, and "
            "NCCL_DEBUG=INFO nbkit doctor --gpus"
        )
    return f"if it is peer-to-peer through IOMMU or PCIe ACS, {_IS_P2P}"


def _number(gpu: Candidate) -> int:
    return -1 if gpu.index is None else gpu.index


def _paths(nvml: Nvml) -> dict[tuple[str, str], str | None]:
    uuids = [str(gpu.uuid) for gpu in nvml.devices()]
    return {
        (uuids[a], uuids[b]): word
        for a, row in enumerate(nvml.topology())
        for b, word in enumerate(row)
    }


def _heard(nvml: Nvml) -> Iterator[CheckResult]:
    """Yield the errors that the driver reported meanwhile."""
    for sample in nvml.read():
        if sample.error is not None:
            remedy = "look for an Xid message (sudo dmesg | grep Xid), then reboot"
            found = f"lost meanwhile ({sample.error})"
            yield CheckResult(f"GPU {sample.index}", "failure", found, remedy)
        elif sample.xid is not None:
            remedy = f"sudo nvidia-smi --gpu-reset -i {sample.index}, while it is idle"
            found = f"Xid {sample.xid.code} during the check"
            yield CheckResult(f"GPU {sample.index}", "failure", found, remedy)


def _redirected(nvml: Nvml) -> Iterator[CheckResult]:
    """Say whether the IOMMU stands between GPUs that talk over PCIe."""
    words = {word for row in nvml.topology() for word in row}
    if words <= {"X", "NVLINK"}:
        return
    devices = nvml.devices()
    indices = [gpu.index for gpu in devices if _is_translated(gpu.pci_bus_id or "")]
    if indices:
        found = f"translates what {named(indices)} sends: peer-to-peer over PCIe is "
        found += "slow, or hangs"
        remedy = "add iommu=pt to the kernel's command line, and reboot"
        yield CheckResult("IOMMU", "warning", found, remedy)


def _is_translated(bus_id: str) -> bool:
    """Return whether the IOMMU maps a device's addresses; ``identity`` does not.

    Source: https://docs.kernel.org/admin-guide/abi-testing.html (iommu_groups/type)
    """
    # NVML writes the domain with eight digits, sysfs with four.
    kind = _PCI_DEVICES / bus_id[-12:].lower() / "iommu_group/type"
    try:
        return kind.read_text().startswith("DMA")
    except OSError:
        return False


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deadline", type=float, default=float("inf"))
    tell(findings(parser.parse_args().deadline))
