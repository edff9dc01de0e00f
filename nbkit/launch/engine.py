"""What every engine does: start a supervisor somewhere, find it, end it."""

from __future__ import annotations

from typing import Any, Protocol

from nbkit.config import ExperimentConfig
from nbkit.store.paths import RunPaths

__all__ = ["Engine"]


class Engine(Protocol):
    """Starts supervisors; metrics and logs are not its business, files are."""

    def check(self, config: ExperimentConfig) -> dict[str, Any]:
        """Return what a run asks for, as JSON values for ``submission.json``.

        Raises
        ------
        DeviceError
            If the configuration does not fit what is there.
        """
        ...

    def submit(
        self, paths: RunPaths, attempt: int, wanted: dict[str, Any]
    ) -> dict[str, Any]:
        """Start the supervisor of one attempt; return its identity.

        Parameters
        ----------
        wanted
            What `check` returned.
        """
        ...

    def reap(self, paths: RunPaths) -> None:
        """End what a dead supervisor left behind."""
        ...
