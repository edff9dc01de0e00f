"""Recorded facts of a run's machine, and conditions that must be equal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from nbkit.launch.run import Run
from nbkit.plural import plural
from nbkit.reports.batch_norms import batch_norm_of
from nbkit.reproduction.cpu_bindings import bound_to
from nbkit.statistics import quantities as wording

BATCH_NORM = "batch normalization"
"""The fact that tells whose kernels computed it, by number format."""

_CONDITIONS = (
    *("model", "precision", "memory_format", "compile", "cuda_graphs"),
    *("gradient_accumulation_steps", "optimizer", "image_size", "deterministic"),
    *("cpu_binding", "checkpoint_period_steps", "cudnn_benchmark"),
)
"""Fields of the configuration that decide what work a step is, and how much."""

_OF_RANKS = {
    "batch_size_per_gpu": "batch size",
    "device_type": "kind of device",
    "world_size": "number of devices",
}
"""The same out of ``worker.json``, and what each is called where it is missing."""

_OF_FILES = ("loader", "loader_config", "crop_area_min", "crop_area_max")
"""The same where images are read from files."""


def conditions(run: Run) -> dict[str, str]:
    """Return the conditions that a run of another machine must share with this one.

    Batch, number of devices and data are those that the ranks used; paths are not
    conditions.
    """
    config, worker = run.config, run.worker
    data = worker.get("data") or {}
    fingerprint = data.get("fingerprint") or {}
    settings = config.model_dump(mode="json", include={*_CONDITIONS, *_OF_FILES})
    values: dict[str, Any] = {
        **{name: settings[name] for name in _CONDITIONS},
        **{name: worker.get(name) for name in _OF_RANKS},
        "nnodes": config.nnodes,
        "num_classes": data.get("num_classes") or config.num_classes,
        "data": "synthetic",
    }
    if config.data != "synthetic":
        digest = str(fingerprint.get("sha256"))[:12]
        values["data"] = f"{fingerprint.get('files')} images, sha256 {digest}"
        values |= {name: settings[name] for name in _OF_FILES}
    if worker.get("device_type") == "cpu":
        values["OMP_NUM_THREADS"] = variables_of(run).get("OMP_NUM_THREADS")
    return {
        name: json.dumps(value, sort_keys=True)
        if isinstance(value, Mapping)
        else str(value)
        for name, value in values.items()
    }


def not_known(run: Run) -> list[str]:
    """Return which of a run's conditions its record lacks.

    Runs that both lack a condition are not comparable.
    """
    worker = run.worker
    needed = {what: worker.get(name) for name, what in _OF_RANKS.items()}
    if run.config.data != "synthetic":
        fingerprint = (worker.get("data") or {}).get("fingerprint") or {}
        whole = fingerprint.get("files") and fingerprint.get("sha256")
        needed["fingerprint of the data"] = whole
    return [name for name, value in needed.items() if not value]


def identity(run: Run) -> tuple[str, ...]:
    """Return the facts that identify one machine in one state.

    They are host, devices, CPUs, hypervisor, driver and torch: one host with two
    drivers, or with and without virtualization, is two machines to compare. In place of
    the host and CPUs that Slurm chose for a job, it is the cluster and its CPU.
    """
    record, worker = run.record, run.worker
    cluster, launch = cluster_of(run), record.get("launch") or {}
    machine, system = record.get("machine") or {}, record.get("system") or {}
    devices = {str(device.get("name")) for device in worker.get("devices") or []}
    return tuple(
        str(value)
        for value in (
            cluster or machine.get("hostname"),
            sorted(devices),
            launch.get("cpus_per_rank") if cluster else machine.get("usable_cpus"),
            machine.get("cpu_model") if cluster else None,
            worker.get("device_type"),
            machine.get("hypervisor"),
            system.get("driver_version"),
            *(worker.get(name) for name in ("torch", "cuda", "nccl")),
        )
    )


def variables_of(run: Run) -> Mapping[str, Any]:
    """Return the variables that were recorded of a run's environment."""
    return (run.record.get("environment") or {}).get("variables") or {}


def cluster_of(run: Run) -> str | None:
    """Return the Slurm cluster that a run's job ran on; None without a job."""
    has_job = "job" in (run.record.get("launch") or {})
    return variables_of(run).get("SLURM_CLUSTER_NAME") if has_job else None


def machine_facts(runs: Sequence[Run]) -> dict[str, str | None]:
    """Return the facts of a machine for the comparison; unknown is None."""
    values_by_name: dict[str, list[str]] = {}
    for run in runs:
        for name, value in _facts_of(run).items():
            values = values_by_name.setdefault(name, [])
            if value is not None and value not in values:
                values.append(value)
    return {name: " | ".join(values) or None for name, values in values_by_name.items()}


def _facts_of(run: Run) -> dict[str, str | None]:
    norm = batch_norm_of(run.worker)
    record = {
        **run.record,
        "worker": run.worker,
        "cpu_binding": bound_to(run),
        "batch_norm": norm and f"{run.config.precision}: {norm}",
    }
    return {name: _fact(record, *how) for name, how in _FACTS.items()}


def _fact(
    record: Mapping[str, Any], path: str, show: Callable[[Any], str | None] = str
) -> str | None:
    value: Any = record
    for name in path.split("."):
        value = (value or {}).get(name)
    return None if value is None else show(value)


def _virtualization(machine: Mapping[str, Any]) -> str | None:
    named = machine.get("hypervisor")
    if named is None and machine.get("virtual_machine"):
        return "a virtual machine (unknown hypervisor)"
    return named


def _sockets(machine: Mapping[str, Any]) -> str | None:
    names = {
        "num_sockets": "socket",
        "num_cores": "core",
        "num_numa_nodes": "NUMA node",
    }
    counts = {name: machine.get(key) for key, name in names.items()}
    if counts["socket"] is None or counts["core"] is None:
        return None
    return ", ".join(
        plural(count, name) for name, count in counts.items() if count is not None
    )


def _nvlink(gpu: Mapping[str, Any]) -> str | None:
    links = gpu.get("nvlink_links")
    if links is None:
        return None
    version, speed = gpu.get("nvlink_version"), gpu.get("nvlink_megabytes_per_second")
    text = plural(links, "link")
    if version is not None:
        text += f", version {version}"
    return text if speed is None else f"{text}, {speed / 1e3:.1f} GB/s each way"


def _card(card: Mapping[str, Any]) -> str:
    speed = card.get("speed_megabits_per_second")
    rate = "speed unknown" if speed is None else f"{speed / 1e3:g} Gb/s"
    state = "" if card.get("is_up") else ", down"
    return f"{card.get('driver') or 'unknown driver'} {rate}{state}"


def _pairs(matrix: Sequence[Sequence[str | None]]) -> str | None:
    """Return how many pairs of GPUs have which word, both directions counted once."""
    both = (
        dict.fromkeys(word or wording.UNKNOWN for word in (matrix[a][b], matrix[b][a]))
        for a in range(len(matrix))
        for b in range(a)
    )
    return _counted(" and ".join(words) for words in both) or None


def _each(
    show: str | Callable[[Mapping[str, Any]], str | None],
) -> Callable[[Sequence[Mapping[str, Any]]], str | None]:
    """Return how things are described and counted; a format needs all its fields."""

    def describe(thing: Mapping[str, Any]) -> str | None:
        if callable(show):
            return show(thing)
        known = {name: value for name, value in thing.items() if value is not None}
        try:
            return show.format_map(known)
        except KeyError:
            return None

    def listed(things: Sequence[Mapping[str, Any]]) -> str | None:
        texts = [describe(thing) for thing in things]
        return (
            _counted(text or wording.UNKNOWN for text in texts) if any(texts) else None
        )

    return listed


def _counted(texts: Iterable[str]) -> str:
    counts = Counter(texts)
    return ", ".join(
        text if count == 1 else f"{count} x {text}" for text, count in counts.items()
    )


_FACTS: dict[str, Any] = {
    "devices used": (
        "worker.devices",
        lambda devices: (
            _counted(n for device in devices if (n := device.get("name"))) or None
        ),
    ),
    "host": ("machine.hostname",),
    "system": ("machine.system_product",),
    "virtualization": ("machine", _virtualization),
    "container": ("machine.container",),
    "operating system": ("machine.operating_system",),
    "kernel": ("machine.kernel",),
    "CPU": ("machine.cpu_model",),
    "processors": ("machine", _sockets),
    "usable CPUs": ("machine.usable_cpus", "{:g}".format),
    "CPUs of a rank": ("launch.cpus_per_rank",),
    "CPU frequency governor": ("machine.cpu_frequency_governor",),
    "memory": ("machine.memory_total_bytes", wording.size),
    "CPU binding": ("cpu_binding",),
    "GPUs": ("system.devices", _each("{name}")),
    "GPU virtualization": ("system.devices", _each("{virtualization}")),
    "MIG": (
        "system.devices",
        _each(
            lambda gpu: {True: "on", False: "off", None: None}[gpu.get("mig_enabled")]
        ),
    ),
    "power limit": ("system.devices", _each("{power_limit_watts:,.0f} W")),
    "highest SM clock": ("system.devices", _each("{sm_clock_max_mhz:,.0f} MHz")),
    "PCIe": (
        "system.devices",
        _each("generation {pcie_generation}, {pcie_width} lanes"),
    ),
    "NVLinks of a GPU": ("system.devices", _each(_nvlink)),
    "topology": ("system.topology", _pairs),
    "P2P read": ("system.p2p.read", _pairs),
    "P2P write": ("system.p2p.write", _pairs),
    "P2P nvlink": ("system.p2p.nvlink", _pairs),
    "network cards": ("machine.network_cards", _each(_card)),
    "RDMA ports": ("machine.rdma_ports", _each("{link_layer} {rate}, {state}")),
    "driver": ("system.driver_version",),
    "torch": ("worker.torch",),
    "CUDA": ("worker.cuda",),
    "cuDNN": ("worker.cudnn",),
    "NCCL": ("worker.nccl",),
    BATCH_NORM: ("batch_norm",),
}
"""Path in a run's record, and how the value there is shown."""
