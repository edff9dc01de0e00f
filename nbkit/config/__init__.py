"""`ExperimentConfig`: every setting of a run, declared once.

The docstring under a field is also the form's tooltip and the JSON Schema's
description. A bad value raises `ConfigError` with one line for every bad field.
"""

from nbkit.config.experiment import ExperimentConfig
from nbkit.config.manual import ManualConfig
from nbkit.config.model import Model
from nbkit.config.nested import (
    AllReduceConfig,
    DaliConfig,
    InferenceConfig,
    LoaderConfig,
)
from nbkit.config.slurm import SlurmConfig

__all__ = [
    "AllReduceConfig",
    "DaliConfig",
    "ExperimentConfig",
    "InferenceConfig",
    "LoaderConfig",
    "ManualConfig",
    "Model",
    "SlurmConfig",
]
