"""The checks of `nbkit doctor` for torch and DALI, in a separate process.

Only what a run would use is asked: the GPUs that torch shows, the instructions that it
was built for, and one all-reduce of one rank. No context is made on any GPU, so that
trainings there do not have less memory for it.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sysconfig
import warnings
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from nbkit.errors import NvmlUnavailableError
from nbkit.findings import Finding, Severity
from nbkit.health import check, check_package, installed, stream
from nbkit.packages import packages_of, pip_install
from nbkit.plural import plural
from nbkit.telemetry.cuda_errors import cuda_advice
from nbkit.telemetry.nvml import open_nvml
from nbkit.telemetry.torch_builds import TorchBuild, covers, last_torch, needed_branch
from nbkit.telemetry.visible_devices import visible_devices

if TYPE_CHECKING:
    from nbkit.telemetry.sample import GpuDevice


_OLDEST_DALI_CUDA = 12
"""The oldest CUDA of the driver for which nbkit names a DALI."""

_PROGRAM = "#include <stdio.h>\n#include <Python.h>\n"
_COMPILERS = {
    "C": ("CC", ("gcc", "clang"), "gcc"),
    "C++": ("CXX", ("g++", "clang++"), "g++"),
}
"""Variable, programs in the order in which they are taken, and Debian's package."""
_LIMIT_SECONDS = 30.0


@dataclass(frozen=True)
class DriverGpus:
    """GPUs that runs may use, from NVML."""

    cuda: str | None = None
    """Newest CUDA version that the driver supports."""
    capabilities: tuple[str, ...] = ()
    """Compute capability of each GPU, such as ``9.0``."""
    uuids: tuple[str, ...] = ()
    divided: bool = False
    """Whether a GPU is in MIG mode: torch then shows a single instance."""
    version: str | None = None
    """Version of the driver, such as ``580.65.06``."""

    @property
    def torch(self) -> TorchBuild | None:
        """Newest torch of the package index that runs here; None if none does."""
        branch = None if self.version is None else _major(self.version)
        return last_torch([*map(_version, self.capabilities)], branch)

    @property
    def dali(self) -> str:
        """Extra of nbkit with the DALI that runs here."""
        return self.torch.dali if self.uuids and self.torch else "dali"


@dataclass(frozen=True)
class TorchGpus:
    """GPUs that torch shows."""

    version: str
    cuda: str | None = None
    """CUDA version of the torch build; None without CUDA."""
    uuids: tuple[str, ...] = ()
    arches: tuple[str, ...] = ()
    """Targets of its kernels, such as ``sm_90`` and ``compute_120``."""
    words: str = ""
    """Warning of torch when it searched for GPUs."""


def checks() -> Iterator[Finding]:
    """Yield the results; torch before its companions."""
    driver = _driver_gpus()
    # Together: each torchvision belongs to one torch.
    anew = pip_install("torch", "torchvision", options="--force-reinstall")
    torch = yield from _import(
        "PyTorch", "torch", action=anew, missing=_missing_torch(driver)
    )
    if torch is not None:
        yield from judge_gpus(driver, _torch_gpus(torch))
        yield from _collectives(torch, driver)
        both = pip_install("torch", "torchvision")
        vision = Finding("torchvision", "error", "not installed", both)
        yield from _import("torchvision", "torchvision", action=anew, missing=vision)
        words = "not installed: runs write no TensorBoard files"
        command = pip_install("tensorboard")
        yield check_package("TensorBoard", "tensorboard", words, command, "warning")
        yield judge_compiler()
    yield from _nvimagecodec(driver)
    yield from _dali(driver)
    words = "not installed; only INT8 on GPUs needs it"
    yield check_package("torchao", "torchao", words, pip_install("torchao"), "note")


def judge_gpus(driver: DriverGpus, torch: TorchGpus) -> Iterator[Finding]:
    """Yield whether torch can use the GPUs that the driver shows."""
    if not driver.uuids:
        return
    count, seen = len(driver.uuids), len(torch.uuids)
    missing = sorted(
        {cc for cc in driver.capabilities if not covers(torch.arches, _version(cc))}
    )
    severity: Severity = "error"
    if torch.cuda is None:
        evidence = (
            f"torch {torch.version} is built without CUDA, but the driver shows "
            f"{plural(count, 'GPU')}"
        )
        both = pip_install("torch", "torchvision")
        action = f"pip uninstall torch torchvision; {both}"
    elif (seen < count and not driver.divided) or not seen:
        why = f" ({torch.words})" if torch.words else ""
        evidence = f"torch shows {seen} of {count} GPUs{why}"
        action = _remedy_without_gpus(torch, driver)
    elif missing:
        evidence = (
            f"torch {torch.version} has no kernels for compute capability "
            f"{', '.join(missing)}, only {' '.join(torch.arches)}"
        )
        action = _torch_remedy(driver)
    elif not driver.divided and set(torch.uuids) != set(driver.uuids):
        evidence = "torch and the driver detect different GPUs"
        action = "check what sets CUDA_VISIBLE_DEVICES before torch starts"
    else:
        severity, action = "ok", ""
        evidence = f"{seen} of {count}, CUDA {torch.cuda}"
        if driver.cuda is not None and _version(torch.cuda) > _version(driver.cuda):
            evidence += (
                f", supported by the driver (CUDA {driver.cuda}, same major version)"
            )
    yield Finding("torch on GPUs", severity, evidence, action)


def _remedy_without_gpus(torch: TorchGpus, driver: DriverGpus) -> str:
    """Say what to do where torch shows no GPU: its CUDA is too new, or the machine."""
    built = str(torch.cuda)
    if driver.cuda is not None and _major(built) > _major(driver.cuda):
        return (
            f"torch is built with CUDA {built}, but the driver supports up to "
            f"{driver.cuda}: {_torch_remedy(driver)}"
        )
    advice = cuda_advice(torch.words)
    if advice is not None:
        return advice.text
    return (
        "run nvidia-smi; with NVSwitch, run systemctl status nvidia-fabricmanager; in "
        "a container, check for /dev/nvidia*"
    )


def _torch_remedy(driver: DriverGpus) -> str:
    """Say how to get a torch that runs with the driver and the GPUs."""
    if driver.torch is not None:
        return pip_install(driver.torch.requirement, "torchvision", options="--upgrade")
    needed = needed_branch([*map(_version, driver.capabilities)])
    if needed is not None:
        return f"install driver {needed} or newer"
    return (
        "no torch build on the package index has kernels for these GPUs; set "
        "device='cpu'"
    )


def _major(version: str) -> int:
    return _version(version)[0]


def _version(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _driver_gpus() -> DriverGpus:
    try:
        with open_nvml() as nvml:
            devices = [gpu for gpu in nvml.devices() if gpu.uuid and not gpu.error]
            cuda, version = nvml.cuda_driver_version, nvml.driver_version
    except NvmlUnavailableError:
        return DriverGpus()  # the machine's own check says why
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    divided = any(gpu.mig_enabled for gpu in devices)
    gpus: Sequence[GpuDevice] = (
        devices if divided else visible_devices(devices, setting)
    )
    capabilities = tuple(filter(None, (gpu.compute_capability for gpu in gpus)))
    uuids = tuple(str(gpu.uuid) for gpu in gpus)
    return DriverGpus(cuda, capabilities, uuids, divided, version)


def _torch_gpus(torch: ModuleType) -> TorchGpus:
    """Return what torch says; it says in a warning why it cannot use a GPU."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        uuids = tuple(
            f"GPU-{torch.cuda.get_device_properties(number).uuid}"
            for number in range(count)
        )
        arches = tuple(torch.cuda.get_arch_list()) if count else ()
    words = str(caught[0].message).strip().partition("\n")[0] if caught else ""
    return TorchGpus(torch.__version__, torch.version.cuda, uuids, arches, words)


def _collectives(torch: ModuleType, driver: DriverGpus) -> Iterator[Finding]:
    if driver.uuids and torch.version.cuda is not None:
        if torch.distributed.is_nccl_available():
            number = ".".join(map(str, torch.cuda.nccl.version()))
            yield Finding("NCCL", "ok", number)
        else:
            evidence = "not in this torch build: multi-GPU training fails"
            anew = pip_install("torch", "torchvision", options="--force-reinstall")
            yield Finding("NCCL", "error", evidence, anew)
    try:
        _reduce(torch)
    except (OSError, RuntimeError) as error:
        evidence = f"an all-reduce of one rank fails: {error}".partition("\n")[0]
        action = "check that this host's name resolves (getent hosts $(hostname))"
        if "127.0.0.1" in evidence:
            action = "start the loopback interface (ip link set lo up)"
        yield Finding("gloo", "error", evidence, action)
    else:
        yield Finding("gloo", "ok", "an all-reduce of one rank works")


def _reduce(torch: ModuleType) -> None:
    group = torch.distributed
    group.init_process_group("gloo", store=group.HashStore(), rank=0, world_size=1)
    try:
        group.all_reduce(torch.ones(1))
    finally:
        group.destroy_process_group()


def _nvimagecodec(driver: DriverGpus) -> Iterator[Finding]:
    """Say which decoder the ``torch`` loader takes."""
    builds = [installed(f"nvidia-nvimgcodec-cu{cuda}") for cuda in (12, 13)]
    missing = [] if any(builds) else ["nvImageCodec"]
    missing += [] if installed("cykooz.resizer") else ["cykooz.resizer"]
    if missing:
        words = f'{" and ".join(missing)} not installed: loader="torch" decodes with '
        words += "Pillow, which is slower"
        command = pip_install(*packages_of(driver.dali))
        yield Finding("nvImageCodec", "note", words, command)
        return
    yield from _import(
        "nvImageCodec",
        "nvidia.nvimgcodec",
        action=pip_install(*packages_of(driver.dali), options="--force-reinstall"),
        severity="warning",
        note=', for loader="torch"',
    )


def _dali(driver: DriverGpus) -> Iterator[Finding]:
    builds = {cuda: installed(f"nvidia-dali-cuda{cuda}0") for cuda in (12, 13)}
    versions = {cuda: version for cuda, version in builds.items() if version}
    ours = pip_install(*packages_of(driver.dali))
    if not versions:
        words = 'not installed; only loader="dali" needs it'
        yield Finding("DALI", "note", words, ours)
        return
    if len(versions) > 1:
        words = f"CUDA {' and '.join(map(str, versions))} builds overwrite each other"
        both = " ".join(f"nvidia-dali-cuda{cuda}0" for cuda in versions)
        action = f"pip uninstall -y {both}; {ours}"
        yield Finding("DALI", "warning", words, action)
        return
    [(cuda, version)] = versions.items()
    package = f"nvidia-dali-cuda{cuda}0"
    replace = f"pip uninstall {package}; {pip_install(*packages_of('dali'))}"
    problem = ""
    if driver.cuda and _major(driver.cuda) < cuda:
        problem = f"; the driver supports up to {driver.cuda}"
        if _major(driver.cuda) < _OLDEST_DALI_CUDA:
            replace = "update the driver, or use another loader"
    elif cuda > _OLDEST_DALI_CUDA and driver.dali == "dali" and driver.capabilities:
        oldest = min(driver.capabilities, key=_version)
        problem = f", which does not support compute capability {oldest}"
    if problem:
        words = f"{version} is for CUDA {cuda}{problem}"
        yield Finding("DALI", "warning", words, replace)
        return
    yield from _import(
        "DALI",
        "nvidia.dali",
        action=pip_install(package, options="--force-reinstall"),
        severity="warning",
        note=f" for CUDA {cuda}",
    )


def _missing_torch(driver: DriverGpus) -> Finding:
    if not driver.uuids:
        evidence = "not installed: runs can be shown, but not started"
        command = pip_install(*packages_of("train"))
        return Finding("PyTorch", "warning", evidence, command)
    evidence = f"not installed, but the driver shows {plural(len(driver.uuids), 'GPU')}"
    requirement = "torch" if driver.torch is None else driver.torch.requirement
    command = pip_install(*packages_of("train"), requirement)
    return Finding("PyTorch", "error", evidence, command)


def _import(
    what: str,
    name: str,
    *,
    action: str,
    missing: Finding | None = None,
    severity: Severity = "error",
    note: str = "",
) -> Generator[Finding, None, ModuleType | None]:
    """Yield a module's version, or why it cannot be imported; return the module."""
    try:
        module: ModuleType = importlib.import_module(name)
    except (ImportError, OSError, RuntimeError) as error:
        if missing and isinstance(error, ModuleNotFoundError) and error.name == name:
            yield missing
            return None
        words = f"{type(error).__name__}: {error}".partition("\n")[0]
        yield Finding(what, severity, f"cannot be imported ({words})", action)
        return None
    evidence = f"{getattr(module, '__version__', 'installed')}{note}"
    yield Finding(what, "ok", evidence)
    return module


def judge_compiler(include: Path | None = None) -> Finding:
    """Return whether programs can be compiled against this Python."""
    # On GPUs, Triton compiles a launcher in C for each kernel, on the machine that runs
    # it; on CPUs the kernels themselves are C++.
    folder = include or Path(sysconfig.get_path("include"))
    compiler = _compiler("C")
    missing: list[str] = []
    packages: list[str] = []
    for language in _COMPILERS:
        if _compiler(language) is None:
            missing.append(f"no {language} compiler")
            packages.append(_COMPILERS[language][2])
    if not (folder / "Python.h").exists():
        missing.append(f"no Python.h in {folder}")
        packages.append(f"python{sysconfig.get_python_version()}-dev")
    if compiler is not None and not missing:
        problem = _compile(compiler, folder)
        missing = [f"{compiler} fails ({problem})"] if problem else []
        packages = ["gcc", "libc6-dev"]
    evidence = f"{compiler} and Python.h found"
    if missing:
        evidence = f"{', '.join(missing)}: compile=True fails"
    action = f"sudo apt-get install -y {' '.join(packages)} (Debian package names)"
    if os.environ.get("CC"):
        action = f"unset CC; {action}"
    return check("torch.compile", not missing, evidence, action)


def _compiler(language: str) -> str | None:
    variable, programs, _ = _COMPILERS[language]
    return os.environ.get(variable) or next(
        filter(None, map(shutil.which, programs)), None
    )


def _compile(compiler: str, folder: Path) -> str | None:
    """Return why a program cannot be compiled; None if it can."""
    try:
        done = subprocess.run(
            [*compiler.split(), "-fsyntax-only", f"-I{folder}", "-xc", "-"],
            input=_PROGRAM,
            capture_output=True,
            text=True,
            timeout=_LIMIT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = done.stderr.strip().splitlines() or ["it printed nothing"]
    errors = [line for line in lines if "error" in line]
    return (errors or lines)[0] if done.returncode else None


if __name__ == "__main__":
    stream(checks())
