"""Base class of engines: start, notify and clean up after a supervisor."""

from __future__ import annotations

from typing import Any, Protocol

from nbkit.config import ExperimentConfig
from nbkit.store.paths import RunPaths


class Engine(Protocol):
    """Starts supervisors; metrics and logs are not its business, files are."""

    def check(self, config: ExperimentConfig) -> dict[str, Any]:
        """Return what a run asks for, as JSON values; raise if it is not there."""
        ...

    def submit(
        self, paths: RunPaths, attempt: int, requirements: dict[str, Any]
    ) -> dict[str, Any]:
        """Start a supervisor; return who it is and its job, or None for each."""
        ...

    def notify(self, paths: RunPaths) -> None:
        """Let a run see a request to stop immediately after it was written."""
        ...

    def reap(self, paths: RunPaths) -> None:
        """End what a dead supervisor left running."""
        ...
