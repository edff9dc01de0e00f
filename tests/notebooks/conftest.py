"""Execute notebooks as their users do: plain papermill, in a store of its own."""

from __future__ import annotations

from tests.launch.conftest import plugins, store

__all__ = ["plugins", "store"]
