"""Fields of one reading of the machine: units in names, None for unknown.

A field is None if it cannot be read, never 0 and never a guess; for a GPU,
`GpuSample.unavailable` gives the reason. Fields named "counter" only grow; a reader
takes differences, and drops a negative one (the counter wrapped or was reset).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

SCHEMA = 1
"""Version of the JSON form; it grows when a field changes its meaning."""

CLOCK_EVENT_WORDS = (
    "idle",
    "application clocks",
    "power cap",
    "hardware slowdown",
    "sync boost",
    "thermal (software)",
    "thermal (hardware)",
    "power brake",
    "display clocks",
    "board limit",
    "reliability",
)
"""Why clocks are where they are: word *i* is bit *i* of ``nvmlClocksEventReasons``."""

FIRST_READING = "first reading"
"""Reason of a field that is computed from two readings, in the first of them."""

SLOWDOWN_REASONS = frozenset(
    {
        "power cap",
        "hardware slowdown",
        "thermal (software)",
        "thermal (hardware)",
        "power brake",
        "board limit",
        "reliability",
    }
)
"""Clock event reasons that make a busy GPU slower than its settings allow."""


@dataclass(frozen=True)
class _Record:
    """A frozen record that goes to JSON and back."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values; unknown is None."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the record that `to_dict` described."""
        # Names that this version does not know are left out, so that files of a later
        # version can be read.
        names = {item.name for item in fields(cls)}
        return cls(**{name: values[name] for name in names & values.keys()})


@dataclass(frozen=True)
class GpuProcess(_Record):
    """A process with a compute context on a GPU."""

    pid: int | None
    """Process id as the driver sees it; inside a container it may be the host's. None
    if the driver hides it.

    ``nvmlDeviceGetComputeRunningProcesses``; ``nvidia-smi
    --query-compute-apps=pid``.
    """
    memory_used_bytes: int | None = None
    """Device memory of the process; ``nvidia-smi --query-compute-apps=used_memory``."""
    mig_uuid: str | None = None
    """The MIG instance that the process uses; None without MIG."""


@dataclass(frozen=True)
class MigSample(_Record):
    """One MIG instance: a part of a GPU with its own memory (``nvidia-smi -L``)."""

    uuid: str
    name: str | None = None
    """Product and profile, such as ``NVIDIA H100 80GB HBM3 MIG 1g.10gb``."""
    memory_used_bytes: int | None = None
    """As in `GpuSample`, for this instance only."""
    memory_reserved_bytes: int | None = None
    """As in `GpuSample`, for this instance only."""
    memory_total_bytes: int | None = None
    """As in `GpuSample`, for this instance only."""


@dataclass(frozen=True)
class Xid(_Record):
    """An error that the driver reported while nbkit listened (``dmesg``: NVRM Xid).

    https://docs.nvidia.com/deploy/xid-errors/
    """

    code: int
    """Error code, such as 79: the GPU has fallen off the bus."""
    t: float
    """When nbkit received it: Unix time in seconds."""


_DETAILS = (
    "sm_activity_percent",
    "tensor_activity_percent",
    "ecc_uncorrected_count",
    "xid",
)


@dataclass(frozen=True)
class GpuSample(_Record):
    """One reading of a GPU; in brackets, the fields of ``nvidia-smi --query-gpu``."""

    index: int
    """NVML's index (``index``): neither CUDA's index nor N in /dev/nvidiaN."""
    uuid: str | None = None
    """The GPU's permanent id (``uuid``); None if lost before it was read."""
    name: str | None = None
    """Product (``name``)."""
    error: str | None = None
    """Why nothing could be read, such as ``gpu lost``; None if the GPU answers."""
    gpu_utilization_percent: int | None = None
    """Share of the last 1/6 to 1 s in which at least one kernel ran
    (``utilization.gpu``, ``nvmlDeviceGetUtilizationRates``). It says nothing about how
    much of the GPU that kernel used. Unavailable under MIG.
    """
    memory_used_bytes: int | None = None
    """Memory allocated by processes (``memory.used``, ``nvmlDeviceGetMemoryInfo_v2``).

    Drivers before 510 include the driver's own memory; `memory_reserved_bytes` is then
    None.
    """
    memory_reserved_bytes: int | None = None
    """Memory that driver and firmware keep for themselves (``memory.reserved``)."""
    memory_total_bytes: int | None = None
    """Physical memory (``memory.total``); with `memory_unified`, the host's."""
    memory_unified: bool = False
    """Whether GPU and CPUs share the host's memory: NVML then reports no GPU memory
    (GB10).
    https://docs.nvidia.com/dgx/dgx-spark/known-issues.html
    """
    power_watts: float | None = None
    """Draw of the whole board (``power.draw``, ``nvmlDeviceGetPowerUsage``): mean of
    the last second on most GPUs since Ampere, instantaneous on GA100 and older ones.
    """
    power_limit_watts: float | None = None
    """Power limit in force (``enforced.power.limit``)."""
    energy_joules: float | None = None
    """Counter: energy since the driver was loaded
    (``nvmlDeviceGetTotalEnergyConsumption``, Volta and later). Use it for the energy
    of a run: power readings miss what happens between them.
    """
    temperature_celsius: int | None = None
    """Core temperature (``temperature.gpu``)."""
    sm_clock_mhz: int | None = None
    """Clock of the multiprocessors (``clocks.sm``)."""
    memory_clock_mhz: int | None = None
    """Clock of the memory (``clocks.mem``)."""
    clock_event_reasons: tuple[str, ...] | None = None
    """Reasons for the clocks (``clocks_event_reasons.active``); empty if none."""
    pcie_rx_bytes: int | None = None
    """Counter: bytes received by the GPU over PCIe
    (``NVML_FI_DEV_PCIE_COUNT_RX_BYTES``); it wraps. ``nvidia-smi`` shows rates only.
    """
    pcie_tx_bytes: int | None = None
    """Counter: bytes sent by the GPU over PCIe (``..._TX_BYTES``); it wraps."""
    nvlink_rx_bytes: int | None = None
    """Counter: payload received over all NVLinks
    (``NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX``; ``nvidia-smi nvlink -gt d``).
    """
    nvlink_tx_bytes: int | None = None
    """Counter: payload sent over all NVLinks (``..._DATA_TX``)."""
    processes: tuple[GpuProcess, ...] | None = None
    """Processes with a compute context; under MIG those of every instance."""
    mig_instances: tuple[MigSample, ...] | None = None
    """MIG instances; None unless MIG is on (``mig.mode.current``)."""
    sm_activity_percent: float | None = None
    """Share of the multiprocessors that were busy since the previous reading, 0 to 100
    (``NVML_GPM_METRIC_SM_UTIL``; Hopper and later). Only in a detailed reading.
    """
    tensor_activity_percent: float | None = None
    """Share of the time in which tensor cores worked since the previous reading, 0 to
    100 (``NVML_GPM_METRIC_ANY_TENSOR_UTIL``). Only in a detailed reading.
    """
    ecc_uncorrected_count: int | None = None
    """Uncorrectable memory errors since the driver was loaded
    (``ecc.errors.uncorrected.volatile.total``). Only in a detailed reading.
    """
    xid: Xid | None = None
    """The last error that the driver reported; None if it reported none. Only in a
    detailed reading, and in the samples of a run.
    """
    t: float | None = field(default=None, compare=False)
    """When the counters were read, to compute rates: Unix time in seconds."""
    unavailable: dict[str, str] = field(default_factory=dict)
    """Reason of each field that is None, such as ``not supported``."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values; details only if they are known."""
        values = super().to_dict()
        if not self.memory_unified:
            del values["memory_unified"]  # as on most GPUs
        for name in _DETAILS:
            if values[name] is None:
                del values[name]
        return values

    @property
    def is_slowed(self) -> bool | None:
        """Whether power or temperature limits the clocks; None if unknown."""
        if self.clock_event_reasons is None:
            return None
        return not SLOWDOWN_REASONS.isdisjoint(self.clock_event_reasons)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the sample that `to_dict` described."""
        values = dict(values)
        kinds = {"processes": GpuProcess, "mig_instances": MigSample}
        for name, kind in kinds.items():
            if values.get(name) is not None:
                values[name] = tuple(kind.from_dict(item) for item in values[name])
        if values.get("xid") is not None:
            values["xid"] = Xid.from_dict(values["xid"])
        if values.get("clock_event_reasons") is not None:
            values["clock_event_reasons"] = tuple(values["clock_event_reasons"])
        return super().from_dict(values)


@dataclass(frozen=True)
class GpuDevice(_Record):
    """Properties of a GPU that are constant while its driver is loaded."""

    index: int
    """NVML's index."""
    uuid: str | None = None
    name: str | None = None
    error: str | None = None
    """Why nothing could be read, such as ``gpu lost``; None if the GPU answers."""
    memory_total_bytes: int | None = None
    """Physical memory (``memory.total``); with `memory_unified`, the host's."""
    memory_unified: bool = False
    """As in `GpuSample`."""
    compute_capability: str | None = None
    """Such as ``9.0`` (``compute_cap``), which is ``sm_90`` in torch."""
    power_limit_watts: float | None = None
    """Power limit in force (``enforced.power.limit``)."""
    sm_clock_max_mhz: int | None = None
    """Highest clock of the multiprocessors (``clocks.max.sm``)."""
    memory_clock_max_mhz: int | None = None
    """Highest clock of the memory (``clocks.max.mem``)."""
    pci_bus_id: str | None = None
    """Such as ``00000000:1B:00.0`` (``pci.bus_id``)."""
    pcie_generation: int | None = None
    """Highest generation of GPU and slot (``pcie.link.gen.max``); lower if idle."""
    pcie_width: int | None = None
    """Most lanes that GPU and slot support (``pcie.link.width.max``)."""
    nvlink_links: int | None = None
    """NVLinks in use (``nvidia-smi nvlink -s``); None without NVLink."""
    nvlink_version: str | None = None
    """Version of the first link, such as ``4.0``."""
    nvlink_megabytes_per_second: int | None = None
    """Rate of a link per direction, with protocol (``nvidia-smi nvlink -s``)."""
    mig_enabled: bool | None = None
    """Whether MIG is on (``mig.mode.current``); None if the GPU has no MIG."""
    virtualization: str | None = None
    """Virtualization mode (``nvidia-smi -q``): ``none`` on bare metal, ``passthrough``
    and ``vgpu`` in a virtual machine, ``host vgpu`` and ``host vsga`` on the host that
    shares the GPU.
    """
    persistence_mode: bool | None = None
    """Whether the driver keeps the GPU initialised (``persistence_mode``)."""
    numa_node: int | None = None
    """NUMA node of the PCI slot, from sysfs; ``nvidia-smi topo -m``."""


@dataclass(frozen=True)
class HostSample(_Record):
    """One reading of the host, from ``/proc`` through psutil."""

    cpu_percent: float | None = None
    """Busy share of all CPUs of the host, 0 to 100, since the previous sample of the
    same reader; None in the first one. Waiting for a disk counts as idle.
    """
    cores_percent: tuple[int | None, ...] | None = None
    """Busy share of each CPU, by CPU number; None unless requested."""
    load_average_1_minute: float | None = None
    """Mean number of tasks that run or wait for a CPU or a disk (``uptime``)."""
    memory_used_bytes: int | None = None
    """Total minus available memory: unavailable to new processes."""
    memory_available_bytes: int | None = None
    """Memory for new processes without swapping, page cache included
    (``MemAvailable``).
    """
    disk_read_bytes: int | None = None
    """Counter: bytes read from the host's own disks. Reads from network file systems
    count in `net_rx_bytes`, reads from the page cache nowhere.
    """
    disk_write_bytes: int | None = None
    """Counter: bytes written to the host's own disks."""
    net_rx_bytes: int | None = None
    """Counter: bytes received by the network cards (in a container, by its
    interfaces), without RDMA traffic.
    """
    net_tx_bytes: int | None = None
    """Counter: bytes sent by the network cards."""
    processes_cpu_seconds: float | None = None
    """Counter: user and system time of the run's processes, without the sampler; None
    if the reader was given none. New processes are found within five seconds. A process
    that has ended still counts: in its parent, once the parent has waited for it, or by
    its last reading.
    """


@dataclass(frozen=True)
class Sample(_Record):
    """One reading of the GPUs and the host."""

    t: float
    """When the reading began: Unix time in seconds."""
    gpus: tuple[GpuSample, ...] = ()
    """GPUs in NVML's order; empty without GPUs or without NVML."""
    gpus_unavailable: str | None = None
    """Why GPUs cannot be read, such as ``driver not loaded``; None if they can."""
    host: HostSample = field(default_factory=HostSample)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the sample that `to_dict` described."""
        values = dict(values)
        values["gpus"] = tuple(map(GpuSample.from_dict, values.get("gpus", ())))
        host = dict(values.get("host", {}))
        if host.get("cores_percent") is not None:
            host["cores_percent"] = tuple(host["cores_percent"])
        values["host"] = HostSample.from_dict(host)
        return super().from_dict(values)
