"""Environment variables: which are kept in a record, and which a run may be given."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nbkit.errors import ConfigError

__all__ = ["CONTRACT", "check_environment", "is_recorded"]

_RECORDED = re.compile(
    r"^(NCCL|CUDA|CUBLAS|CUDNN|OMP|MKL|KMP|GLOO|TORCH|TORCHINDUCTOR|PYTORCH|DALI|SLURM"
    r"|NVIDIA|NBKIT|LD_PRELOAD)"
)
_SECRET = re.compile(
    r"TOKEN|KEY|SECRET|PASSW|CREDENTIAL|AUTH|COOKIE|JWT", re.IGNORECASE
)

CONTRACT = re.compile(
    r"^((LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME|MASTER_(ADDR|PORT)"
    r"|CUDA_VISIBLE_DEVICES|TORCHELASTIC_.*|NBKIT_.*)$"
)
"""Names of the variables that a run itself sets for every rank."""


def is_recorded(name: str) -> bool:
    """Return whether a variable changes results, and is no secret."""
    return bool(_RECORDED.match(name)) and not _SECRET.search(name)


def check_environment(environment: Mapping[str, str]) -> None:
    """Raise unless variables may be set for ranks, and kept in the record.

    Raises
    ------
    ConfigError
        If one is the run's own, no text, or looks like a secret.
    """
    for name, value in environment.items():
        if not isinstance(name, str) or not isinstance(value, str):
            message = f"environment[{name!r}]={value!r} is not text; use str() of it."
            raise ConfigError(message)
        if CONTRACT.match(name):
            message = f"environment[{name!r}] is set by the run itself; leave it out."
            raise ConfigError(message)
        if _SECRET.search(name):
            message = (
                f"environment[{name!r}] looks like a secret, which is never written "
                "into a run's folder; set it in os.environ before the launch: the "
                "ranks inherit it."
            )
            raise ConfigError(message)
