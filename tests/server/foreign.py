"""What another package may put into the server: it refuses all, or keeps no files."""

from __future__ import annotations

from typing import Any

from jupyter_server.auth.authorizer import Authorizer
from jupyter_server.services.contents.manager import ContentsManager


class RefusesAll(Authorizer):
    """Lets nobody do anything."""

    def is_authorized(
        self, handler: Any, user: Any, action: str, resource: str
    ) -> bool:
        return False


class NoFiles(ContentsManager):
    """Its root is that of something else than this machine's files."""


class OnlyReads(Authorizer):
    """Lets everybody look, and nobody do anything else."""

    def is_authorized(
        self, handler: Any, user: Any, action: str, resource: str
    ) -> bool:
        return action == "read"
