"""Plan of the notebook of concurrent jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from nbkit import registry
from nbkit.config import ExperimentConfig, LoaderConfig
from nbkit.config.fields import DATA_FAULT_FIELDS
from nbkit.datasets.enough import check_enough_images
from nbkit.errors import ConfigError, DeviceError
from nbkit.launch.devices.choice import visible_gpus
from nbkit.launch.submit import existing_data
from nbkit.plural import plural
from nbkit.questions.concurrent_jobs.copies import copies_of, copy_data
from nbkit.questions.concurrent_jobs.cpus import CpuShare, cpu_shares, shared_cores
from nbkit.questions.concurrent_jobs.layouts import JobSetting, Planned
from nbkit.questions.study_plan import Plan, PlanValues, below_one, images_in_words
from nbkit.studies.devices import Devices, find_devices
from nbkit.studies.parameters import Parameters
from nbkit.telemetry.cpus import usable_cpus
from nbkit.telemetry.topology import read_cpus

_FEWEST_DEVICES = 2
_MOST_JOBS = 8
"""By default: the GPUs of a large server."""

_GPU_DEFAULTS: dict[str, Any] = {
    "pinned": [False],
    "model": "resnet50",
    "precision": "fp16",
    "batch_size_per_gpu": 256,
    "image_size": 224,
    # Jobs do not start at the same moment: some seconds of difference have to be small
    # against the time that they are measured.
    "steps": 300,
    "warmup_steps": 20,
    "repeats": 5,
}
_CPU_DEFAULTS: dict[str, Any] = {
    "pinned": [False, True],
    "model": "resnet18",
    "precision": "fp32",
    "batch_size_per_gpu": 8,
    "image_size": 64,
    "steps": 20,
    "warmup_steps": 4,
    "repeats": 2,
}
_CONFIG_FIELDS = (
    *("model", "precision", "batch_size_per_gpu", "image_size", "loader", "steps"),
    "warmup_steps",
    *DATA_FAULT_FIELDS,
)
_STORAGE = ("shared", "separate")
_SPLIT = (
    ", or split the GPU into MIG instances if it supports MIG (sudo nvidia-smi -mig "
    "1; sudo nvidia-smi mig -cgi 9,9 -C)"
)


@dataclass(frozen=True, kw_only=True)
class ConcurrentPlan(Plan):
    """Planned measurement, and the data that its jobs read."""

    data: str
    copies: tuple[Path, ...]
    """Copies of the data, one per job; empty for shared storage."""


def plan(parameters: Parameters) -> ConcurrentPlan:
    """Return the plan for these parameters, without starting anything.

    Raises
    ------
    ConfigError
        If a parameter is invalid.
    DeviceError
        If the concurrent jobs need more devices than available.
    """
    p = parameters
    _check_values(p)
    devices = _devices(p)
    layouts = _layouts(p, devices)
    jobs = layouts[0]
    values = p.filled(_CPU_DEFAULTS if devices.is_cpu else _GPU_DEFAULTS)
    values["data"] = existing_data(values["data"])
    cpus = read_cpus()
    shares: list[CpuShare] = []
    if True in values["pinned"]:
        gpus = [] if devices.is_cpu else visible_gpus(p.device)
        shares = cpu_shares(cpus, jobs, gpus)
    separate = "separate" in p.storage
    copies = copies_of(values["data"], p.copies or [], len(jobs)) if separate else ()
    threads = max(1, int(usable_cpus()) // sum(jobs))
    planned = tuple(
        Planned(sizes, JobSetting(storage, pinned))
        for storage in dict.fromkeys(p.storage)
        for pinned in dict.fromkeys(values["pinned"])
        for sizes in layouts
    )
    arms: dict[str, ExperimentConfig] = {}
    for layout in planned:
        for names in (layout.alone, layout.jobs):
            for place, name in enumerate(names):
                if name not in arms:
                    arms[name] = _config(
                        layout, place, name, values, devices, shares, copies, threads
                    )
    for config in arms.values():
        registry.resolve("engines", config.engine)().check(config)
    # Copies for jobs may not be there yet.
    check_enough_images(arm.replace(data=values["data"]) for arm in arms.values())
    return ConcurrentPlan(
        arms=arms,
        prepared={
            "planned": [asdict(layout) for layout in planned],
            "cpu_shares": [asdict(share) for share in shares],
            "share_cores": bool(shares)
            and shared_cores([share.cpus for share in shares], cpus),
            "copies": [{"folder": str(copy)} for copy in copies],
            "threads_per_rank": threads,
        },
        concurrent=[layout.jobs for layout in planned if len(layout.sizes) > 1],
        control=planned[0].alone[0] if p.control else None,
        repeats=values["repeats"],
        environment={"OMP_NUM_THREADS": str(threads)},
        data=values["data"],
        copies=copies,
        parameters=p,
        describe=describe,
    )


def describe(plan: PlanValues) -> list[str]:
    """Return what runs together, on which CPUs, and what all arms have in common."""
    return [
        *plan.smoke_test("The numbers do not apply to jobs on GPUs."),
        _what(plan),
        *_pinning(plan.facts),
        *_storage(plan),
        _conditions(plan),
        *_copy_notes(plan.facts),
    ]


def prepare(plan: ConcurrentPlan) -> ConcurrentPlan:
    """Create the copies of the data that jobs will read.

    Raises
    ------
    StoreError
        If a copy cannot be written.
    """
    made = [
        {"folder": str(copy), "data": plan.data, "is_new": is_new}
        for copy, is_new in copy_data(plan.data, plan.copies).items()
    ]
    return replace(plan, prepared={**plan.prepared, "copies": made})


def _check_values(p: Parameters) -> None:
    lines = []
    if p.layout is not None and (not p.layout or min(p.layout) < 1):
        lines.append(
            f"layout={_listed(p.layout)} has a job without a device. Use 1 or more "
            "devices for each job, such as 1,1."
        )
    if p.layout == [1]:
        lines.append("layout=1 is a single job, so there is no comparison. Use 1,1.")
    lines += below_one(p, "repeats")
    lines += [
        f"storage={name!r} is not one of {' and '.join(_STORAGE)}. Use one or both."
        for name in p.storage
        if name not in _STORAGE
    ]
    if lines:
        raise ConfigError("\n".join(lines))


def _devices(p: Parameters) -> Devices:
    """Return what there is; of a divided GPU, jobs of one device take its instances."""
    devices = find_devices(p.device, "local", sum(p.layout or [1]))
    if devices.is_cpu or any(size > 1 for size in p.layout or [1]):
        return devices
    return Devices("cuda", len(visible_gpus(p.device)), devices.name)


def _layouts(p: Parameters, devices: Devices) -> list[tuple[int, ...]]:
    """Return the sizes of the concurrent jobs, then of the one job on all devices."""
    default = 2 if devices.is_cpu else max(2, min(devices.count, _MOST_JOBS))
    requested: list[int] = p.layout or [1] * default
    # One job has nothing beside it: its devices are compared as jobs of one each.
    jobs = tuple(requested) if len(requested) > 1 else (1,) * requested[0]
    total = sum(jobs)
    if total > devices.count:
        have = plural(devices.count, "usable CPU" if devices.is_cpu else "GPU")
        few = devices.count < _FEWEST_DEVICES
        use = "Use" if few else "Use a smaller layout, or"
        split = _SPLIT if requested == [1, 1] and not devices.is_cpu else ""
        message = (
            f"layout={_listed(jobs)} requires {total} devices; available: {have}. "
            f"{use} a machine with {total} devices{split}."
        )
        raise DeviceError(message)
    # A run of several ranks takes no MIG instances: they cannot reach each other.
    fits = devices.is_cpu or total <= find_devices(p.device, "local", total).count
    # On CPUs, where it says little, half a minute matters more.
    by_default = not devices.is_cpu if p.one_job is None else p.one_job
    is_wanted = by_default or len(requested) == 1
    return [jobs, (total,)] if is_wanted and fits else [jobs]


def _config(
    layout: Planned,
    place: int,
    name: str,
    values: Mapping[str, Any],
    devices: Devices,
    shares: Sequence[CpuShare],
    copies: Sequence[Path],
    threads: int,
) -> ExperimentConfig:
    """Return the configuration of one job of a layout, by its place in it."""
    # The configuration itself checks what a notebook's parameters say.
    given: dict[str, Any] = {field: values[field] for field in _CONFIG_FIELDS}
    data = values["data"]
    if layout.setting.storage == "separate":
        data = str(copies[place])
    if data != "synthetic":
        # As many for a job alone as for one among others.
        given["loader_config"] = LoaderConfig(num_workers=max(1, threads - 1))
    if layout.setting.pinned:
        own = shares[place : place + 1] if len(layout.sizes) > 1 else shares
        given["cpus"] = tuple(chain(*(share.cpus for share in own)))
        given["cpu_binding"] = "cores"
        given["devices"] = tuple(chain(*(share.devices for share in own))) or None
    return ExperimentConfig(
        **given,
        name=f"concurrent {name}",
        gpus=layout.sizes[place],
        data=data,
        # Each job trains on its own images and weights.
        seed=values["seed"] + place,
        device=devices.device_type,
        # No one needs the curves of some hundred steps; they take CPU time.
        tensorboard=False,
    )


def _what(plan: PlanValues) -> str:
    """Return how much is measured."""
    planned = [Planned.of(layout) for layout in plan.facts["planned"]]
    repeats, control = plan.repeats, bool(plan.control)
    jobs = planned[0].sizes
    one_job = any(len(layout.sizes) == 1 for layout in planned)
    groups = sum(len(layout.sizes) > 1 for layout in planned)
    alone = len({name for layout in planned for name in layout.alone})
    starts = (groups + alone + control) * repeats
    runs = (groups * len(jobs) + alone + control) * repeats
    beside = f" and 1 job on all {sum(jobs)} devices" if one_job else ""
    twice = f"; A/A control: {planned[0].alone[0]}" if control else ""
    return (
        f"{len(jobs)} concurrent jobs (layout {_listed(jobs)}) vs. the same job alone"
        f"{beside}{twice}. n={repeats}, interleaved: {starts} starts, {runs} runs."
    )


def _pinning(facts: Mapping[str, Any]) -> Iterator[str]:
    shares = [CpuShare(**share) for share in facts["cpu_shares"]]
    if not shares:
        return
    cpus_by_job = ", ".join(
        f"job {number} CPU {_listed(share.cpus)}"
        for number, share in enumerate(shares, start=1)
    )
    yield (
        f"Pinned: each job runs on separate CPUs ({cpus_by_job}). Not pinned: on any "
        "CPU."
    )
    if shares[0].devices:
        yield (
            "Pinned jobs use GPUs and CPUs on the same NUMA nodes; other jobs use any "
            "free GPUs."
        )
    if shares[0].fallback_reason:
        yield f"Cores are pinned per rank: {shares[0].fallback_reason}."
    if facts["share_cores"]:
        yield "Some pinned jobs share a physical core."


def _storage(plan: PlanValues) -> Iterator[str]:
    parents = {str(Path(copy["folder"]).parent) for copy in plan.facts["copies"]}
    if parents:
        storage = dict.fromkeys(plan.parameters["storage"])
        yield (
            f"Storage: {' and '.join(storage)}. With separate storage, each job reads "
            f"its own copy of the data in {', '.join(sorted(parents))}. The page cache "
            "is not controlled."
        )


def _copy_notes(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield a note on each copy of the data once it is made."""
    for copy in facts["copies"]:
        folder, is_new = copy["folder"], copy.get("is_new")
        if is_new:
            made = f"{folder} is a copy of {copy['data']}"
            yield f"{made}. Remove it when no longer needed."
        elif is_new is not None:
            yield f"{folder} already exists, with the same file names and sizes."


def _conditions(plan: PlanValues) -> str:
    """Return what all arms have in common."""
    config, seed = next(iter(plan.arms.values())), plan.parameters["seed"]
    size, threads = config.image_size, plan.facts["threads_per_rank"]
    return (
        f"Conditions: {config.model}, {config.precision}, batch "
        f"{config.batch_size_per_gpu} per rank, {size}x{size}, "
        f"{images_in_words(config)}, {plural(config.steps or 0, 'step')} "
        f"(first {config.num_warmup_steps} warm-up), "
        f"{plural(threads, 'thread')} per rank, seed {seed} + job index."
    )


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
