"""REST: status, runs, stopping one, and copies of nbkit's notebooks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized
from tornado import web

from nbkit.errors import ConfigError, RunError, RunNotFoundError, StoreError
from nbkit.launch.run import Run
from nbkit.launch.supervision.requests import LONGEST_GRACE_SECONDS
from nbkit.live.nodes import MOST_NODES, newest_by_node
from nbkit.server.handler import READ_ONLY, ApiHandler
from nbkit.server.notebooks import copy_notebook, describe_notebooks
from nbkit.server.report_pages import REPORT_ROUTES
from nbkit.server.run_row import nodes_of
from nbkit.server.run_table import NEWEST, find_exactly, is_own
from nbkit.server.run_view import RUN_VIEW_ROUTES
from nbkit.server.stream import SCHEMA
from nbkit.server.tensorboard_pages import TENSORBOARD_ROUTES
from nbkit.server.websocket import StreamHandler
from nbkit.store.record import device_uuids
from nbkit.store.stored_runs import StoredRun
from nbkit.studies.notebooks import notebook

_MOST_RUNS = 1000


class StatusHandler(ApiHandler):
    """What this extension is."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Return version, schema and settings."""
        settings = self.monitor.settings
        self.reply(
            {
                "version": self.monitor.version,
                "schema": SCHEMA,
                "read_only": settings.read_only,
                "interval_seconds": settings.interval_seconds,
            }
        )


class RunsHandler(ApiHandler):
    """The newest runs."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Return rows of the newest runs, and of older ones that have not ended."""
        text = self.get_query_argument("limit", str(NEWEST))
        is_number = text.isascii() and text.isdecimal() and len(text) < 9
        limit = int(text) if is_number else 0
        if not 1 <= limit <= _MOST_RUNS:
            message = f"limit={text[:20]!r} is not an integer from 1 to {_MOST_RUNS:,}."
            self.refuse(400, message)
            return
        with self.refusing():
            view = await self.monitor.poll(limit)
            self.reply({"runs": view.rows})


class RunHandler(ApiHandler):
    """One run."""

    @web.authenticated
    @authorized
    async def get(self, run_id: str) -> None:
        """Return a run's row."""
        monitor = self.monitor
        kernels = await monitor.kernels() or []
        with self.refusing():
            row = await monitor.store.do(lambda: monitor.runs.read_run(run_id, kernels))
            self.reply(row)


class NodesHandler(ApiHandler):
    """What other hosts do for one run."""

    @web.authenticated
    @authorized
    async def get(self, run_id: str) -> None:
        """Return the newest values of each of a run's nodes but this host."""
        with self.refusing():
            self.reply(await self.monitor.store.do(lambda: other_nodes(run_id)))


class StopHandler(ApiHandler):
    """The end of one run."""

    @web.authenticated
    @authorized
    async def post(self, run_id: str) -> None:
        """Ask a run to end; it does so by itself."""
        if self.monitor.settings.read_only:
            self.refuse(403, READ_ONLY)
            return
        with self.refusing():
            grace = _grace_seconds(self.body("grace_seconds"))
            try:
                # Not in the thread of the store: Slurm's controller may take a minute.
                status, answer = await asyncio.to_thread(stop_run, run_id, grace)
            except RunNotFoundError:
                raise
            except (LookupError, TypeError, ValueError) as error:
                what = f"its record is damaged ({type(error).__name__}: {error})"
                remedy = "Stop its processes with kill, or its job with scancel."
                message = f"run {run_id} cannot be stopped: {what}. {remedy}"
                raise RunError(message) from error
            self.reply(answer, status)


class NotebooksHandler(ApiHandler):
    """nbkit's notebooks."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Return name, title and description of each."""
        self.reply({"notebooks": describe_notebooks()})


class NotebookHandler(ApiHandler):
    """A copy of one notebook."""

    _naming: ClassVar[asyncio.Lock] = asyncio.Lock()
    """Held between finding a free name and taking it."""

    @web.authenticated
    @authorized("write", "contents")
    async def post(self, name: str) -> None:
        """Copy a notebook into a folder; nothing is overwritten."""
        if self.monitor.settings.read_only:
            self.refuse(403, READ_ONLY)
            return
        try:
            folder = self.body("folder").get("folder", "")
            if not isinstance(folder, str):
                text = f"folder={folder!r:.80} is not a string. Send a folder name."
                raise ConfigError(text)
        except ConfigError as error:
            self.refuse(400, str(error))
            return
        try:
            path = notebook(name)
        except ConfigError as error:
            self.refuse(404, str(error))
            return
        folder = folder.strip("/")
        refusal = 403, _not_writable(folder)
        # Where it cannot be, as beside the original, it is at the top.
        for place in dict.fromkeys((folder, "")):
            try:
                copy = await self._copy(path, place)
            except web.HTTPError as error:
                why = error.log_message or error.reason or "refused"
                refusal = error.status_code, f"folder={place[:80]!r}: {why[:200]}"
                if isinstance(error.__cause__, OSError):
                    # Jupyter's words have its errno and the path on the machine.
                    refusal = 403, _not_writable(folder, error.__cause__.strerror)
                elif error.status_code != 403:
                    break
            except (OSError, ValueError) as error:
                refusal = 400, f"folder={place[:80]!r} cannot be written: {error}"
                break
            else:
                if copy is not None:
                    self.reply({"path": copy}, 201)
                    return
        self.refuse(*refusal)

    async def _copy(self, path: Path, folder: str) -> str | None:
        """Return where a copy is; None if it cannot be in this folder."""
        manager: Any = self.contents_manager
        if not await ensure_async(manager.dir_exists(folder)):
            raise web.HTTPError(404, "the folder does not exist. Create it first.")
        model = await ensure_async(manager.get(folder, content=False))
        root = getattr(manager, "root_dir", None)
        is_original = bool(root) and (Path(root) / folder).resolve() == path.parent
        if is_original or not model.get("writable", True):
            return None
        async with self._naming:
            return await copy_notebook(manager, path, folder)


def _not_writable(folder: str, why: str | None = None) -> str:
    reason = f" ({why})" if why else ""
    return (
        f"A copy cannot be saved in the folder /{folder[:80]}{reason}. Open another "
        "folder in the file browser, then try again."
    )


def _grace_seconds(body: dict[str, Any]) -> float | None:
    grace = body.get("grace_seconds")
    if grace is None:
        return None
    number = isinstance(grace, int | float) and not isinstance(grace, bool)
    fits = number and 0 <= grace <= LONGEST_GRACE_SECONDS
    if not fits:
        message = (
            f"grace_seconds={grace!r:.60} is not a number from 0 to "
            f"{LONGEST_GRACE_SECONDS:g}. Use a valid number, or "
            "null for the default."
        )
        raise ConfigError(message)
    return float(grace)


def other_nodes(run_id: str) -> dict[str, Any]:
    """Return the newest values of the run's nodes but this host."""
    run = StoredRun(find_exactly(run_id))
    files = nodes_of(run.paths, run.record)
    devices = device_uuids(run.record, run.worker)
    return {
        "nodes": newest_by_node(files[:MOST_NODES], devices),
        "num_more": max(0, len(files) - MOST_NODES),
    }


def stop_run(run_id: str, grace_seconds: float | None) -> tuple[int, dict[str, Any]]:
    """Ask a run to end; return an HTTP status and the answer."""
    folder = find_exactly(run_id)
    run = Run(folder)
    if not is_own(folder):
        message = f"run {run_id} belongs to another user. Ask that user to stop it."
        return 403, {"message": message}
    try:
        state = run.state
    except StoreError as error:
        return 409, {"message": str(error)}
    if state.is_final:
        return 409, {"message": f"run {run_id} has ended already ({state})."}
    run.stop(grace_seconds, wait=False)
    return 202, {"run_id": run_id, "state": str(run.state)}


ROUTES: tuple[tuple[str, type[Any]], ...] = (
    (r"/nbkit/api/stream", StreamHandler),
    (r"/nbkit/api/status", StatusHandler),
    (r"/nbkit/api/runs", RunsHandler),
    (r"/nbkit/api/runs/([^/]+)", RunHandler),
    (r"/nbkit/api/runs/([^/]+)/nodes", NodesHandler),
    (r"/nbkit/api/runs/([^/]+)/stop", StopHandler),
    (r"/nbkit/api/notebooks", NotebooksHandler),
    (r"/nbkit/api/notebooks/([^/]+)", NotebookHandler),
    *RUN_VIEW_ROUTES,
    *REPORT_ROUTES,
    *TENSORBOARD_ROUTES,
)
