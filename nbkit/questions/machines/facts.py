"""What a run's record says of its machine, and what another's must have in common."""

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

BATCH_NORM = "batch normalisation"
"""The fact that tells whose kernels computed it, by number format."""

_CONDITIONS = (
    *("model", "precision", "memory_format", "compile", "cuda_graphs"),
    *("gradient_accumulation_steps", "optimizer", "image_size", "deterministic"),
    *("cpu_binding", "checkpoint_period_steps"),
)
"""Fields of the configuration that decide what work a step is, and how much."""

_OF_FILES = ("loader", "loader_config", "crop_area_min", "crop_area_max")
"""The same where images are read from files."""


def conditions(run: Run) -> dict[str, str]:
    """Return what a run of another machine must have in common with this one.

    The batch and the number of devices are those that the ranks had, the data those
    that they read; a path is not a condition.
    """
    config, worker = run.config, run.worker
    values: dict[str, Any] = {name: getattr(config, name) for name in _CONDITIONS}
    values["batch_size_per_gpu"] = worker.get("batch_size_per_gpu")
    values["device_type"] = worker.get("device_type")
    values["world_size"] = worker.get("world_size")
    values["nnodes"] = config.nnodes
    data = worker.get("data") or {}
    fingerprint = data.get("fingerprint") or {}
    values["num_classes"] = data.get("num_classes") or config.num_classes
    if config.data == "synthetic":
        values["data"] = "synthetic"
    else:
        digest = str(fingerprint.get("sha256"))[:12]
        values["data"] = f"{fingerprint.get('files')} images, sha256 {digest}"
        settings = config.model_dump(mode="json", include=set(_OF_FILES))
        values |= {name: settings[name] for name in _OF_FILES}
    return {name: _text(value) for name, value in values.items()}


def not_known(run: Run) -> list[str]:
    """Return which of a run's conditions its record lacks.

    Two runs that both lack one do not agree in it.
    """
    worker = run.worker
    needed: dict[str, Any] = {
        "batch size": worker.get("batch_size_per_gpu"),
        "number of devices": worker.get("world_size"),
        "kind of device": worker.get("device_type"),
    }
    if run.config.data != "synthetic":
        fingerprint = (worker.get("data") or {}).get("fingerprint") or {}
        whole = fingerprint.get("files") and fingerprint.get("sha256")
        needed["fingerprint of the data"] = whole
    return [name for name, value in needed.items() if not value]


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return json.dumps(value, sort_keys=True)
    return str(value)


def identity(run: Run) -> tuple[str, ...]:
    """Return what tells one machine in one state from another.

    Host, devices, CPUs, hypervisor, driver and torch: the same host with another
    driver, or as a virtual machine and on bare metal, is two machines to compare.
    """
    record, worker = run.record, run.worker
    machine, system = record.get("machine") or {}, record.get("system") or {}
    devices = {str(one.get("name")) for one in worker.get("devices") or []}
    return tuple(
        str(value)
        for value in (
            machine.get("hostname"),
            sorted(devices),
            machine.get("usable_cpus"),
            worker.get("device_type"),
            machine.get("hypervisor"),
            system.get("driver_version"),
            *(worker.get(name) for name in ("torch", "cuda", "nccl")),
        )
    )


def machine_facts(runs: Sequence[Run]) -> dict[str, str | None]:
    """Return what is worth knowing of a machine, by name; unknown is None."""
    values_by_name: dict[str, list[str]] = {}
    for run in runs:
        for name, value in _facts_of(run).items():
            values = values_by_name.setdefault(name, [])
            if value is not None and value not in values:
                values.append(value)
    return {name: " | ".join(values) or None for name, values in values_by_name.items()}


def _facts_of(run: Run) -> dict[str, str | None]:
    record, worker = run.record, run.worker
    machine, system = record.get("machine") or {}, record.get("system") or {}
    launch = record.get("launch") or {}
    gpus = system.get("devices") or []
    return {
        "devices used": _device_name(worker),
        **_host_facts(machine, launch),
        "CPU binding": bound_to(run),
        **_gpu_facts(gpus),
        "topology": _pairs(system.get("topology")),
        **{
            f"P2P {way}": _pairs((system.get("p2p") or {}).get(way))
            for way in ("read", "write", "nvlink")
        },
        "network cards": _listed(machine.get("network_cards"), _card),
        "RDMA ports": _listed(machine.get("rdma_ports"), _port),
        "driver": system.get("driver_version"),
        "torch": worker.get("torch"),
        **{
            label: None if worker.get(name) is None else str(worker[name])
            for label, name in (("CUDA", "cuda"), ("cuDNN", "cudnn"), ("NCCL", "nccl"))
        },
        BATCH_NORM: _batch_norm(run),
    }


def _batch_norm(run: Run) -> str | None:
    backend = batch_norm_of(run.worker)
    return None if backend is None else f"{run.config.precision}: {backend}"


def _host_facts(
    machine: Mapping[str, Any], launch: Mapping[str, Any]
) -> dict[str, str | None]:
    memory = machine.get("memory_total_bytes")
    usable = machine.get("usable_cpus")
    threads = launch.get("cpus_per_rank")
    return {
        "host": machine.get("hostname"),
        "system": machine.get("system_product"),
        "virtualization": _virtualization(machine),
        "container": machine.get("container"),
        "operating system": machine.get("operating_system"),
        "kernel": machine.get("kernel"),
        "CPU": machine.get("cpu_model"),
        "processors": _sockets(machine),
        "usable CPUs": None if usable is None else f"{usable:g}",
        "CPUs of a rank": None if threads is None else str(threads),
        "CPU frequency governor": machine.get("cpu_frequency_governor"),
        "memory": None if memory is None else wording.size(memory),
    }


def _virtualization(machine: Mapping[str, Any]) -> str | None:
    named = machine.get("hypervisor")
    if named is None and machine.get("virtual_machine"):
        return "a virtual machine, the hypervisor is unknown"
    return named


def _sockets(machine: Mapping[str, Any]) -> str | None:
    sockets, cores = machine.get("num_sockets"), machine.get("num_cores")
    if sockets is None or cores is None:
        return None
    counts = {
        "socket": sockets,
        "core": cores,
        "NUMA node": machine.get("num_numa_nodes"),
    }
    return ", ".join(
        plural(count, name) for name, count in counts.items() if count is not None
    )


def _gpu_facts(gpus: Sequence[Mapping[str, Any]]) -> dict[str, str | None]:
    """Return facts of all GPUs of a machine; of different ones, each with its count."""
    return {
        "GPUs": _listed(gpus, lambda gpu: gpu.get("name")),
        "GPU virtualization": _listed(gpus, lambda gpu: gpu.get("virtualization")),
        "MIG": _listed(gpus, _mig),
        "power limit": _listed(gpus, lambda gpu: _unit(gpu, "power_limit_watts", "W")),
        "highest SM clock": _listed(
            gpus, lambda gpu: _unit(gpu, "sm_clock_max_mhz", "MHz")
        ),
        "PCIe": _listed(gpus, _pcie),
        "NVLinks of a GPU": _listed(gpus, _nvlink),
    }


def _mig(gpu: Mapping[str, Any]) -> str | None:
    return {True: "on", False: "off", None: None}[gpu.get("mig_enabled")]


def _unit(gpu: Mapping[str, Any], name: str, unit: str) -> str | None:
    value = gpu.get(name)
    return None if value is None else f"{value:,.0f} {unit}"


def _pcie(gpu: Mapping[str, Any]) -> str | None:
    generation, width = gpu.get("pcie_generation"), gpu.get("pcie_width")
    if generation is None or width is None:
        return None
    return f"generation {generation}, {width} lanes"


def _nvlink(gpu: Mapping[str, Any]) -> str | None:
    links = gpu.get("nvlink_links")
    if links is None:
        return None
    version, speed = gpu.get("nvlink_version"), gpu.get("nvlink_megabytes_per_second")
    text = f"{links} links"
    if version is not None:
        text += f", version {version}"
    return text if speed is None else f"{text}, {speed / 1e3:.1f} GB/s each way"


def _card(card: Mapping[str, Any]) -> str | None:
    speed = card.get("speed_megabits_per_second")
    rate = "speed unknown" if speed is None else f"{speed / 1e3:g} Gb/s"
    state = "" if card.get("is_up") else ", down"
    return f"{card.get('driver') or 'unknown driver'} {rate}{state}"


def _port(port: Mapping[str, Any]) -> str | None:
    return f"{port.get('link_layer')} {port.get('rate')}, {port.get('state')}"


def _pairs(matrix: Sequence[Sequence[str | None]] | None) -> str | None:
    """Return how many pairs of GPUs have which word, both directions counted once."""
    if not matrix or len(matrix) < 2:
        return None
    words = [
        matrix[row][column] or wording.UNKNOWN
        for row in range(len(matrix))
        for column in range(row)
    ]
    back = [
        matrix[column][row] or wording.UNKNOWN
        for row in range(len(matrix))
        for column in range(row)
    ]
    both = (a if a == b else f"{a} and {b}" for a, b in zip(words, back, strict=True))
    return _counted(both)


def _listed(
    things: Iterable[Mapping[str, Any]] | None,
    describe: Callable[[Mapping[str, Any]], str | None],
) -> str | None:
    """Return descriptions with their counts; None if there is none to give."""
    found = [describe(thing) for thing in things or ()]
    if not any(found):
        return None
    return _counted(wording.UNKNOWN if text is None else text for text in found)


def _counted(texts: Iterable[str]) -> str:
    counts = Counter(texts)
    return ", ".join(
        text if count == 1 else f"{count} x {text}" for text, count in counts.items()
    )


def _device_name(worker: Mapping[str, Any]) -> str | None:
    names = [one.get("name") for one in worker.get("devices") or []]
    return _counted(name for name in names if name) or None
