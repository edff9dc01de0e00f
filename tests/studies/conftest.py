"""The fixtures of questions: a store, a plug-in, small experiments."""

from tests.questions.conftest import cluster, drive, few_sources, plugins, small, store

__all__ = ["cluster", "drive", "few_sources", "plugins", "small", "store"]
