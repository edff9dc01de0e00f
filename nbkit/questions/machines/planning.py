"""Plan of the machines notebook."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nbkit import registry
from nbkit.config import ExperimentConfig
from nbkit.datasets.enough import check_enough_images
from nbkit.errors import ConfigError, NbkitError, ParameterError
from nbkit.launch.submit import existing_data
from nbkit.plural import plural
from nbkit.questions.machines.bundles import (
    Machine,
    MeasuredKind,
    example_bundles,
    machine_of,
    read_bundles,
)
from nbkit.questions.study_plan import Plan, below_one
from nbkit.references.gpu_names import canonical_gpu_name
from nbkit.studies.parameters import Parameters
from nbkit.studies.study import Study

HERE = "this machine"
"""Name of this machine in a notebook that measures; reserved in bundles."""

_PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
_CONTEXT_GPUS = ("A100", "V100")
_CONTEXT_MODEL = "resnet50"


@dataclass(frozen=True, kw_only=True)
class MachinesPlan(Plan):
    """Planned comparison; a notebook displays its notes."""

    machines: Mapping[str, Machine]
    """Machines from bundles, studies and runs, by name."""
    a: str
    """The machine in the numerator of ratios."""
    b: str
    published: tuple[str, str]
    """GPUs of the published table: ratios are first / second."""
    published_model: str
    omitted: Sequence[str]
    """Notes on runs that cannot be compared or repeated."""

    @property
    def notes(self) -> list[str]:
        """Notes for the reader, the most important first."""
        notes = []
        if self.parameters.bundles is None:
            notes.append(
                "No bundles given. The two examples of nbkit are used: one virtual "
                "machine without a GPU, once with 2 CPUs and once restricted to 1."
            )
        for name, machine in self.machines.items():
            role = "" if name in (self.a, self.b) else " (not compared)"
            when = " to ".join(dict.fromkeys([machine.first, machine.last]))
            notes.append(
                f"{name}{role}: {plural(len(machine.runs), 'training run')}, "
                f"{plural(len(machine.bandwidths), 'all-reduce run')}, started {when}."
            )
        compared = f"Compared: {self.a} / {self.b}, only runs under equal conditions."
        return [*notes, compared, *self.omitted]


def plan(parameters: Parameters) -> MachinesPlan:
    """Return the plan: reads the bundles, without starting anything.

    Raises
    ------
    ParameterError
        If parameters are invalid or bundles cannot be read; the error lists all of
        them.
    """
    p = parameters
    errors = _errors(p)
    entries = p.bundles or [str(path) for path in example_bundles()]
    machines: dict[str, Machine] = {}
    notes: list[str] = []
    try:
        loaded, notes = read_bundles(entries, p.model, p.precision)
        machines = {machine.name: machine for machine in loaded}
        if any(machine.runs for machine in loaded):
            errors += _errors_of_names(p, list(machines))
        else:
            errors += [
                f"bundles: no training run (model={p.model}, precision={p.precision}) "
                "can be compared. Use other bundles, or another model or precision.",
                *notes,
            ]
    except ParameterError as error:
        errors.append(str(error))
    if errors:
        raise ParameterError("\n".join(errors))
    a, b = _chosen(p, list(machines))
    other = machines[b if a == HERE else a]
    # Of a bundle's variables, this number alone: others may be code.
    threads = {kind.omp_num_threads for kind in other.kinds if kind.trains_on_cpus}
    is_set = len(threads) == 1 and str(*threads).isdecimal()
    environment = {"OMP_NUM_THREADS": str(*threads)} if is_set else {}
    arms, unrepeated, left_out = _to_measure(p, other, environment)
    if p.measure and not arms:
        what = f"measure=True: no training run of {other.name} can run here"
        message = f"{what}. Use bundles of another machine."
        raise ParameterError("\n".join([message, *left_out]))
    return MachinesPlan(
        machines=machines,
        a=a,
        b=b,
        published=_published_gpus(
            p, [machines[name] for name in (a, b) if name in machines]
        ),
        published_model=p.model or _model(list(machines.values())),
        arms=arms,
        unrepeated=unrepeated,
        repeats=p.repeats,
        environment=environment,
        omitted=[*notes, *left_out],
        parameters=p,
    )


def measure(plan: MachinesPlan, *, trust: bool = False) -> Study | None:
    """Repeat the other machine's runs here; None if not requested.

    Parameters
    ----------
    plan
        From `plan`.
    trust
        Also accept Slurm options of other users' runs, such as shell commands; they are
        printed first.

    Raises
    ------
    RunError
        If the runs need ``trust``; no run is started.
    RunFailedError
        If a run fails.
    """
    if not plan.arms:
        return None
    study = Study.create(
        "machines",
        plan.arms,
        repeats=plan.repeats,
        parameters=plan.parameters,
        unrepeated=plan.unrepeated,
        environment=plan.environment,
        trust=trust,
        minutes=plan.minutes,
    )
    return study.run(wait_for_idle=plan.wait_for_idle)


def machines_of(plan: MachinesPlan, study: Study | None) -> tuple[Machine, Machine]:
    """Return the two machines that are compared."""
    machines = dict(plan.machines)
    if study is not None:
        runs = [
            run for runs in study.runs_by_arm(diverged=True).values() for run in runs
        ]
        machines[HERE] = machine_of(runs, HERE)
    return machines[plan.a], machines[plan.b]


def _errors(p: Parameters) -> list[str]:
    """Return what is wrong with parameters by themselves."""
    errors = below_one(p, "repeats")
    errors += [
        f"precision={name!r} is unknown. Use {', '.join(_PRECISIONS)}."
        for name in p.precision or ()
        if name not in _PRECISIONS
    ]
    errors += [
        f"published={name!r} is not in the published results. Use a name such as "
        "V100-SXM2-32GB, A100-PCIe or H100."
        for name in p.published or ()
        if canonical_gpu_name(name) is None
    ]
    named = p.published or ()
    # A name too many, or the same name twice.
    count = len(named) if len(named) != 2 else len({*named})
    if p.published is not None and count != 2:
        errors.append(
            f"published={','.join(named)}: {plural(count, 'GPU')}. List two different "
            "GPUs."
        )
    return errors


def _errors_of_names(p: Parameters, names: Sequence[str]) -> list[str]:
    """Return what is wrong with the choice of two machines."""
    known = [*names, *([HERE] if p.measure else [])]
    listed = ", ".join(known)
    errors = [
        f"{which}={name!r} is not a machine of the bundles. Use one of {listed}."
        for which, name in (("a", p.a), ("b", p.b))
        if name is not None and name not in known
    ]
    if len(known) < 2:
        errors.append(
            f"bundles: all runs are of one machine ({listed}). Add a bundle of another "
            "machine, or use measure=True (runs on GPUs require a GPU here)."
        )
    if p.a is not None and p.a == p.b:
        errors.append(f"a and b are both {p.a!r}. Use two machines of {listed}.")
    if not errors and p.measure and HERE not in _chosen(p, names):
        errors.append(
            f"measure=True, but neither a={p.a!r} nor b={p.b!r} is {HERE!r}. Set one "
            f"of them to {HERE!r}."
        )
    return errors


def _chosen(p: Parameters, names: Sequence[str]) -> tuple[str, str]:
    """Return the two machines: those that are named, else the first two.

    What is measured here is the second one unless it is named.
    """
    known = [*names, *([HERE] if p.measure else [])]
    a = p.a or next(name for name in known if name != p.b)
    if p.b is None and p.measure and a != HERE:
        return a, HERE
    return a, p.b or next(name for name in known if name != a)


def _to_measure(
    p: Parameters, machine: Machine, environment: Mapping[str, str]
) -> tuple[dict[str, ExperimentConfig], dict[str, ExperimentConfig], list[str]]:
    """Return what of another machine's runs can be run here, and why not the rest."""
    arms: dict[str, ExperimentConfig] = {}
    unrepeated: dict[str, ExperimentConfig] = {}
    left_out: list[str] = []
    for kind in machine.kinds if p.measure else ():
        config = kind.config
        is_train = config.task == "train"
        name = (
            f"{config.model}, {config.precision}, {config.memory_format}"
            if is_train
            else f"all-reduce, {plural(config.world_size, 'rank')}"
        )
        target = arms if is_train else unrepeated
        if name in target:
            name = f"{name} ({len(target) + 1})"
        try:
            target[name] = _here(kind, name, environment)
        except NbkitError as error:
            left_out.append(f"Not measured here: {name}: {error}")
    return arms, unrepeated, left_out


def _here(
    kind: MeasuredKind, name: str, environment: Mapping[str, str]
) -> ExperimentConfig:
    """Return the same configuration for this machine."""
    threads = {**os.environ, **environment}.get("OMP_NUM_THREADS")
    if kind.trains_on_cpus and threads != kind.omp_num_threads:
        message = (
            f"it ran with OMP_NUM_THREADS={kind.omp_num_threads}, and would run here "
            f"with {threads}. Set the same before the notebook starts, or pass bundles "
            "of runs with one value."
        )
        raise ConfigError(message)
    changes: dict[str, Any] = {
        "name": f"machines {name}",
        # Never on CPUs what was measured on GPUs, nor the other way round.
        "device": kind.device_type or "auto",
        "devices": None,
        "cpus": None,
        "data": existing_data(kind.config.data),
        "tensorboard": False,
    }
    if kind.batch_size_per_gpu is not None:
        changes["batch_size_per_gpu"] = kind.batch_size_per_gpu
    config = kind.config.replace(**changes)
    registry.resolve("engines", config.engine)().check(config)
    check_enough_images([config])
    return config


def _published_gpus(p: Parameters, machines: Sequence[Machine]) -> tuple[str, str]:
    """Return the GPUs that are asked for, else those that are compared."""
    if p.published is not None:
        first, second = p.published
        return first, second
    names = [_gpu(machine) for machine in machines]
    if len(names) == 2 and names[0] and names[1] and names[0] != names[1]:
        return names[0], names[1]
    return _CONTEXT_GPUS


def _gpu(machine: Machine) -> str | None:
    used = (machine.facts.get("devices used") or "").partition(" | ")[0]
    return canonical_gpu_name(used.rpartition(" x ")[2])


def _model(machines: Sequence[Machine]) -> str:
    """Return the model to look up: the one on GPUs, if there is one and no other."""
    models = {
        run.conditions["model"]
        for machine in machines
        for run in machine.runs
        if run.device_type == "cuda"
    }
    return models.pop() if len(models) == 1 else _CONTEXT_MODEL
