"""Base class of engines: start, notify and clean up after a supervisor."""

from __future__ import annotations

from typing import Any, Protocol

from nbkit.config import ExperimentConfig
from nbkit.store.paths import RunPaths


class Engine(Protocol):
    """Starts and notifies supervisors; metrics and logs are read from files."""

    def check(self, config: ExperimentConfig) -> dict[str, Any]:
        """Return the resources of a run as JSON values; raise if they do not exist."""
        ...

    def submit(
        self, paths: RunPaths, attempt: int, requirements: dict[str, Any]
    ) -> dict[str, Any]:
        """Start a supervisor; return ``supervisor`` and ``job``, either may be None."""
        ...

    def notify(self, paths: RunPaths) -> None:
        """Notify a run that a request to stop was written."""
        ...

    def reap(self, paths: RunPaths) -> None:
        """Kill the processes that a dead supervisor left running."""
        ...
