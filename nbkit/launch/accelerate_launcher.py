"""`notebook_launcher`: accelerate's call; its notebooks only change the import."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from nbkit.errors import ConfigError
from nbkit.launch.devices.choice import visible_gpus, whole_gpus
from nbkit.launch.run import Run
from nbkit.launch.start import launch
from nbkit.reading import open_regular
from nbkit.visible import encodable, visible

_PRECISIONS = ("no", "fp16", "bf16", "fp8")


def notebook_launcher(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    num_processes: int | None = None,
    mixed_precision: str = "no",
    use_port: str | int | None = "29500",
    master_addr: str = "127.0.0.1",
    node_rank: int = 0,
    num_nodes: int = 1,
    rdzv_backend: str = "static",
    rdzv_endpoint: str = "",
    rdzv_conf: dict[str, Any] | None = None,
    rdzv_id: str = "none",
    max_restarts: int = 0,
    monitor_interval: float = 0.1,
    log_line_prefix_template: str | None = None,
) -> Run:
    """Run a function in several processes and wait for them, as accelerate does.

    The processes are an ordinary run, not forks of this kernel, so the kernel may
    already have used a GPU. Interrupting the cell stops them. Their output is shown
    here and kept in the run's logs by rank.

    Parameters
    ----------
    function, args
        Function that every process calls, and its arguments.
    num_processes
        None uses one per visible GPU, or one if there is none.
    mixed_precision
        Default of `accelerate.Accelerator`: ``no``, ``fp16``, ``bf16`` or ``fp8``.
    num_nodes
        Number of machines; only 1 is supported.
    max_restarts
        Maximum number of restarts after a process fails.
    use_port, master_addr, node_rank, rdzv_backend, rdzv_endpoint, rdzv_conf, rdzv_id, \
monitor_interval, log_line_prefix_template
        Accepted for compatibility and ignored: nbkit finds a free port.

    Returns
    -------
    Run
        The finished run; ``returns`` has what the function returned on each rank.

    Raises
    ------
    ConfigError
        If an argument is not valid.
    RunFailedError
        If a process failed; the message has its rank and traceback.

    References
    ----------
    https://huggingface.co/docs/accelerate/package_reference/launchers
    """
    precision = mixed_precision.lower()
    if precision not in _PRECISIONS:
        known = ", ".join(_PRECISIONS)
        message = f"mixed_precision={mixed_precision!r} is not supported. Use {known}."
        raise ConfigError(message)
    if num_processes is not None and num_processes < 1:
        message = f"num_processes={num_processes} is below 1. Use 1 or more, or None."
        raise ConfigError(message)
    if num_nodes != 1:
        message = f"num_nodes={num_nodes} is not supported. Use 1, or nbkit.launch() "
        message += "with nnodes."
        raise ConfigError(message)
    gpus = whole_gpus(visible_gpus("auto"))
    environment = {"ACCELERATE_MIXED_PRECISION": precision}
    if not gpus:
        # Without it, an `Accelerator` on processors does not look for the other ranks.
        environment["ACCELERATE_USE_CPU"] = "yes"
    run = launch(
        function,
        args=args,
        environment=environment,
        on_owner_exit="stop",
        gpus=num_processes or gpus or 1,
        max_restarts=max_restarts,
        # As many processes as are asked for: there is nothing to share a CPU by.
        oversubscribe=not gpus,
    )
    shown = _Shown()
    try:
        return run.wait(on_poll=shown.show)
    except BaseException:
        if not run.state.is_final:
            run.stop()
        raise


class _Shown:
    """What a cell shows of a run: why it waits, and what its processes print."""

    def __init__(self) -> None:
        self._position: int | None = None
        self._attempt: int | None = None
        self._outputs: list[_Echo] = []

    def show(self, run: Run) -> None:
        """Show what is new."""
        queue = run.record.get("queue")
        if queue is not None and queue["position"] != self._position:
            self._position = queue["position"]
            where = f"{queue['position']} of {queue['length']}"
            _print(f"queued, {where}: {visible(queue['reason'])}\n", sys.stdout)
        if run.attempt != self._attempt:
            self._attempt = run.attempt
            ranks = range(run.config.world_size)
            files = [run.paths.rank(run.attempt, rank) for rank in ranks]
            self._outputs += [_Echo(file.stdout, sys.stdout) for file in files]
            self._outputs += [_Echo(file.stderr, sys.stderr) for file in files]
        for output in self._outputs:
            output.show()


class _Echo:
    """Prints what is appended to a file."""

    def __init__(self, path: Path, to: TextIO) -> None:
        self._path = path
        self._to = to
        self._offset = 0
        # What was read may end within a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def show(self) -> None:
        """Print what is new."""
        with suppress(FileNotFoundError), open_regular(self._path) as file:
            file.seek(self._offset)
            new = file.read()
            self._offset += len(new)
            _print(self._decoder.decode(new), self._to)


def _print(text: str, to: TextIO) -> None:
    to.write(encodable(text, getattr(to, "encoding", None)))
    to.flush()
