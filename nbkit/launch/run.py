"""`Run`: the handle of a run, for the process that launched it and any other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, overload

from nbkit import registry
from nbkit.errors import ConfigError, RunError, RunFailedError, RunStoppedError
from nbkit.launch.code.trust import permit_run
from nbkit.launch.run_progress import progress_display
from nbkit.launch.supervision.requests import checked_grace, deadline
from nbkit.store.paths import runs_folder
from nbkit.store.processes import ProcessIdentity
from nbkit.store.progress import end_words
from nbkit.store.record import (
    RunState,
    read_json,
    utc_now,
    write_json,
    write_json_once,
)
from nbkit.store.run_list import list_runs
from nbkit.store.stored_runs import StoredRun, find_run_folder, list_run_names
from nbkit.visible import visible

if TYPE_CHECKING:
    from nbkit.review.causes import Diagnosis


_POLL_SECONDS = 0.1
_STUBBORN_SECONDS = 60.0
"""After its grace period a supervisor that can do so has ended the run long ago."""


class Run(StoredRun):
    """A run that can be waited for, stopped and resumed, from any process."""

    def wait(
        self,
        timeout_seconds: float | None = None,
        *,
        raise_on_failure: bool = True,
        on_poll: Callable[[Run], None] | None = None,
    ) -> Self:
        """Wait until the run has ended.

        Parameters
        ----------
        timeout_seconds
            None waits without limit; interrupting the kernel ends the wait, not the
            run.
        raise_on_failure
            Raise an error if the run failed, was lost or was stopped.
        on_poll
            Called with this run about ten times per second. None shows progress: in a
            notebook or terminal, one line that is updated; otherwise, after 10 s, a
            line on standard error at each change of state and every minute.

        Raises
        ------
        TimeoutError
            If the run did not end within the timeout; it continues.
        RunFailedError
            If it failed or was lost; the text names cause, log and rank if known.
        RunStoppedError
            If it was stopped.
        RunError
            If it is unknown whether it still runs: see ``cause``.
        """
        if on_poll is None and not self.state.is_final:
            on_poll = progress_display()
        start = time.monotonic()
        while not (state := self.state).is_final:
            if on_poll is not None:
                on_poll(self)
            if state is RunState.UNKNOWN:
                why = (self.cause or {}).get("message")
                message = f"the state of run {self.run_id} is unknown: {why}."
                raise RunError(visible(message))
            waited = time.monotonic() - start
            if timeout_seconds is not None and waited > timeout_seconds:
                queue = self.queue
                why = f" ({queue['reason']})" if queue else ""
                message = (
                    f"run {self.run_id} is still {state}{why} after {waited:.1f} s "
                    f"(timeout {timeout_seconds:g} s). Call wait() or stop()."
                )
                raise TimeoutError(visible(message))
            time.sleep(_POLL_SECONDS)
        if on_poll is not None:
            on_poll(self)
        self._wait_for_supervisor()
        if raise_on_failure:
            self._raise_unless_finished(state)
        return self

    def stop(
        self, grace_seconds: float | None = None, *, by: str = "user", wait: bool = True
    ) -> Self:
        """Stop the run: a training run after its next step, with a checkpoint.

        A function or script that calls ``nbkit.context().should_stop()`` or handles
        SIGTERM ends by itself; any other is terminated immediately. Processes that
        are still running after the grace period are killed.

        Parameters
        ----------
        grace_seconds
            Grace period; None uses ``config.stop_grace_seconds``.
        by
            Who requests the stop, for the record.
        wait
            Return only when the run has ended and no process is left.

        Notes
        -----
        For a run that has ended, this only kills leftover processes, if any. The record
        keeps the first request; a later one applies only if it ends the run sooner.

        Raises
        ------
        ConfigError
            If `grace_seconds` is not between 0 and 86,400 s.
        RunError
            If torchrun started the run, or its state is unknown (it stops if active).
        LaunchError
            If Slurm does not cancel its job.
        """
        if self.state.is_final:
            self._engine().reap(self.paths)
            return self
        if not self.submission and not self.record:
            message = f"run {self.run_id} was started by torchrun. Stop torchrun."
            raise RunError(message)
        if grace_seconds is None:
            grace_seconds = float(self._config_fields["stop_grace_seconds"])
        request = {
            "attempt": self.attempt,
            "by": by,
            "grace_seconds": checked_grace(grace_seconds),
            "time": utc_now(),
            "process": ProcessIdentity.of().to_dict(),
        }
        self._ask_to_stop(request)
        self._engine().notify(self.paths)
        if wait:
            limit = time.monotonic() + grace_seconds + _STUBBORN_SECONDS

            def force(run: Run) -> None:
                nonlocal limit
                if time.monotonic() > limit:
                    limit += _STUBBORN_SECONDS
                    run._engine().reap(run.paths)

            self.wait(raise_on_failure=False, on_poll=force)
            if self.state is RunState.LOST:
                self._engine().reap(self.paths)
        return self

    def resume(
        self,
        *,
        on_owner_exit: str | None = None,
        trust: bool = False,
        force: bool = False,
    ) -> Self:
        """Continue from the newest complete checkpoint, in the same folder.

        Parameters
        ----------
        on_owner_exit
            As in `nbkit.launch`.
        trust
            Also resume a run that was imported, or that other users own or can write;
            its code is printed first.
        force
            Also resume a run whose state is unknown, or that another process may be
            resuming. A supervisor that is still alive exits within a minute.

        Raises
        ------
        RunError
            If the run has not ended, has finished, or has no checkpoint; if another
            process is resuming it; or if it needs ``trust=True``.
        """
        # To look at runs needs nothing of what launching imports.
        from nbkit.launch.resume import resume

        resume(self, on_owner_exit=on_owner_exit, trust=trust, force=force)
        return self

    @property
    def torchrun_line(self) -> str | None:
        """Torchrun command for each host of a manual run; None for other runs."""
        return self.submission.get("torchrun_line")

    @property
    def returns(self) -> list[Any]:
        """Return values of the function, indexed by rank; see `load_returns`."""
        return self.load_returns()

    def load_returns(self, *, trust: bool = False) -> list[Any]:
        """Load the return values of the function, indexed by rank.

        Parameters
        ----------
        trust
            Also load results of a run that was imported, or that other users own or can
            write; the files are printed first.

        Raises
        ------
        RunError
            If the run is not a function, has not finished, cannot be loaded here (for
            example, without its modules), or needs ``trust=True``.

        Notes
        -----
        Tensors are on the CPU. Unpickling executes code from the pickle.
        """
        if self.config.task != "function":
            message = (
                f"run {self.run_id} has no return value: task={self.config.task!r}, "
                "not 'function'. Use metrics() or summary."
            )
            raise RunError(message)
        if (state := self.state) is not RunState.FINISHED:
            remedy = "Call resume()" if self.paths.has_checkpoint else "Launch it again"
            message = (
                f"run {self.run_id} ({state}): its function has not returned on every "
                f"rank. {remedy if state.is_final else 'Call wait()'}."
            )
            raise RunError(message)
        ranks = range(self.config.world_size)
        files = [self.paths.rank(self.attempt, rank).returned for rank in ranks]
        permit = permit_run(self.paths, trust=trust, loads=files)
        try:
            return [permit.load(file) for file in files]
        except Exception as error:
            message = (
                f"The return value of run {self.run_id} cannot be loaded "
                f"({type(error).__name__}: {error}). If a module is missing, use an "
                "environment that has the modules of the function."
            )
            raise RunError(message) from error

    def diagnose(self) -> Diagnosis:
        """Return the run's bottleneck with its evidence and a suggestion.

        Works in any state; reads only the run's folder. See `nbkit.review.diagnosis`.

        Raises
        ------
        StoreError
            If its files cannot be read.
        """
        from nbkit.review.diagnosis import diagnose

        return diagnose(self)

    def stacks(self) -> dict[int, str]:
        """Return the current Python stack of each rank; the run continues.

        Returns
        -------
        dict
            Stacks of the main thread and of loading processes, by global rank; empty
            for a rank that does not respond within 5 s. Only ranks on this host are
            included. The rank's ``stderr`` log has all threads.

        Raises
        ------
        RunError
            If no rank of this user runs on this host.
        """
        from nbkit.launch.stacks import stacks

        return stacks(self)

    def _ask_to_stop(self, request: dict[str, Any]) -> None:
        if write_json_once(self.paths.stop, request):
            return
        standing = read_json(self.paths.stop)
        if standing is None or deadline(request) < deadline(standing):
            first = (standing or request)["by"]
            write_json(self.paths.stop, {**request, "by": first})

    def _wait_for_supervisor(self) -> None:
        """Wait a moment for the supervisor, which ends right after its last word."""
        supervisor = self.submission.get("supervisor")
        deadline = time.monotonic() + 5
        while supervisor and time.monotonic() < deadline:
            # In a container without init nothing collects it: it stays a zombie.
            if not ProcessIdentity.from_dict(supervisor).is_alive():
                return
            time.sleep(0.005)

    def _engine(self) -> Any:
        return registry.resolve("engines", self._config_fields["engine"])()

    @property
    def _config_fields(self) -> dict[str, Any]:
        """The configuration as written: `config` refuses what it does not know."""
        return read_json(self.paths.config) or {}

    def _raise_unless_finished(self, state: RunState) -> None:
        if state is RunState.FINISHED:
            return
        cause = self.cause or {}
        message = f"run {self.run_id} {end_words(state, cause)}"
        if state is RunState.STOPPED:
            raise RunStoppedError(message)
        # A wrong value takes one line; where it was noticed does not help.
        is_sufficient = cause.get("kind") in ("config", "device", "store", "nonfinite")
        # What blames a GPU may be an error of the user's own code.
        is_sufficient = is_sufficient and "may_pass" not in cause
        if cause.get("traceback") and not is_sufficient:
            message += f"\n\n{cause['traceback'].rstrip()}\n"
        message += f"\nlog: {cause.get('log') or self.supervisor_log}"
        raise RunFailedError(message, cause)


def attach(run_id: str) -> Run:
    """Return a handle to an existing run.

    Parameters
    ----------
    run_id
        Run id, or a unique ending of it.

    Raises
    ------
    RunNotFoundError
        If no run id in the store ends with this text, or several do.
    """
    return Run(find_run_folder(run_id))


class RunList(list[Run]):
    """List of runs, shown as a table in a notebook.

    Parameters
    ----------
    runs
        The runs, in their order.
    ask
        Function that repeats the query for these runs; None for a slice.
    """

    def __init__(
        self, runs: Iterable[Run] = (), ask: Callable[[], RunList] | None = None
    ) -> None:
        super().__init__(runs)
        self._ask = ask

    def again(self) -> RunList:
        """Repeat the query and return the new list; a slice returns itself."""
        return self if self._ask is None else self._ask()

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one flat dict per run, for data frames.

        Each has id, state and times; the fields of `Run.summary`; tags, such as
        ``tags.study`` and ``tags.arm``; and all fields of the configuration, such as
        ``precision`` and ``loader_config.num_workers``. None means unknown.

        Examples
        --------
        >>> pandas.DataFrame(nbkit.runs().to_dicts())  # doctest: +SKIP
        """
        from nbkit.launch.run_rows import run_row  # no launch needs it

        return [run_row(run) for run in self]

    @overload
    def __getitem__(self, place: SupportsIndex) -> Run: ...

    @overload
    def __getitem__(self, place: slice) -> RunList: ...

    def __getitem__(self, place: Any) -> Any:
        """Return a run, or a slice of them."""
        item = super().__getitem__(place)
        return RunList(item) if isinstance(place, slice) else item


def runs(state: RunState | str | None = None, limit: int | None = None) -> RunList:
    """Return the runs in the store, newest first.

    ``pandas.DataFrame(nbkit.runs().to_dicts())`` converts them to a data frame.

    Parameters
    ----------
    state
        Return only runs in this state.
    limit
        Maximum number of runs.
    """
    if limit is not None and limit < 0:
        message = f"limit={limit} is below 0. Use None for all runs."
        raise ConfigError(message)
    if state is not None and state not in list(RunState):
        known = ", ".join(RunState)
        message = f"state={state!r} is not a run state. Use one of {known}."
        raise ConfigError(message)
    if state is None:
        names = list_run_names()
    else:
        names = [row.run_id for row in list_runs() if row.state == state]
    store = str(runs_folder())
    handles = [Run(f"{store}/{name}") for name in names[:limit]]
    return RunList(handles, lambda: runs(state, limit))
