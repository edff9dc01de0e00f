"""Studies launch real runs: the same store, plug-in and experiments as launching."""

from __future__ import annotations

from tests.launch.conftest import plugins, small, store

__all__ = ["plugins", "small", "store"]
