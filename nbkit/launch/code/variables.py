"""Environment variables in the record, and those that a run may set."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from nbkit.clock import CLOCK_VARIABLE
from nbkit.errors import ConfigError
from nbkit.store.private import read_entry
from nbkit.store.redaction import is_secret_name, refuse_secret_variables

if TYPE_CHECKING:
    from nbkit.config import ExperimentConfig
    from nbkit.store.paths import RunPaths


_RECORDED = re.compile(
    r"^(NCCL|CUDA|CUBLAS|CUDNN|OMP|GOMP|MKL|KMP|GLOO|TORCH|TORCHINDUCTOR|PYTORCH|DALI|SLURM"
    r"|NVIDIA|NBKIT|LD_PRELOAD)"
)
CONTRACT = re.compile(
    r"^((LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME|MASTER_(ADDR|PORT)"
    r"|CUDA_VISIBLE_DEVICES|TORCHELASTIC_.*|NBKIT_.*)$"
)
"""Names of the variables that a run itself sets for every rank."""


def is_recorded(name: str) -> bool:
    """Return whether a variable changes results, and is not a secret."""
    if name == CLOCK_VARIABLE:
        return False
    return bool(_RECORDED.match(name)) and not is_secret_name(name)


def rank_variables(config: ExperimentConfig, paths: RunPaths) -> dict[str, str]:
    """Return a rank's environment beside the contract; what the user has set wins."""
    # Not at import: those who read which variables are recorded need no pydantic.
    from nbkit.config.determinism import DETERMINISTIC_VARIABLES

    own = DETERMINISTIC_VARIABLES if config.deterministic else {}
    given = (read_entry(paths) or {}).get("environment", {})
    return {**own, **os.environ, **given}


def check_texts(name: str, texts: Mapping[str, str]) -> None:
    """Raise unless an argument is a dict of strings."""
    if not isinstance(texts, Mapping):
        message = (
            f"{name}={texts!r:.80} is of type {type(texts).__name__}. Pass a dict."
        )
        raise ConfigError(message)
    for key, value in texts.items():
        if not isinstance(key, str) or not isinstance(value, str):
            message = f"{name}[{key!r}]={value!r}: keys and values must be strings. "
            message += "Use str()."
            raise ConfigError(message)


def check_environment(environment: Mapping[str, str]) -> None:
    """Raise unless variables may be set for ranks, and kept in the record."""
    check_texts("environment", environment)
    for name, value in environment.items():
        if not name or "=" in name or "\0" in name + value:
            message = (
                f"environment[{name!r}] is not a valid variable: empty name, '=' in "
                "the name, or a NUL. Remove it."
            )
            raise ConfigError(message)
        if CONTRACT.match(name):
            message = f"environment[{name!r}] is set by nbkit. Remove it."
            raise ConfigError(message)
    refuse_secret_variables(environment)
