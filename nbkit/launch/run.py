"""`Run`: the handle of a run, for the process that launched it and any other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, overload

from nbkit import registry
from nbkit.errors import ConfigError, RunError, RunFailedError, RunStoppedError
from nbkit.launch.code.trust import permit_run
from nbkit.launch.run_progress import shown
from nbkit.launch.run_rows import run_row
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
            None waits for ever; an interrupt of the kernel ends the wait, not the run.
        raise_on_failure
            Raise if the run did not finish.
        on_poll
            Called about ten times a second with this run, for progress; None shows a
            line in a notebook or terminal, and in a log one a minute, on standard
            error, unless the run has ended.

        Raises
        ------
        TimeoutError
            If the run has not ended in time; it continues.
        RunFailedError
            If it failed or was lost; the text names rank, cause and log.
        RunStoppedError
            If it was stopped.
        RunError
            If it is unknown whether it still runs: see ``cause``.
        """
        if on_poll is None and not self.state.is_final:
            on_poll = shown()
        start = time.monotonic()
        while not (state := self.state).is_final:
            if on_poll is not None:
                on_poll(self)
            self._raise_if_unknown(state)
            waited = time.monotonic() - start
            if timeout_seconds is not None and waited > timeout_seconds:
                queue = self.queue
                why = f" ({queue['reason']})" if queue else ""
                message = (
                    f"run {self.run_id} is still {state}{why} after {waited:.0f} s "
                    f"(timeout {timeout_seconds:.0f} s). Wait again, or stop() it."
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
        """Ask the run to end: a checkpoint at the step boundary, then by force.

        Parameters
        ----------
        grace_seconds
            Time for the graceful part; None takes ``config.stop_grace_seconds``.
        by
            Who asks, for the record.
        wait
            Return only when the run has ended and no process is left.

        Notes
        -----
        Stopping a run that has ended does nothing. The record keeps who asked first; a
        later request counts only if it ends the run sooner.

        Raises
        ------
        ConfigError
            If `grace_seconds` is not from 0 to 86,400.
        RunError
            If torchrun started the run, not nbkit; if its configuration has no
            ``stop_grace_seconds``; if it is unknown whether the run still runs: if it
            does, it obeys.
        """
        if self.state.is_final:
            self._engine().reap(self.paths)
            return self
        if not self.submission and not self.record:
            message = f"run {self.run_id} was started by torchrun. Stop it there."
            raise RunError(message)
        if grace_seconds is None:
            grace_seconds = float(self._as_launched("stop_grace_seconds"))
        request = {
            "attempt": self.attempt,
            "by": by,
            "grace_seconds": checked_grace(grace_seconds),
            "time": utc_now(),
            "process": ProcessIdentity.of().to_dict(),
        }
        self._ask_to_stop(request)
        self._engine().nudge(self.paths)
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

    def _raise_if_unknown(self, state: RunState) -> None:
        if state is RunState.UNKNOWN:
            why = (self.cause or {}).get("message")
            raise RunError(visible(f"run {self.run_id} is unknown: {why}."))

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
            Also execute a run that was imported, or that others own or can write; what
            it executes is printed first.
        force
            Also continue a run of which it is unknown whether it has ended, or whether
            another process still resumes it. If its supervisor is alive after all, it
            ends within a minute.

        Raises
        ------
        RunError
            If the run has not ended, finished already, or has no checkpoint; if another
            process resumes it; or if it needs ``trust=True``.
        """
        # To look at runs needs nothing of what launching imports.
        from nbkit.launch.resume import resume

        resume(self, on_owner_exit=on_owner_exit, trust=trust, force=force)
        return self

    @property
    def torchrun_line(self) -> str | None:
        """What to paste on every host of a manual run; None for any other run."""
        return self.submission.get("torchrun_line")

    @property
    def returns(self) -> list[Any]:
        """What the function returned on each rank, by rank: `load_returns`."""
        return self.load_returns()

    def load_returns(self, *, trust: bool = False) -> list[Any]:
        """Return what the function returned on each rank, by rank.

        Parameters
        ----------
        trust
            Also load those of a run that was imported, or that others own or can write;
            what is loaded is printed first.

        Raises
        ------
        RunError
            If the run is not a function, has not finished, or its result cannot be
            read here: a module is missing, or another version of one; or if it
            needs ``trust=True``.

        Notes
        -----
        Tensors are on the CPU. What was pickled is a program, which loading executes.
        """
        if self.config.task != "function":
            message = (
                f"run {self.run_id} is a {self.config.task}, which returns nothing. "
                "See its metrics() and summary."
            )
            raise RunError(message)
        if self.state is not RunState.FINISHED:
            remedy = "resume() it" if self.state.is_final else "wait() for it"
            message = (
                f"run {self.run_id} is {self.state}: its function has not returned on "
                f"every rank; {remedy}."
            )
            raise RunError(message)
        ranks = range(self.config.world_size)
        files = [self.paths.rank(self.attempt, rank).returned for rank in ranks]
        permit = permit_run(self.paths, trust=trust, loads=files)
        try:
            return [permit.load(file) for file in files]
        except Exception as error:
            message = (
                f"The return value of run {self.run_id} cannot be unpickled "
                f"({type(error).__name__}: {error}). Read it where the modules of its "
                "function can be imported."
            )
            raise RunError(message) from error

    def diagnose(self) -> Diagnosis:
        """Return what bounds the run, with evidence, and what to try first.

        From its folder alone, in any state. See `nbkit.review.diagnosis`.

        Raises
        ------
        StoreError
            If its files cannot be read.
        """
        from nbkit.review.diagnosis import diagnose

        return diagnose(self)

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
        return registry.resolve("engines", self._as_launched("engine"))()

    def _as_launched(self, field: str) -> Any:
        """Return one field of the configuration, whatever else is in the file.

        Another version of nbkit may have launched the run, with other fields.
        """
        values = read_json(self.paths.config) or {}
        if field not in values:
            message = (
                f"{self.paths.config} has no {field}: another version of nbkit wrote "
                "it. stop() the run with that version."
            )
            raise RunError(message)
        return values[field]

    def _raise_unless_finished(self, state: RunState) -> None:
        if state is RunState.FINISHED:
            return
        cause = self.cause or {}
        message = f"run {self.run_id} {end_words(state, cause)}"
        if state is RunState.STOPPED:
            raise RunStoppedError(message)
        # A wrong value takes one line; where it was noticed does not help.
        said_enough = cause.get("kind") in ("config", "device", "store", "nonfinite")
        # What blames a GPU may be an error of the user's own code.
        said_enough = said_enough and "may_pass" not in cause
        if cause.get("traceback") and not said_enough:
            message += f"\n\n{cause['traceback'].rstrip()}\n"
        message += f"\nlog: {cause.get('log') or self.supervisor_log}"
        raise RunFailedError(message, cause)


def attach(run_id: str) -> Run:
    """Return the handle of a run that any process launched.

    Parameters
    ----------
    run_id
        A run's id, or the end of it if no other ends so.

    Raises
    ------
    RunNotFoundError
        If there is no such run in the store.
    """
    return Run(find_run_folder(run_id))


class RunList(list[Run]):
    """Runs, which a notebook shows as a table; a slice of them, too.

    Parameters
    ----------
    runs
        The runs, in their order.
    ask
        Asks the question again to which they are the answer; None if there was none.
    """

    def __init__(
        self, runs: Iterable[Run] = (), ask: Callable[[], RunList] | None = None
    ) -> None:
        super().__init__(runs)
        self._ask = ask

    def again(self) -> RunList:
        """Return the answer of now: runs of a slice stay the same."""
        return self if self._ask is None else self._ask()

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a row for each run, for other programs: plain values by name.

        Its id, state and times; what `Run.summary` says; its tags, such as
        ``tags.study`` and ``tags.arm``; and every field of its configuration, as in
        ``precision`` and ``loader_config.num_workers``. None is unknown.

        Examples
        --------
        >>> pandas.DataFrame(nbkit.runs().to_dicts())  # doctest: +SKIP
        """
        return [run_row(run) for run in self]

    @overload
    def __getitem__(self, place: SupportsIndex) -> Run: ...

    @overload
    def __getitem__(self, place: slice) -> RunList: ...

    def __getitem__(self, place: Any) -> Any:
        """Return a run, or a slice of them."""
        found = super().__getitem__(place)
        return RunList(found) if isinstance(place, slice) else found


def runs(state: RunState | str | None = None, limit: int | None = None) -> RunList:
    """Return the runs in the store, newest first.

    ``pandas.DataFrame(nbkit.runs().to_dicts())`` makes a data frame of them.

    Parameters
    ----------
    state
        Only runs in this state, by its name.
    limit
        At most so many.
    """
    if limit is not None and limit < 0:
        message = f"limit={limit} is below 0; use None for all runs."
        raise ConfigError(message)
    if state is not None and state not in list(RunState):
        known = ", ".join(RunState)
        message = f"state={state!r} is not one of {known}; use one of these."
        raise ConfigError(message)
    if state is None:
        names = list_run_names()
    else:
        names = [row.run_id for row in list_runs() if row.state == state]
    store = str(runs_folder())
    found = [Run(f"{store}/{name}") for name in names[:limit]]
    return RunList(found, lambda: runs(state, limit))
