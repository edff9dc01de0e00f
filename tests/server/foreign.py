"""What another package may put into the server: it refuses, or keeps no files."""

from __future__ import annotations

from typing import Any

from jupyter_server.auth.authorizer import Authorizer
from jupyter_server.auth.identity import PasswordIdentityProvider
from jupyter_server.services.contents.manager import ContentsManager
from jupyter_server.utils import ensure_async
from tornado.web import HTTPError


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


class ChecksEarly(PasswordIdentityProvider):
    """Asks for the token against forged requests before it tells who a visitor is.

    So does JupyterHub's, where a page's script asks with the visitor's cookie.
    """

    async def get_user(self, handler: Any) -> Any:
        if handler.request.headers.get("Sec-Fetch-Mode") not in (None, "navigate"):
            # Jupyter's own check lets all pass of whom nothing is known yet.
            handler._jupyter_current_user = None
            try:
                handler.check_xsrf_cookie()
            except HTTPError:
                return None
            finally:
                del handler._jupyter_current_user
        return await ensure_async(super().get_user(handler))
