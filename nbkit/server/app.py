"""The Jupyter server extension: settings for the administrator, and routes."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from jupyter_server.extension.application import ExtensionApp
from jupyter_server.services.contents.fileio import FileManagerMixin
from traitlets import Bool, Float, List, TraitType, Unicode, validate

from nbkit.reading import expanded
from nbkit.server.monitor import FEED_COMMAND, Monitor, Settings
from nbkit.server.rest import ROUTES
from nbkit.server.run_table import StoredRunTable
from nbkit.server.sessions import Kernels
from nbkit.server.tensorboards import TENSORBOARD_COMMAND, TensorBoards
from nbkit.telemetry.sampler import MIN_INTERVAL_SECONDS

_LIMITS = {
    "interval_seconds": (MIN_INTERVAL_SECONDS, 60.0),
    "tensorboard_idle_seconds": (1.0, math.inf),
}
"""Least and most of the settings that are times."""


class NbkitServer(ExtensionApp):
    """GPUs, host and runs for every page that watches."""

    name = "nbkit"

    interval_seconds = Float(
        1.0,
        help="""Sampling interval in seconds, from 0.25 to 60. A viewer may request a
        longer interval.""",
    ).tag(config=True)
    store = Unicode(
        "",
        help="""Folder of the runs. Default: $NBKIT_HOME, or nbkit in the user data
        folder. Kernels of this server inherit it as $NBKIT_HOME.""",
    ).tag(config=True)
    read_only = Bool(
        False,
        help="""Read-only: in JupyterLab, disable stopping and resuming runs, copying
        notebooks, and the sidebar's buttons that interrupt or shut down kernels.""",
    ).tag(config=True)
    hide_commands_of_others = Bool(
        False, help="Hide the command lines of other users' processes."
    ).tag(config=True)
    metrics = Bool(
        False,
        help="""Export GPU metrics as gauges at /metrics of this server. The sampler
        then runs even without a viewer.""",
    ).tag(config=True)
    feed_command: TraitType[Any, Any] = List(
        Unicode(),
        list(FEED_COMMAND),
        help="""Arguments of python -P that start the sampler process, for example to
        use another source of samples.""",
    ).tag(config=True)

    tensorboard_idle_seconds = Float(
        600.0,
        help="""Time in seconds without a request after which a TensorBoard is stopped;
        at least 1 s.""",
    ).tag(config=True)
    tensorboard_command: TraitType[Any, Any] = List(
        Unicode(),
        list(TENSORBOARD_COMMAND),
        help="""Arguments of python -P that start one TensorBoard. It must be a single
        process, because child processes are not stopped. See
        nbkit.server.tensorboard_process for its options.""",
    ).tag(config=True)

    kernels: Kernels
    monitor: Monitor

    @validate(*_LIMITS)
    def _within_limits(self, proposal: dict[str, Any]) -> float:
        trait, seconds = proposal["trait"], proposal["value"]
        least, most = _LIMITS[trait.name]
        if least <= seconds <= most:  # NaN is not
            return seconds
        used = most if seconds > most else trait.default_value
        self.log.error(
            "NbkitServer.%s=%s is out of range; %s is used. Set a number from %s to "
            "%s.",
            *(trait.name, seconds, used, least, most),
        )
        return used

    def initialize_handlers(self) -> None:
        """Add the routes; nothing runs before the first viewer."""
        if self.store:
            os.environ["NBKIT_HOME"] = str(expanded(self.store, "NbkitServer.store"))
        settings = self.settings
        contents = settings["contents_manager"]
        root, allow_hidden = contents.root_dir, bool(contents.allow_hidden)
        if not isinstance(contents, FileManagerMixin):
            root = None  # its folders are not those of this machine
        runs = StoredRunTable(Path(root) if root else None, allow_hidden=allow_hidden)
        self.kernels = Kernels(settings["kernel_manager"], settings["session_manager"])
        self.monitor = Monitor(
            Settings(
                interval_seconds=self.interval_seconds,
                read_only=self.read_only,
                hide_commands_of_others=self.hide_commands_of_others,
                metrics=self.metrics,
            ),
            runs,
            self.kernels.running,
            TensorBoards(
                self.tensorboard_idle_seconds, self.log, self.tensorboard_command
            ),
            self.log,
            self.feed_command,
        )
        for pattern, handler in ROUTES:
            self.handlers.append((pattern, handler, {"monitor": self.monitor}))
        if self.metrics and self.serverapp is not None:
            # As soon as the event loop runs.
            self.serverapp.io_loop.add_callback(self.monitor.watch)

    async def stop_extension(self) -> None:
        """End every process, and the store's thread."""
        await self.monitor.close()
        self.kernels.close()
