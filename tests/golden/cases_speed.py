"""Cases of speed: scaling, precision, concurrent jobs, and arms of no question."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.questions.concurrent_jobs import planning as concurrent_plan
from nbkit.questions.precision import planning as precision_plan
from nbkit.questions.scaling import planning as scaling_plan
from nbkit.questions.study_plan import Plan
from nbkit.store.nonfinite import NonFinite
from nbkit.studies.parameters import Parameters
from tests.golden.hosts import A100_NODE, CPU_HOST, H100_NODE, Host
from tests.golden.outcome import GIBIBYTE, Outcome
from tests.golden.planted import Planted
from tests.golden.studies import Case

__all__ = ["SPEED", "speed"]

LOST = NonFinite("loss", 9)
A100_RATES = {"fp32": 410.0, "tf32": 820.0, "fp16": 1_390.0, "bf16": 1_370.0}
"""Images per second of one GPU; about what is published of ResNet-50."""
H100_OVER_A100 = 1.9
CPU_RATES = {"fp32": 60.0, "bf16": 45.0, "int8": 110.0}
"""Of one process, of ResNet-18 and small images."""

GPU_STEPS = {"steps": 40, "warmup_steps": 4}
CPU: Mapping[str, Any] = {"device": "cpu"}

Outcomes = Callable[[str, ExperimentConfig, int], Outcome]


def speed(config: ExperimentConfig) -> float:
    """Return what a configuration trains in a second, as these machines do."""
    size = config.world_size
    if config.device == "cpu":
        return CPU_RATES[config.precision] * size**0.8
    rate = A100_RATES[config.precision] * size * 0.97 ** math.log2(size)
    if config.memory_format == "channels_first":
        rate *= 0.95 if config.precision in ("fp32", "tf32") else 0.72
    return rate * (1.12 if config.compile else 1.0)


def usually(arm: str, config: ExperimentConfig, repeat: int) -> Outcome:
    """Return how a run goes where nothing is wrong."""
    if config.task == "allreduce":
        return Outcome(2.2e11 if config.device == "cuda" else 3e9)
    if config.device == "cpu":
        return Outcome(speed(config), memory_bytes=GIBIBYTE, noise=0.01, loss=4.6)
    memory = 22 * GIBIBYTE if config.precision == "fp16" else 38 * GIBIBYTE
    return Outcome(speed(config), memory_bytes=memory)


def faster(factor: float) -> Outcomes:
    """Return how runs go on a machine that is so many times as fast."""
    return lambda arm, config, repeat: replace(
        usually(arm, config, repeat), rate=factor * speed(config), power_watts=560.0
    )


# Scaling


def _scaling(here: Planted, p: Parameters) -> Plan:
    return scaling_plan.plan(p)


def _scaling_disturbed(arm: str, config: ExperimentConfig, repeat: int) -> Outcome:
    outcome = usually(arm, config, repeat)
    if config.precision == "fp32" and config.gpus == 4:
        return replace(outcome, nonfinite=LOST)
    if config.gpus == 4:
        return replace(
            outcome, straggler=3, data_wait_share=0.3, rate=0.6 * outcome.rate
        )
    if config.gpus == 2 and repeat == 1:
        return replace(
            outcome, other_gpu_processes=1, slowed_share=0.3, rate=0.8 * outcome.rate
        )
    return outcome


# Precision


def _precision(here: Planted, p: Parameters) -> Plan:
    return precision_plan.plan(p)


def _precision_perturbed(arm: str, config: ExperimentConfig, repeat: int) -> Outcome:
    """Return how runs go where rounding alone takes the loss of bf16 elsewhere."""
    outcome = usually(arm, config, repeat)
    far = config.weight_perturbation > 0.001
    moved = 0.5 if far else 0.7 if config.precision == "bf16" else 0.0
    return replace(outcome, loss=outcome.loss + moved)


def _precision_disturbed(arm: str, config: ExperimentConfig, repeat: int) -> Outcome:
    outcome = usually(arm, config, repeat)
    if arm.endswith("again"):
        return replace(outcome, rate=0.94 * outcome.rate, other_gpu_processes=1)
    if config.precision == "bf16":
        return replace(outcome, loss=8.2)
    if config.precision == "fp16" and repeat == 1:
        return replace(outcome, nonfinite=LOST, is_stopped=True)
    if config.precision == "fp32" and repeat == 2:
        return replace(outcome, slowed_share=0.4)
    return outcome


# Concurrent jobs


def _concurrent(here: Planted, p: Parameters) -> Plan:
    return concurrent_plan.plan(p)


def _concurrent_runs(arm: str, config: ExperimentConfig, repeat: int) -> Outcome:
    outcome = usually(arm, config, repeat)
    is_concurrent = " job " in arm
    slowed_share = 0.0 if not is_concurrent else 0.02 if config.cpus else 0.11
    is_second = arm.startswith("1,1 job 2")
    late, gpu = (0.4, 1) if is_second else (0.0, 0)
    beside = {"concurrent": "1,1 job 1; 1,1 job 2"} if is_concurrent else {}
    outcome = replace(
        outcome, rate=(1 - slowed_share) * outcome.rate, communication_share=0.02
    )
    return replace(outcome, delay_seconds=late, first_gpu=gpu, tags=beside)


def _concurrent_disturbed(arm: str, config: ExperimentConfig, repeat: int) -> Outcome:
    outcome = _concurrent_runs(arm, config, repeat)
    if arm == "1,1 job 2" and repeat == 1:
        return replace(outcome, delay_seconds=300.0)
    if arm == "1,1 job 1" and repeat == 2:
        return replace(outcome, nonfinite=LOST)
    if arm == "1 alone again":
        return replace(outcome, rate=0.93 * outcome.rate, other_gpu_processes=2)
    return outcome


# Arms of no question


def _arms(control: bool, repeats: int, *, cpu: bool = False, more: bool = False) -> Any:
    """Return a plan of batches of two sizes, and of a loader that waits."""
    base = ExperimentConfig(
        model="resnet18" if cpu else "resnet50",
        precision="fp32" if cpu else "fp16",
        image_size=64 if cpu else 224,
        batch_size_per_gpu=16 if cpu else 128,
        steps=12 if cpu else 60,
        warmup_steps=2 if cpu else 6,
        device="cpu" if cpu else "cuda",
        tensorboard=False,
    )
    arms = {"small": base, "large": base.replace(batch_size_per_gpu=32 if cpu else 256)}
    if more:
        arms["bf16"] = base.replace(precision="bf16")
    first = "small" if control else None
    return lambda here, p: Plan(arms=arms, repeats=repeats, parameters=p, control=first)


def _arms_runs(arm: str, config: ExperimentConfig, repeat: int) -> Outcome:
    outcome = usually(arm, config, repeat)
    return replace(outcome, rate=outcome.rate * (1.06 if arm == "large" else 1.0))


def _arms_disturbed(arm: str, config: ExperimentConfig, repeat: int) -> Outcome:
    outcome = _arms_runs(arm, config, repeat)
    if arm == "small again":
        return replace(outcome, rate=0.9 * outcome.rate, slowed_share=0.5)
    if arm == "bf16":
        return replace(outcome, nonfinite=NonFinite("weights", 20, 10))
    return replace(outcome, data_wait_share=0.35, other_gpu_processes=1, noise=0.05)


def _cases(
    question: str | None,
    plan: Callable[[Planted, Parameters], Plan],
    outcome: Outcomes,
    **cases: tuple[Host, Mapping[str, Any], Outcomes] | tuple[Host, Mapping[str, Any]],
) -> dict[str, Case]:
    """Return the cases of a question: host, parameters, and how its runs went."""
    found = {}
    for name, (host, chosen, *given) in cases.items():
        how = given[0] if given else outcome
        found[f"{question}/{name}"] = Case(host, plan, how, question, chosen)
    return found


_SCALING = {"gpus": 4, "precision": ["fp16", "fp32"], **GPU_STEPS}
_PRECISION = {"precision": ["fp32", "bf16"], "compile": [False], **GPU_STEPS}
_CONCURRENT = {"layout": [1, 1], **GPU_STEPS}

SPEED: dict[str, Case] = {
    **_cases(
        "scaling",
        _scaling,
        usually,
        gpu=(A100_NODE, {**_SCALING, "gpus": 8}),
        cpu=(CPU_HOST, {**CPU, "gpus": 2}),
        one_repeat=(A100_NODE, {**_SCALING, "gpus": 2, "repeats": 1}),
    ),
    "scaling/disturbed": Case(
        A100_NODE,
        _scaling,
        _scaling_disturbed,
        "scaling",
        _SCALING,
        unfinished=[("all-reduce, 4 ranks", 0), ("fp16, 1 GPU", 2)],
    ),
    **_cases(
        "precision",
        _precision,
        usually,
        gpu=(A100_NODE, _PRECISION),
        cpu=(CPU_HOST, CPU),
        one_repeat=(
            A100_NODE,
            {**_PRECISION, "precision": ["fp32", "fp16"], "repeats": 1},
        ),
        no_control=(
            H100_NODE,
            {**_PRECISION, "control": False, "repeats": 2},
            faster(H100_OVER_A100),
        ),
        disturbed=(
            A100_NODE,
            {
                **_PRECISION,
                "precision": ["fp32", "fp16", "bf16"],
                "memory_format": ["channels_last"],
            },
            _precision_disturbed,
        ),
        perturbed=(
            A100_NODE,
            {**_PRECISION, "memory_format": ["channels_last"], "repeats": 2},
            _precision_perturbed,
        ),
    ),
    **_cases(
        "concurrent_jobs",
        _concurrent,
        _concurrent_runs,
        gpu=(A100_NODE, _CONCURRENT),
        cpu=(CPU_HOST, CPU),
        one_repeat=(A100_NODE, {**_CONCURRENT, "repeats": 1}),
        no_control=(A100_NODE, {**_CONCURRENT, "repeats": 2, "control": False}),
        disturbed=(A100_NODE, {**_CONCURRENT, "repeats": 3}, _concurrent_disturbed),
    ),
    "arms/gpu": Case(A100_NODE, _arms(True, 5), _arms_runs, None),
    "arms/h100": Case(
        H100_NODE,
        _arms(False, 5, more=True),
        faster(H100_OVER_A100),
        None,
        first_number=101,
    ),
    "arms/cpu": Case(CPU_HOST, _arms(True, 2, cpu=True), _arms_runs, None),
    "arms/one_repeat": Case(A100_NODE, _arms(True, 1), _arms_runs, None),
    "arms/no_control": Case(A100_NODE, _arms(False, 2), _arms_runs, None),
    "arms/disturbed": Case(
        A100_NODE,
        _arms(True, 3, more=True),
        _arms_disturbed,
        None,
        unfinished=[("large", 2)],
    ),
}
