"""How a run of a written study went, and which process start of the study it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.store.nonfinite import NonFinite
from nbkit.store.predictions import Predictions

__all__ = ["GIBIBYTE", "Outcome", "Start", "batch_of", "epoch_steps"]

GIBIBYTE = 1 << 30


@dataclass(frozen=True)
class Outcome:
    """How a run went: what its configuration does not say."""

    rate: float
    """Images per second of all ranks together."""
    data_wait_share: float = 0.01
    """Share of a step in which ranks wait for data."""
    communication_share: float = 0.03
    """Share in which they wait for the gradient exchange; 0 for a lone rank."""
    noise: float = 0.002
    """Of steps, and of process starts."""
    cpu_ms_per_image: float = 1.2
    loss: float = 7.0
    """At the first step."""
    power_watts: float = 320.0
    memory_bytes: int = 22 * GIBIBYTE
    other_gpu_processes: int = 0
    """Processes of others on its GPUs."""
    slowed_share: float = 0.0
    """Share of the time in which heat held clocks down."""
    straggler: int | None = None
    """Rank that computes a fifth longer, for which the others wait."""
    nonfinite: NonFinite | None = None
    """Where it stopped being finite."""
    is_stopped: bool = False
    """Whether it was ended there."""
    delay_seconds: float = 0.0
    """How much later than planned its first step came."""
    disk_bytes_per_second: float = 0.0
    first_gpu: int = 0
    """Of the host, by its number."""
    tags: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, Any] | None = None
    """What its images are; None for synthetic ones."""
    evaluate: Callable[[int], dict[str, Any]] | None = None
    """What is found after so many epochs; None without evaluations."""
    predictions: Predictions | None = None
    worker: Mapping[str, Any] = field(default_factory=dict)
    """What else its worker says."""


@dataclass(frozen=True)
class Start:
    """Which process start of a study it is."""

    run_id: str
    study_id: str
    arm: str
    repeat: int
    begin: float
    """Unix time."""

    @property
    def tags(self) -> dict[str, str]:
        """What the study writes on its runs."""
        return {"study": self.study_id, "arm": self.arm, "repeat": str(self.repeat)}


def batch_of(config: ExperimentConfig) -> int:
    """Return the images of a rank in a step."""
    assert isinstance(config.batch_size_per_gpu, int)
    return config.batch_size_per_gpu


def epoch_steps(config: ExperimentConfig, outcome: Outcome) -> int:
    """Return how many steps an epoch has."""
    images = 1_281_167 if outcome.data is None else outcome.data["train_images"]
    return max(1, images // (batch_of(config) * config.world_size))
