"""Becoming the one process that executes a study, on hosts that share its store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nbkit.errors import RunError
from nbkit.store.metrics import store_error
from nbkit.store.network import age_seconds

__all__ = ["taking_over"]

_STALE_SECONDS = 60.0
"""It is held for a moment; who holds it longer was killed within it."""


@contextmanager
def taking_over(study: Path) -> Iterator[None]:
    """Hold a folder in a study's, which only one process can make.

    Raises
    ------
    RunError
        If another process holds it.
    StoreError
        If the study's folder cannot be written.
    """
    claim = study / "taking-over"
    try:
        _make(claim)
    except OSError as error:
        raise store_error(claim, error) from error
    try:
        yield
    finally:
        claim.rmdir()


def _make(claim: Path) -> None:
    try:
        claim.mkdir()
    except FileExistsError:
        if age_seconds(claim) < _STALE_SECONDS:
            message = (
                f"another process is beginning to execute study {claim.parent.name}; "
                f"try again in {_STALE_SECONDS:.0f} s if nothing comes of it."
            )
            raise RunError(message) from None
        claim.rmdir()
        claim.mkdir()
