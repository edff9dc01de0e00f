"""Cases of what models answer: inference, chexnet, time to accuracy."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.datasets.find import find
from nbkit.questions.chexnet import planning as chexnet_plan
from nbkit.questions.inference import planning as inference_plan
from nbkit.questions.study_plan import Plan
from nbkit.questions.time_to_accuracy import planning as time_to_accuracy_plan
from nbkit.store.nonfinite import NonFinite
from nbkit.store.predictions import ClassPredictions, LabelPredictions
from nbkit.studies.parameters import Parameters
from tests.golden.cases_speed import CPU, LOST
from tests.golden.hosts import A100_NODE, CPU_HOST
from tests.golden.outcome import GIBIBYTE, Outcome
from tests.golden.planted import DATA, Planted
from tests.golden.studies import Case

__all__ = ["ANSWERS"]

PHOTOS: Mapping[str, Any] = {
    "loader": "torch",
    "train_images": 304,
    "dropped_images": 16,
    "evaluation_images": 96,
    "num_classes": 8,
    "fingerprint": {
        "source": "photos",
        "seed": None,
        "kind": "image folder",
        "files": 400,
        "bytes": 44_000_000,
        "sha256": "cd" * 32,
    },
    "unreadable": {"count": 0, "files": []},
}

# Inference

_WEIGHTS: Mapping[str, Any] = {
    "source": "run",
    "run_id": "20260302-093000-weights",
    "step": 200,
    "sha256": "ef" * 32,
}
_NUMBERS = {
    "fp32": {"weights": "fp32", "elsewhere": "fp32"},
    "tf32": {"weights": "fp32", "elsewhere": "tf32"},
    "fp16": {"weights": "cast to fp16", "elsewhere": "fp16"},
    "bf16": {"weights": "cast to bf16", "elsewhere": "bf16"},
    "int8": {
        "weights": "int8",
        "library": "torch.ao.quantization",
        "library_version": "2.8",
        "backend": "x86",
        "elsewhere": "fp32",
        "int8_multiply_add_share": 0.998,
        "calibration_images": 256,
    },
}
_SERVED = {"fp32": 1.0, "tf32": 1.6, "fp16": 2.7, "bf16": 2.6, "int8": 2.2}


def _inference(
    here: Planted, p: Parameters, unavailable: Mapping[str, str] | None = None
) -> Plan:
    """Return a plan whose weights were trained, and whose formats were tried."""
    found, unavailable = inference_plan.plan(p), unavailable or {}
    arms = {
        arm: one.replace(weights=_WEIGHTS["run_id"])
        for arm, one in found.arms.items()
        if arm not in unavailable
    }
    prepared = {**found.prepared, "unavailable": dict(unavailable)}
    return replace(found, arms=arms, prepared=prepared)


def _inference_lacking(here: Planted, p: Parameters) -> Plan:
    return _inference(here, p, {"tf32": "RuntimeError: no such kernel here"})


def _answers(wrong: int, count: int = 300) -> ClassPredictions:
    """Return what a model says of images, some of them wrongly."""
    files = [f"val/class {n % 8}/{n:03}.jpg" for n in range(count)]
    labels = [f"class {n % 8}" for n in range(count)]
    said = [
        "class 0" if n % 8 and n < wrong else label for n, label in enumerate(labels)
    ]
    return ClassPredictions(files, labels, said, [0.9] * count)


def _inference_runs(
    arm: str, config: ExperimentConfig, repeat: int, wrong: int = 20
) -> Outcome:
    on_gpu = config.device == "cuda"
    said = _answers(wrong)
    pairs = zip(said.labels, said.predicted, strict=True)
    correct = sum(a == b for a, b in pairs)
    found = {"top1_accuracy": correct / 300, "correct": correct, "images": 300}
    return Outcome(
        _SERVED[config.precision] * (2_900.0 if on_gpu else 140.0),
        memory_bytes=GIBIBYTE // 2,
        noise=0.004,
        power_watts=300.0,
        data=PHOTOS,
        evaluate=lambda epochs: {**found, "duration_seconds": 0.8},
        predictions=said,
        worker={"weights": _WEIGHTS, "numbers": _NUMBERS[config.precision]},
    )


def _inference_disturbed(arm: str, config: ExperimentConfig, repeat: int) -> Outcome:
    outcome = _inference_runs(arm, config, repeat)
    if arm.endswith("again"):
        return replace(outcome, rate=0.9 * outcome.rate)
    if config.precision == "fp16":
        return _inference_runs(arm, config, repeat, wrong=90)
    return replace(outcome, other_gpu_processes=1, slowed_share=0.3)


# chexnet


def _chexnet(here: Planted, p: Parameters) -> Plan:
    found = chexnet_plan.plan(p)
    classes = found.listing.contents.classes
    prepared = {**found.prepared, **_baseline(found.facts, classes)}
    return replace(found, prepared=prepared)


def _baseline(facts: Mapping[str, Any], classes: Any) -> dict[str, Any]:
    files = [*facts["patients"]]
    drawn = random.Random("baseline")
    scores = {
        label: None if label == "rare" else [_rounded(drawn.gauss(0, 1)) for _ in files]
        for label in classes
    }
    kept = {"files": files, "scores": scores, "unreadable": 0}
    return {"baseline": {**kept, "train_images": facts["train_images"]}}


def _rounded(score: float) -> float:
    return round(score, 3)


def _labelled(config: ExperimentConfig) -> tuple[list[str], dict[str, list[int]]]:
    """Return the evaluation images of a configuration, and their labels."""
    name = config.data
    contents = find(name).contents
    images = contents.evaluation
    given: dict[str, list[int]] = {
        label: [int(sample.label[place]) for sample in images]  # type: ignore[index]
        for place, label in enumerate(contents.classes)
    }
    return [sample.name for sample in images], given


def _chexnet_runs(arm: str, config: ExperimentConfig, repeat: int) -> Outcome:
    files, given = _labelled(config)
    alike, own = random.Random("images"), random.Random(f"{arm}/{repeat}")
    skill = {label: 1.4 - 0.4 * place for place, label in enumerate(given)}
    scores = {
        label: [
            _rounded(skill[label] * has + alike.gauss(0, 1) + own.gauss(0, 0.1))
            for has in of_label
        ]
        for label, of_label in given.items()
    }

    def evaluate(epochs: int) -> dict[str, Any]:
        areas = {
            label: round(0.85 - 0.1 * place - 0.1 / epochs, 4)
            if any(of_label)
            else None
            for place, (label, of_label) in enumerate(given.items())
        }
        known = [area for area in areas.values() if area is not None]
        mean = sum(known) / len(known)
        return {"mean_auroc": mean, "auroc": areas, "images": len(files), "loss": 0.5}

    on_gpu = config.device == "cuda"
    size = config.world_size
    train = 256 if config.data != chexnet_plan.SYNTHETIC_MULTILABEL else 384
    return Outcome(
        (310.0 if on_gpu else 70.0) * size**0.9,
        loss=0.9,
        noise=0.01,
        memory_bytes=6 * GIBIBYTE,
        data={
            **PHOTOS,
            "train_images": train,
            "evaluation_images": len(files),
            "num_classes": len(given),
        },
        evaluate=evaluate,
        predictions=LabelPredictions(files, given, scores),
    )


def _chexnet_disturbed(arm: str, config: ExperimentConfig, repeat: int) -> Outcome:
    outcome = _chexnet_runs(arm, config, repeat)
    if arm == "2 devices" and repeat == 1:
        return replace(outcome, nonfinite=NonFinite("gradients", 5))
    return replace(outcome, other_gpu_processes=1)


# Time to accuracy


def _to_accuracy(here: Planted, p: Parameters) -> Plan:
    return time_to_accuracy_plan.plan(p)


def _to_accuracy_runs(arm: str, config: ExperimentConfig, repeat: int) -> Outcome:
    is_short = arm.startswith("short run")
    on_gpu = config.device == "cuda"
    rate = (1_390.0 if on_gpu else 5.0) if is_short else (5_200.0 if on_gpu else 90.0)
    first = {"sgd": 9, "lars": 7}.get(arm, 0) + repeat % 3

    def evaluate(epochs: int) -> dict[str, Any]:
        if is_short:
            accuracy, images = 0.001, 100
        else:
            accuracy, images = 0.6 - 0.04 * (first - epochs), 96
        found = {"top1_accuracy": round(max(0.05, accuracy), 4), "images": images}
        return {**found, "loss": 2.0, "correct": 0}

    return Outcome(
        rate * (0.93 if arm == "lars" else 1.0),
        loss=2.1,
        power_watts=210.0,
        data=None if is_short else PHOTOS,
        evaluate=evaluate,
    )


def _to_accuracy_disturbed(arm: str, config: ExperimentConfig, repeat: int) -> Outcome:
    outcome = _to_accuracy_runs(arm, config, repeat)
    if arm == "lars" and repeat == 0:
        return replace(outcome, nonfinite=LOST, is_stopped=True)
    if arm == "sgd" and repeat == 1:
        never = {"top1_accuracy": 0.4, "images": 96, "loss": 2.0, "correct": 38}
        return replace(outcome, evaluate=lambda epochs: never)
    return outcome


_FEW = {"batch_sizes": [1, 32], "batches": 100, "warmup_batches": 10}
_FORMATS = {**_FEW, "precisions": ["fp32", "fp16", "bf16"]}
_XRAYS = {"data": f"{DATA}/labels.csv", "epochs": 2}
_RECIPES = {"estimate_steps": 24, "price_per_hour": 12.0}

ANSWERS: dict[str, Case] = {
    "inference/gpu": Case(
        A100_NODE, _inference, _inference_runs, "inference", _FORMATS
    ),
    "inference/cpu": Case(CPU_HOST, _inference, _inference_runs, "inference", CPU),
    "inference/one_repeat": Case(
        A100_NODE, _inference, _inference_runs, "inference", {**_FORMATS, "repeats": 1}
    ),
    "inference/no_control": Case(
        A100_NODE,
        _inference,
        _inference_runs,
        "inference",
        {**_FORMATS, "repeats": 2, "control": False},
    ),
    "inference/disturbed": Case(
        A100_NODE,
        _inference_lacking,
        _inference_disturbed,
        "inference",
        {**_FORMATS, "precisions": ["fp32", "tf32", "fp16", "bf16"]},
        unfinished=[("bf16", 4)],
    ),
    "chexnet/gpu": Case(A100_NODE, _chexnet, _chexnet_runs, "chexnet", _XRAYS),
    "chexnet/cpu": Case(CPU_HOST, _chexnet, _chexnet_runs, "chexnet", CPU),
    "chexnet/one_repeat": Case(
        A100_NODE, _chexnet, _chexnet_runs, "chexnet", {**_XRAYS, "repeats": 1}
    ),
    "chexnet/disturbed": Case(
        A100_NODE,
        _chexnet,
        _chexnet_disturbed,
        "chexnet",
        {**_XRAYS, "repeats": 3},
        unfinished=[("1 device", 2)],
    ),
    "time_to_accuracy/gpu": Case(
        A100_NODE, _to_accuracy, _to_accuracy_runs, "time_to_accuracy", _RECIPES
    ),
    "time_to_accuracy/cpu": Case(
        CPU_HOST, _to_accuracy, _to_accuracy_runs, "time_to_accuracy", CPU
    ),
    "time_to_accuracy/one_repeat": Case(
        A100_NODE,
        _to_accuracy,
        _to_accuracy_runs,
        "time_to_accuracy",
        {**_RECIPES, "repeats": 1},
    ),
    "time_to_accuracy/disturbed": Case(
        A100_NODE,
        _to_accuracy,
        _to_accuracy_disturbed,
        "time_to_accuracy",
        {**_RECIPES, "repeats": 3},
    ),
}
