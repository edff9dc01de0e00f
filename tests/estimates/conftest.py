"""The fixtures of questions: a store, a plug-in, small experiments."""

from tests.questions.conftest import cluster, drive, plugins, small, store

__all__ = ["cluster", "drive", "plugins", "small", "store"]
