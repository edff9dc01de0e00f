"""Studies launch real runs: the same store, plug-in and experiments as launching."""

from __future__ import annotations

from tests.launch.conftest import plugins, small, store
from tests.telemetry.conftest import drive

__all__ = ["drive", "plugins", "small", "store"]
