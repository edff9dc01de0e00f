"""Slurm's commands, with output that is the same for all users."""

from __future__ import annotations

import os
import subprocess

from nbkit.errors import NbkitError

_OF_THE_USER = (
    *("SACCT_", "SCANCEL_", "SINFO_", "SQUEUE_"),
    *("SLURM_CLUSTERS", "SLURM_TIME_FORMAT"),
)
"""Variables with which users change the format of the answers."""


class SlurmSilentError(NbkitError):
    """Slurm cannot be asked here, or has not answered; the text says why."""


def ask_slurm(program: str, *arguments: str, limit_seconds: float) -> str:
    """Return what one of Slurm's programs prints; times are Unix time in seconds."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_OF_THE_USER)
    }
    try:
        done = subprocess.run(
            [program, *arguments],
            # Else a time has no zone, or is a word such as "tomorr".
            env={**kept, "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            # An interrupt of the cell is none of the question.
            start_new_session=True,
            timeout=limit_seconds,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except FileNotFoundError:
        message = f"{program} is not installed on this machine"
        raise SlurmSilentError(message) from None
    except subprocess.TimeoutExpired:
        message = f"{program} did not respond within {limit_seconds:g} s"
        raise SlurmSilentError(message) from None
    except OSError as error:
        message = f"{program} cannot be started ({error.strerror or error})"
        raise SlurmSilentError(message) from None
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise SlurmSilentError(words[-1])
    return done.stdout
