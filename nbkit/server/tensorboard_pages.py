"""TensorBoard's pages at the Jupyter server's own address, for its users only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote, unquote_plus

from jupyter_server.auth.decorator import authorized
from tornado import httpclient, httputil, web
from tornado.iostream import StreamClosedError

from nbkit.server.handler import ApiHandler, FramedHandler
from nbkit.server.tensorboard_groups import (
    EventFiles,
    all_curves,
    curves_of_run,
    curves_of_study,
    list_studies,
)
from nbkit.server.tensorboards import MOST_TENSORBOARDS

_LONGEST_REQUEST_SECONDS = 600.0
_ALL_RUNS = "all-runs"
_STUDY = "study-"
"""Begins the key of a study; that of a run is its id."""

# Others are not passed on: TensorBoard must not get cookies and tokens.
_REQUEST_HEADERS = (
    "Accept",
    "Accept-Encoding",
    "Accept-Language",
    "Cache-Control",
    "Content-Type",
    "If-Modified-Since",
    "If-None-Match",
    "Range",
)
_ANSWER_HEADERS = (
    "Cache-Control",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Length",
    "Content-Range",
    "Content-Type",
    "ETag",
    "Expires",
    "Last-Modified",
    "Vary",
)
_POLICY = "Content-Security-Policy"
_OWN_PAGES = ("text/html", "application/javascript", "text/javascript")
"""Types of TensorBoard's own files. Others may come from any run: an SVG that is opened
directly must not run scripts as the user."""


class OpenHandler(ApiHandler):
    """A TensorBoard of one run, of the runs of a study, or of the newest runs."""

    # It changes nothing: who may see runs may see their curves.
    @web.authenticated
    @authorized("read")
    async def post(self, kind: str = "", name: str = "") -> None:
        """Have one started, or have it show the runs of now.

        A page that shows one asks it to be kept: a store of many runs is not searched
        for that each time.
        """
        openers: dict[str, tuple[str, Callable[[], EventFiles]]] = {
            "": (_ALL_RUNS, all_curves),
            "runs": (name, lambda: curves_of_run(name)),
            "studies": (f"{_STUDY}{name}", lambda: curves_of_study(name)),
        }
        key, find = openers[kind]
        boards = self.monitor.tensorboards
        files, started = None, False
        with self.refusing():
            if self.body("keep").get("keep") is not True or not boards.keep(key):
                files = await self.monitor.store.do(find)
                started = await boards.open(key, files.folders)
            answer = {
                "path": f"nbkit/tensorboard/{key}/",
                "started": started,
                "idle_seconds": boards.idle_seconds,
            }
            if files is not None:
                answer |= {"shown": len(files.folders), "total": files.total}
            self.reply(answer)


class StudiesHandler(ApiHandler):
    """The newest studies."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Return their ids and names."""
        with self.refusing():
            self.reply({"studies": await self.monitor.store.do(list_studies)})


class FrameHandler(FramedHandler):
    """A page with which another one tries whether it may show TensorBoard's."""

    @web.authenticated
    @authorized("read")
    async def get(self) -> None:
        """Return a page by whose title it is known."""
        self.finish("<!doctype html><title>nbkit</title>")


class PageHandler(FramedHandler):
    """What TensorBoard answers."""

    _has_begun = False
    """Whether the browser has, or soon has, the beginning of an answer."""

    @web.authenticated
    @authorized("read")
    async def get(self, run_id: str, path: str) -> None:
        """Pass a question on."""
        await self._forward(run_id, path, None)

    @web.authenticated
    @authorized("read")
    async def post(self, run_id: str, path: str) -> None:
        """Pass a question on that is too long for an address."""
        await self._forward(run_id, path, self.request.body)

    async def _forward(self, run_id: str, path: str, body: bytes | None) -> None:
        boards = self.monitor.tensorboards
        board = boards.find(run_id)
        if board is None or board.client is None:
            self.refuse(404, no_board_message(run_id, boards.idle_seconds))
            return
        asked = self.request.headers
        headers = {name: asked[name] for name in _REQUEST_HEADERS if name in asked}
        client = board.client
        with board.use():
            try:
                await self._fetch(
                    client,
                    f"http://tensorboard/{quote(path)}?{_without_token(self.request)}",
                    method=self.request.method,
                    headers=headers,
                    body=body,
                )
            except (httpclient.HTTPError, OSError) as error:
                message = f"TensorBoard does not respond ({error}). Try again."
                if not self._has_begun:
                    self.refuse(502, message)
                    return
                # The browser must not take a part for the whole answer.
                self.monitor.log.warning("nbkit: %s: %s", self.request.path, message)
                stream = self.detach()
                stream.close()

    async def _fetch(
        self, client: httpclient.AsyncHTTPClient, url: str, **request: Any
    ) -> None:
        """Write an answer as it comes: one of images may be large."""
        answer: list[str] = []
        is_gone = False

        async def pass_on(data: bytes) -> None:
            nonlocal is_gone
            if answer:
                self._forward_headers(answer)
                answer.clear()
            self.write(data)
            try:
                await self.flush()
            except StreamClosedError:
                is_gone = True
                # The only exception for which tornado closes a connection silently.
                message = "the client has disconnected"
                raise httputil.HTTPInputError(message) from None

        try:
            await client.fetch(
                url,
                raise_error=False,
                follow_redirects=False,
                decompress_response=False,
                request_timeout=_LONGEST_REQUEST_SECONDS,
                header_callback=answer.append,
                streaming_callback=pass_on,
                **request,
            )
        except httpclient.HTTPError:
            if is_gone:
                return
            raise
        if answer:  # without a body
            self._forward_headers(answer)
        self.finish()

    def _forward_headers(self, lines: list[str]) -> None:
        """Take over status and headers."""
        self._has_begun = True
        start = httputil.parse_response_start_line(lines[0].strip())
        headers = httputil.HTTPHeaders.parse("".join(lines[1:]))
        self.set_status(start.code, start.reason)
        for name in _ANSWER_HEADERS:
            if name in headers:
                self.set_header(name, headers[name])
        # In addition to Jupyter's own, which limits framing: both hold.
        for policy in headers.get_list(_POLICY):
            self.add_header(_POLICY, policy)
        kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind not in _OWN_PAGES:
            self.add_header(_POLICY, "sandbox")


def _without_token(request: httputil.HTTPServerRequest) -> str:
    parts = request.query.split("&")
    names = [unquote_plus(part.partition("=")[0]) for part in parts]
    return "&".join(
        part for name, part in zip(names, parts, strict=True) if name != "token"
    )


def no_board_message(key: str, idle_seconds: float) -> str:
    """Return that a run or a group of runs has no TensorBoard, and where to open it."""
    if key == _ALL_RUNS:
        shown, where = "The store", "with the button next to Runs in the sidebar"
    elif key.startswith(_STUDY):
        shown = f"study_id={key.removeprefix(_STUDY)[:80]!r}"
        where = 'with the command "Open TensorBoard for a Study…"'
    else:
        shown, where = f"run_id={key[:80]!r}", "from the run's page"
    return (
        f"{shown} has no open TensorBoard. A TensorBoard stops after {idle_seconds:g} "
        f"s without use, when {MOST_TENSORBOARDS} others are opened, or when the "
        f"server stops. Open it again {where}."
    )


TENSORBOARD_ROUTES: tuple[tuple[str, type[Any]], ...] = (
    (r"/nbkit/api/tensorboard", OpenHandler),
    (r"/nbkit/api/(runs|studies)/([^/]+)/tensorboard", OpenHandler),
    (r"/nbkit/api/studies", StudiesHandler),
    (r"/nbkit/tensorboard/frame", FrameHandler),
    (r"/nbkit/tensorboard/([^/]+)/(.*)", PageHandler),
)
