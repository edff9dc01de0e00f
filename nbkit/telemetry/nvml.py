"""The GPUs of this machine, read through NVML; only this file imports ``pynvml``.

NVML is the library of ``nvidia-smi``; ``pynvml`` is its Python binding (package
``nvidia-ml-py``). What the driver or a GPU cannot tell becomes None with a reason, is
asked once and not again, and never disturbs another field or another GPU.

References
----------
https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Self

from nbkit import clock
from nbkit.errors import NvmlUnavailableError
from nbkit.packages import pip_install
from nbkit.telemetry.binding import UNREADABLE, binding_of
from nbkit.telemetry.condition import GpuCondition, read_condition
from nbkit.telemetry.gpu import Gpu, nvml_reason
from nbkit.telemetry.sample import GpuDevice, GpuSample, Xid

PCI_DEVICES = Path("/sys/bus/pci/devices")
_NVIDIA = "0x10de"
"""NVIDIA's PCI vendor id (https://pci-ids.ucw.cz/read/PC/10de)."""
WINDOWS_GPU = Path("/dev/dxg")
"""A GPU below Windows' subsystem for Linux is not on the PCI bus."""

_REMEDIES = {
    "no library": "libnvidia-ml.so.1 was not found; install the NVIDIA driver, or "
    "start the container with access to the GPUs (--gpus all)",
    "driver not loaded": "the NVIDIA kernel module is not loaded; as root, run "
    "nvidia-smi or modprobe nvidia",
    "version mismatch": "the driver library and the kernel module have different "
    "versions, for example after an update; reboot, or reload the kernel module",
    "no permission": "no permission to open /dev/nvidiactl; ask the administrator for "
    "access to the GPUs",
    "gpu lost": "a GPU has fallen off the bus; check dmesg for an Xid message, then "
    "reset the GPU or reboot",
    "no gpu": "no GPU found, or none that the driver supports; check lspci and dmesg",
    "driver too old": "the driver library has no nvmlInitWithFlags; install driver "
    "450 or later",
}

_TOPOLOGY_WORDS = {
    0: "INTERNAL",
    10: "PIX",
    20: "PXB",
    30: "PHB",
    40: "NODE",
    50: "SYS",
}
"""``nvmlGpuTopologyLevel_t`` in the words of ``nvidia-smi topo -m``."""

_MOST_GPUS = 4096

_P2P_WORDS = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "DR", 5: "NS"}
"""``nvmlGpuP2PStatus_t`` in the words of ``nvidia-smi topo -p2p``."""

_P2P_WAYS = {
    "read": "NVML_P2P_CAPS_INDEX_READ",
    "write": "NVML_P2P_CAPS_INDEX_WRITE",
    "nvlink": "NVML_P2P_CAPS_INDEX_NVLINK",
}

_WAIT_MILLISECONDS = 1
"""Bindings differ in whether 0 means no wait or for ever."""

_MOST_AT_ONCE = 64
"""A GPU that fails may report without end."""

_ECHOES = {45, 154}
"""What the driver reports right after another error: a program was ended, and the GPU
must be reset."""


def open_nvml(*, detailed: bool = False, xid_events: bool = False) -> Nvml:
    """Return NVML, initialised; close it when done."""
    # Open it once and keep it: the call takes up to seconds where persistence mode is
    # off, and drivers have hung after many of them.
    try:
        import pynvml
    except ImportError as error:
        remedy = pip_install("nvidia-ml-py")
        message = f"GPUs cannot be read ({error}): run {remedy}."
        raise NvmlUnavailableError(message, reason="no library") from error
    module: Any = pynvml
    binding: Any = binding_of(module)
    if missing := binding.missing():
        remedy = pip_install("nvidia-ml-py", options="--force-reinstall")
        message = (
            f"GPUs cannot be read ({binding.file} is not part of nvidia-ml-py or is "
            f"too old, as it lacks {missing[0]}): run pip uninstall --yes pynvml, then "
            f"run {remedy}."
        )
        raise NvmlUnavailableError(message, reason="other pynvml")
    try:
        binding.nvmlInit()
        try:
            return Nvml(binding, detailed=detailed, xid_events=xid_events)
        except binding.NVMLError:
            with suppress(binding.NVMLError):  # the first error is the reason
                binding.nvmlShutdown()
            raise
    except binding.NVMLError as error:
        reason = nvml_reason(binding, error.value)
        # An image may bring the library along to a machine without a GPU.
        missing = reason in ("no library", "driver not loaded")
        if missing and not _has_nvidia_device():
            reason = "no gpu"
        raise unavailable(reason) from error


def _has_nvidia_device() -> bool:
    """Return whether there is a GPU for which a driver could be installed."""
    if WINDOWS_GPU.exists():
        return True
    vendors = PCI_DEVICES.glob("*/vendor")
    return any(vendor.read_text().strip() == _NVIDIA for vendor in vendors)


def unavailable(reason: str) -> NvmlUnavailableError:
    """Return the error for GPUs that cannot be read, with its fix."""
    remedy = _REMEDIES.get(reason, "run nvidia-smi for details")
    message = f"GPUs cannot be read ({reason}): {remedy}."
    return NvmlUnavailableError(message, reason=reason)


def describe_gpus(nvml: Nvml | None = None) -> dict[str, Any]:
    """Return driver and GPUs of this machine, as JSON values; unknown is None."""
    if nvml is None:
        try:
            with open_nvml() as opened:
                return describe_gpus(opened)
        except NvmlUnavailableError as error:
            unknown = ("driver_version", "cuda_driver_version", "devices")
            return {
                **dict.fromkeys((*unknown, "topology", "p2p")),
                "gpus_unavailable": error.reason,
            }
    return {
        "driver_version": nvml.driver_version,
        "cuda_driver_version": nvml.cuda_driver_version,
        "devices": [device.to_dict() for device in nvml.devices()],
        "topology": nvml.topology(),
        "p2p": nvml.p2p(),
        "gpus_unavailable": None,
    }


class Nvml:
    """NVML, initialised, with a handle of every GPU; made by `open_nvml`."""

    pids_are_here = True
    """Whether its pids may be those of processes of this machine."""
    reported_holders: ClassVar[Mapping[int, dict[str, Any]]] = {}
    """Further facts on processes, by pid: none from NVML."""

    def __init__(
        self, pynvml: Any, *, detailed: bool = False, xid_events: bool = False
    ) -> None:
        self._pynvml = pynvml
        count = pynvml.nvmlDeviceGetCount()
        if type(count) is not int or not 0 <= count <= _MOST_GPUS:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
        self._gpus = [
            Gpu.find(pynvml, index, detailed=detailed) for index in range(count)
        ]
        listens = detailed or xid_events
        self._xids = XidEvents(pynvml, self._gpus) if listens else None

    @property
    def driver_version(self) -> str | None:
        """Version of the driver, such as ``570.86.15`` (``driver_version``)."""
        version = self._ask_system("nvmlSystemGetDriverVersion")
        return version if isinstance(version, str) else None

    @property
    def cuda_driver_version(self) -> str | None:
        """Newest CUDA version that the driver supports, such as ``12.8``."""
        version = self._ask_system("nvmlSystemGetCudaDriverVersion")
        if type(version) is not int or not 0 < version < 1_000_000:
            return None
        return f"{version // 1000}.{version % 1000 // 10}"

    def devices(self) -> tuple[GpuDevice, ...]:
        """Return the constant properties of each GPU, in NVML's order."""
        return tuple(gpu.describe() for gpu in self._gpus)

    def conditions(self) -> tuple[GpuCondition, ...]:
        """Return the condition of each GPU, in NVML's order."""
        return tuple(read_condition(self._pynvml, gpu) for gpu in self._gpus)

    def read(self, uuids: Collection[str] | None = None) -> tuple[GpuSample, ...]:
        """Return one reading of each GPU, in NVML's order."""
        if self._xids is not None:
            self._xids.collect()
        selected = (gpu for gpu in self._gpus if uuids is None or gpu.uuid in uuids)
        return tuple(gpu.read() for gpu in selected)

    def topology(self) -> list[list[str | None]]:
        """Return the connection of each pair of GPUs, both by NVML index."""
        # The words are those of ``nvidia-smi topo -m``: ``X`` itself, ``PIX`` one PCIe
        # switch, ``PXB`` several, ``PHB`` the host bridge, ``NODE`` within a NUMA node,
        # ``SYS`` between NUMA nodes; besides, ``NVLINK`` any number of NVLinks and
        # ``INTERNAL`` the same board. None is unknown.
        return [[self._path(a, b) for b in self._gpus] for a in self._gpus]

    def p2p(self) -> dict[str, list[list[str | None]]]:
        """Return whether each pair of GPUs supports peer-to-peer access."""
        return {
            way: [[self._p2p(a, b, constant) for b in self._gpus] for a in self._gpus]
            for way, constant in _P2P_WAYS.items()
        }

    def close(self) -> None:
        """Close NVML, so that an idle GPU may power down; no call works afterwards."""
        xids = [] if self._xids is None else [self._xids.close]
        gpus = [gpu.close for gpu in self._gpus]
        for close in (*xids, *gpus, self._pynvml.nvmlShutdown):
            # A lost GPU refuses; there is nothing else to do then, and all others
            # must be let go.
            with suppress(self._pynvml.NVMLError):
                close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask_system(self, function: str) -> Any:
        try:
            return getattr(self._pynvml, function)()
        except self._pynvml.NVMLError:
            return None

    def _path(self, a: Gpu, b: Gpu) -> str | None:
        if a is b:
            return "X"
        if a.error or b.error:
            return None
        if self._p2p(a, b, _P2P_WAYS["nvlink"]) == "OK":
            return "NVLINK"
        # Not every driver knows of NVLink; the PCIe path is always there.
        nvml = self._pynvml
        try:
            level = nvml.nvmlDeviceGetTopologyCommonAncestor(a.handle, b.handle)
        except nvml.NVMLError:
            return None
        return _TOPOLOGY_WORDS.get(level) if isinstance(level, int) else None

    def _p2p(self, a: Gpu, b: Gpu, constant: str) -> str | None:
        if a is b:
            return "X"
        if a.error or b.error:
            return None
        nvml = self._pynvml
        # A tuple in some versions of the binding, for a comma after its number.
        way = getattr(nvml, constant)
        way = way[0] if isinstance(way, tuple) else way
        try:
            status = nvml.nvmlDeviceGetP2PStatus(a.handle, b.handle, way)
        except nvml.NVMLError:
            return None
        return _P2P_WORDS.get(status) if isinstance(status, int) else None


class XidEvents:
    """Listens for Xid errors of some GPUs; each knows its last one (`Gpu.xid`)."""

    def __init__(self, pynvml: Any, gpus: Sequence[Gpu]) -> None:
        self._pynvml = pynvml
        self._gpus: dict[bytes, Gpu] = {}
        self._events: Any = None
        self._reason: str | None = None
        critical = pynvml.nvmlEventTypeXidCriticalError
        for gpu in gpus:
            if gpu.error:
                continue
            try:
                if self._events is None:
                    self._events = pynvml.nvmlEventSetCreate()
                pynvml.nvmlDeviceRegisterEvents(gpu.handle, critical, self._events)
            except pynvml.NVMLError as error:
                gpu.set_xid_reason(nvml_reason(pynvml, error.value))
            else:
                # A lost GPU no longer tells its UUID; the handle stays what it was.
                self._gpus[bytes(gpu.handle)] = gpu

    def collect(self) -> None:
        """Note what was reported since the previous call."""
        if not self._gpus:
            return
        nvml = self._pynvml
        reporting: set[Gpu] = set()
        for _ in range(_MOST_AT_ONCE):
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, _WAIT_MILLISECONDS)
            except nvml.NVMLError as error:
                silent = error.value == nvml.NVML_ERROR_TIMEOUT
                reason = None if silent else nvml_reason(nvml, error.value)
                if reason != self._reason:
                    self._reason = reason
                    for gpu in self._gpus.values():
                        gpu.set_xid_reason(reason)
                return
            try:
                gpu = self._gpus.get(bytes(event.device))
                code = int(event.eventData)
            except UNREADABLE:
                continue
            if gpu is None or (gpu in reporting and code in _ECHOES):
                continue
            reporting.add(gpu)
            gpu.xid = Xid(code, round(clock.now(), 3))

    def close(self) -> None:
        """Stop listening."""
        if self._events is not None:
            self._pynvml.nvmlEventSetFree(self._events)
            self._events = None
        self._gpus = {}
