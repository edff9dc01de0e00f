"""The report of a study as a page of the Jupyter server, for its users only."""

from __future__ import annotations

from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado import web

from nbkit.server.handler import FramedHandler
from nbkit.server.reports import study_files

# Nothing of a page runs: what is in it may come from a study of others. Its sources are
# links, which open beside it.
_POLICY = (
    "sandbox allow-popups allow-popups-to-escape-sandbox; default-src 'none'; "
    "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)


class ReportHandler(FramedHandler):
    """The page of one study."""

    # It changes nothing: who may see runs may see what is computed of them.
    @web.authenticated
    @authorized("read")
    async def get(self, study_id: str) -> None:
        """Return the report as of now."""
        monitor = self.monitor
        with self.refusing():
            study = await monitor.store.do(lambda: study_files(study_id))
            page = await monitor.reports.page(study_id, study)
            self.set_header("Content-Type", "text/html; charset=utf-8")
            self.set_header("Cache-Control", "no-store")
            # In addition to Jupyter's own, which limits framing: both hold.
            self.add_header("Content-Security-Policy", _POLICY)
            self.finish(page)


REPORT_ROUTES: tuple[tuple[str, type[Any]], ...] = (
    (r"/nbkit/report/([^/]+)", ReportHandler),
)
