"""Execution of a study: several configurations, each run several times, interleaved.

One process executes a study, and is the one that writes its file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, RunError, RunFailedError, RunStoppedError
from nbkit.launch.code.entry import RunEntry, stored_entry
from nbkit.launch.code.trust import Permit, permit_configurations, permit_study
from nbkit.launch.program import Program
from nbkit.launch.run import Run
from nbkit.launch.start import start_run
from nbkit.launch.submit import absolute_data, absolute_weights, variables_set
from nbkit.statistics import MINIMUM_RUNS, duration_in_words
from nbkit.store.metrics import store_error
from nbkit.store.network import refresh_nfs_cache
from nbkit.store.ownership import FOLDER_MODE, make_folder
from nbkit.store.paths import StudyPaths, studies_folder
from nbkit.store.private import make_store
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import utc_now, write_json
from nbkit.store.redaction import refuse_secret_variables, refuse_secrets
from nbkit.studies.budget import (
    Budget,
    QueuedAtLimitError,
    checked_minutes,
    not_measured,
    start_times,
)
from nbkit.studies.executor import executed_by, executing, wait_for_the_last_runs
from nbkit.studies.given_up import GivenUp, failed_starts
from nbkit.studies.idle_machine import wait_for
from nbkit.studies.kinds import answer_so_far, before_start, headline_so_far
from nbkit.studies.metric import Metric
from nbkit.studies.order import Slot, arms_and_order, of_repeat, twin
from nbkit.studies.parameters import Parameters
from nbkit.studies.places import (
    Place,
    checked_parallel,
    free_places,
    run_side_by_side,
)
from nbkit.studies.progress import Progress
from nbkit.studies.starts import (
    check_concurrent,
    checked,
    end_all,
    grouped,
    has_diverged,
    new_study_id,
    refuse_same,
    wait_for_all,
)
from nbkit.studies.stored_study import StoredStudy, resume_hint
from nbkit.visible import visible

STUDY_SCHEMA = "nbkit.study/1"


class Study(StoredStudy):
    """A study in the store. Any process can open it; one at a time can execute it.

    Parameters
    ----------
    root
        The study's folder.
    """

    @classmethod
    def create(
        cls,
        name: str,
        arms: Mapping[str, ExperimentConfig | Program],
        *,
        metric: str | None = None,
        better: str | None = None,
        margin: float = 0.0,
        minimum_runs: int = MINIMUM_RUNS,
        discard_floors: float | None = None,
        repeats: int = 1,
        control: str | None = None,
        unrepeated: Mapping[str, ExperimentConfig] | None = None,
        concurrent: Sequence[Sequence[str]] = (),
        parallel: int | None = None,
        parameters: Parameters | None = None,
        environment: Mapping[str, str] | None = None,
        kind: str | None = None,
        plan: Mapping[str, Any] | None = None,
        trust: bool = False,
        minutes: float | None = None,
    ) -> Self:
        """Write the plan of a new study, without starting it.

        Parameters
        ----------
        name
            Name of the study, such as the notebook's name.
        arms
            Arms by their names in reports: a configuration, or `nbkit.script`,
            `nbkit.module` or `nbkit.function` with its arguments.
        metric
            Metric by which arms are compared: a name that runs pass to `nbkit.log` or
            print (``val_loss: 0.5``), ``seconds``, or a field of ``run.summary``. None
            uses images per second. The last value is used, unless the name is
            ``mean:val_loss``, ``best:val_loss`` or ``step1000:val_loss``. ``returned``
            is the return value of a function, ``returned:accuracy`` an item of it.
        better
            ``lower`` or ``higher``: which values of the metric are better.
        margin
            Smallest relative difference of the metric that gets a verdict: 0.01 is 1 %.
        minimum_runs
            Finished starts per arm that a verdict on the metric needs.
        discard_floors
            After two starts, an arm that is worse than the base by more than this many
            noise floors and by more than ``margin`` is not started again, unless the
            control differs from the base by at least as much. None: never.
        repeats
            Process starts of every arm.
        control
            Baseline arm, which is also measured as a separate arm "<arm> again" (A/A
            control). The other arms are compared with the baseline. The two are as far
            apart as the order allows.
        unrepeated
            Configurations by name that are run once, before the arms (with ``minutes``,
            after the first pair), and not compared, such as all-reduce bandwidth.
        concurrent
            Groups of arms that are started together, each in the order of the arms. If
            one run of a group does not finish, the whole group is repeated.
        parallel
            Maximum number of concurrent starts, each on separate GPUs; all arms of a
            repeat use the same GPUs. None uses as many as the free GPUs allow, but 1 on
            CPUs and Slurm, with ``concurrent`` or ``unrepeated``, if an arm is a
            configuration, and if the metric is None or named like a time or rate.
        parameters
            The notebook's parameters, for the record.
        environment
            Environment variables that every run of the study gets.
        kind
            Kind of its report, such as ``scaling``; None for the report of any arms.
        plan
            Facts of the plan that this report requires, as JSON values.
        trust
            Also accept Slurm options in configurations from other users' runs: see
            `nbkit.launch`.
        minutes
            Time limit of each `run` and `resume`. Starts that do not fit are skipped
            and listed in the report. None and 0 set no limit.

        Raises
        ------
        ConfigError
            If there is nothing to run, a name is used twice, two arms are the same
            program, the control is not an arm, arms cannot be started together, an arm
            contains a secret, or a limit or a setting of the metric is not valid.
        RunError
            If a configuration needs ``trust``.
        StoreError
            If the store cannot be written.
        """
        if not arms or repeats < 1:
            message = (
                f"arms={list(arms)!r} and repeats={repeats} plan no runs. Use at least "
                "one arm and repeats=1."
            )
            raise ConfigError(message)
        for arm, configuration in arms.items():
            if not isinstance(configuration, ExperimentConfig | Program):
                message = (
                    f"arm {arm!r} is {configuration!r:.80} "
                    f"({type(configuration).__name__}). Pass an ExperimentConfig, "
                    "nbkit.script(path), nbkit.module(name) or nbkit.function(train)."
                )
                raise ConfigError(message)
        limit = checked_minutes(minutes)
        compared_by = Metric.chosen(
            metric, better, margin, minimum_runs, discard_floors
        )
        check_concurrent(concurrent, list(arms), control)
        programs = {n: arm for n, arm in arms.items() if isinstance(arm, Program)}
        refuse_same(programs)
        is_timed = compared_by is None or compared_by.is_timed
        most = checked_parallel(
            parallel,
            # Other load would change a time, or the rate of a training on images.
            is_alone=is_timed or len(programs) < len(arms),
            concurrent=concurrent,
            unrepeated=unrepeated,
        )
        configs = {
            name: arm.config if isinstance(arm, Program) else arm
            for name, arm in arms.items()
        }
        all_arms, order = arms_and_order(configs, repeats, control, unrepeated or {})
        absolute = {"data": absolute_data, "weights": absolute_weights}
        all_arms = {
            arm: config.replace(
                **{
                    name: make_absolute(getattr(config, name))
                    for name, make_absolute in absolute.items()
                    if name in config.model_fields_set
                }
            )
            for arm, config in all_arms.items()
        }
        permit_configurations(all_arms.values(), trust=trust)
        facts, is_drawn = dict(plan or {}), not is_timed and len(programs) < len(arms)
        written = {
            "name": name,
            "plan": {"seed_per_repeat": True, **facts} if is_drawn else facts,
            "arms": {
                arm: config.model_dump(mode="json", exclude_unset=True)
                for arm, config in all_arms.items()
            },
            "parameters": dict(parameters or {}),
            "environment": dict(environment or {}),
        }
        refuse_secrets(written)
        refuse_secret_variables(written["environment"])
        root = studies_folder() / new_study_id(name)
        try:
            make_store()
            studies_folder().mkdir(exist_ok=True)
            root.mkdir(FOLDER_MODE)
        except OSError as error:
            raise store_error(root, error) from error
        kept = {}
        for number, (arm, program) in enumerate(programs.items()):
            paths = StudyPaths(root).program(number)
            make_folder(paths.root.parent)
            make_folder(paths.root)
            program.entry.write(paths)
            kept[arm] = {"number": number, "cwd": str(program.cwd)}
        if control is not None and control in kept:
            kept[twin(control)] = kept[control]
        content = {
            "schema": STUDY_SCHEMA,
            "study_id": root.name,
            **written,
            "kind": kind,
            "metric": None if compared_by is None else asdict(compared_by),
            "programs": kept,
            "created": utc_now(),
            "unrepeated": list(unrepeated or {}),
            "control": None if control is None else [control, twin(control)],
            "concurrent": [list(group) for group in concurrent],
            "parallel": most,
            "repeats": repeats,
            "minutes": limit,
            "order": [[slot.arm, slot.repeat] for slot in order],
            "parameter_sources": parameters.sources if parameters else {},
            "executor": None,
            "not_measured": [],
            "runs": [],
        }
        write_json(StudyPaths(root).study, content)
        return cls(root)

    def run(
        self,
        *,
        progress: bool = True,
        trust: bool = False,
        force: bool = False,
        wait_for_idle: float = 0.0,
        minutes: float | None = None,
    ) -> Self:
        """Execute all runs that have not finished, sequentially or concurrently.

        Every run is a separate process start, and is stopped if this process ends. In a
        study with a metric, a failed start does not end the study: the report states
        how many failed. After two failures without a result, an arm is not started
        again. Under a time limit, starts that do not fit are skipped. The first pair of
        arms is started first, then repeated up to a verdict, interleaved with every
        other arm that fits; remaining arms are started once.

        Parameters
        ----------
        progress
            Show the progress.
        trust
            Also execute a study that was imported, or that other users own or can
            write; what it executes is printed first.
        force
            Also execute a study that another process may be executing on a host or in a
            container that is gone. If that process still exists, it fails when it
            starts its next run.
        wait_for_idle
            Maximum time in seconds to wait, before the first run, until CPUs and all
            visible GPUs are less than 10 % busy. The study records the time waited and
            what was still busy.
        minutes
            Time limit of this execution, after that wait. A running start is completed;
            one that still waits for devices is stopped. None uses the limit of the last
            execution, or of `create`; 0 sets no limit.

        Raises
        ------
        ConfigError
            If ``wait_for_idle`` or ``minutes`` is not valid, or ``wait_for_idle`` is
            used with runs on other machines.
        RunError
            If the study needs ``trust``, or another process executes it or may do so
            (see ``force``).
        RunFailedError
            If a run fails; in a study with a metric, if all runs of an arm fail.
            Earlier runs are kept, concurrent runs are stopped.
        NotEnoughDataError
            If an arm has no such metric; the error lists the metrics that it has.
        RunStoppedError
            If a user stops a run.
        """
        limit = self.minutes if minutes is None else checked_minutes(minutes)
        programs = list(self.programs.values())
        permit = permit_study(
            self.paths, self.arms, self.environment, programs, trust=trust
        )
        with _headline_if_stopped(self, shown=progress), self._executing(force=force):
            self._write(minutes=limit, not_measured=[], is_complete=False)
            with variables_set(self.environment):
                starts = [
                    *checked(
                        grouped(self.missing, self.concurrent), self.arms, self.programs
                    )
                ]
            times = self.earlier_times | start_times(self)
            shown = Progress(self.name, len(starts), quiet=not progress, times=times)
            if progress and (seconds := self.estimated_seconds):
                by = "from earlier runs of these arms."
                shown.say(f"Estimated: {duration_in_words(seconds)}, {by}")
            if wait_for_idle and starts:
                self._wait_for_idle(starts, wait_for_idle, shown.say)
            places: list[Place] = [()]
            if self.parallel != 1 and starts:
                with variables_set(self.environment):
                    configs = {slot.arm: self.arms[slot.arm] for [slot] in starts}
                    places = free_places(configs.values(), self.parallel)
            # All arms of a repeat run in one place.
            repeats = {slot.repeat for start in starts for slot in start}
            shown.places = max(1, min(len(places), len(repeats)))
            budget = Budget(self, limit, times, places=shown.places)
            given_up = GivenUp(self)
            if len(places) > 1:
                self._run_side_by_side(starts, places, budget, given_up, shown, permit)
            else:
                self._run_in_turn(starts, budget, given_up, shown, permit)
            left = [slot for start in given_up.without(starts) for slot in start]
            self._write(
                not_measured=[[slot.arm, slot.repeat] for slot in left],
                is_complete=not self.missing,
            )
            shown.answer = self._answer_so_far()
            write_json(self.paths.progress, shown.to_dict())
            shown.close()
            for sentence in (*failed_starts(self), not_measured(self)):
                shown.say(sentence)
            given_up.raise_for_arms()
        return self

    def resume(
        self,
        *,
        progress: bool = True,
        trust: bool = False,
        force: bool = False,
        minutes: float | None = None,
    ) -> Self:
        """Continue an interrupted study; same as `run` without ``wait_for_idle``."""
        return self.run(progress=progress, trust=trust, force=force, minutes=minutes)

    def _wait_for_idle(
        self,
        starts: Sequence[Sequence[Slot]],
        patience_seconds: float,
        say: Callable[[str], None],
    ) -> None:
        arms = self.arms
        names = dict.fromkeys(slot.arm for slots in starts for slot in slots)
        configs = [arms[name] for name in names]
        wait = wait_for(configs, patience_seconds, say, self.environment)
        self._write(waits=[*self._content.get("waits", []), asdict(wait)])

    def _run_in_turn(
        self,
        starts: list[Sequence[Slot]],
        budget: Budget,
        given_up: GivenUp,
        progress: Progress,
        permit: Permit,
    ) -> None:
        """Run what fits, one start after the other; leave the rest."""
        while fit := budget.fitting(given_up.without(starts)):
            slots, *rest = fit
            starts.remove(slots)
            progress.expect([start[0].arm for start in fit], budget.left_seconds)
            try:
                [run, *_] = self._run_at_once(slots, budget, progress, permit)
                arm = slots[0].arm
                is_measured = not self.concurrent and arm not in self.unrepeated
                if self.metric is not None and is_measured:
                    given_up.check(arm, run)
            except QueuedAtLimitError:
                starts.insert(0, slots)
                return
            except RunFailedError as error:
                if self.metric is None or self.concurrent:
                    raise
                given_up.add(slots[0].arm, error)
            if rest and budget.ends_round(slots, rest[0]):
                budget.end_round(rest[0][0].repeat)
                progress.show_answer(self._answer_so_far)

    def _run_side_by_side(
        self,
        starts: list[Sequence[Slot]],
        places: Sequence[Place],
        budget: Budget,
        given_up: GivenUp,
        progress: Progress,
        permit: Permit,
    ) -> None:
        """Run what fits, one start in each place; leave the rest."""
        running: dict[Slot, str] = {}
        queued: set[Slot] = set()

        def fitting() -> list[Slot]:
            return [slot for [slot] in budget.fitting(given_up.without(starts))]

        def begin(slot: Slot, place: Place) -> Run:
            starts.remove([slot])
            arms = [slot.arm, *(slot.arm for [slot] in given_up.without(starts))]
            progress.expect(arms, budget.left_seconds)
            running[slot] = slot.label
            progress.start(running[slot])
            write_json(self.paths.progress, progress.to_dict())
            return self._begin(slot, permit, len(self._content["runs"]), place)

        def on_poll(runs: Mapping[Slot, Run]) -> None:
            progress.beside(list(running.values()))
            for slot in runs.keys() - queued:
                if budget.is_over_for([runs[slot]]):
                    queued.add(slot)
                    runs[slot].stop(by="study", wait=False)

        def on_end(slot: Slot, run: Run) -> None:
            progress.end(run, running.pop(slot), slot.arm)

        def check(slot: Slot, run: Run) -> None:
            if slot in queued:
                starts.append([slot])
                return
            try:
                run.wait(raise_on_failure=not has_diverged(run))
                if self.metric is not None:
                    given_up.check(slot.arm, run)
            except RunFailedError as error:
                if self.metric is None:
                    raise
                given_up.add(slot.arm, error)
            left = {*running, *(slot for [slot] in given_up.without(starts))}
            if slot.repeat not in {slot.repeat for slot in left}:
                progress.show_answer(self._answer_so_far)

        places_of = {
            entry["repeat"]: tuple(entry.get("devices") or ())
            for entry in self._content["runs"]
        }
        try:
            run_side_by_side(
                [slot for [slot] in starts],
                places,
                places_of,
                fitting=fitting,
                begin=begin,
                on_poll=on_poll,
                on_end=on_end,
                check=check,
            )
        except (KeyboardInterrupt, RunError) as error:
            error.add_note(resume_hint(self))
            raise

    def _begin(self, slot: Slot, permit: Permit, start: int, place: Place = ()) -> Run:
        """Start a run and write it down; one that cannot be written down is ended."""
        run = self._launch(slot, permit, place)
        entry = {"arm": slot.arm, "repeat": slot.repeat, "start": start}
        entry |= {"run_id": run.run_id, **({"devices": place} if place else {})}
        try:
            self._write(runs=[*self._content["runs"], entry])
        except BaseException:
            end_all([run], by="study")
            raise
        return run

    def _run_at_once(
        self,
        slots: Sequence[Slot],
        budget: Budget,
        progress: Progress,
        permit: Permit,
    ) -> list[Run]:
        labels = [slot.label for slot in slots]
        progress.start(" + ".join(labels))
        start = len(self._content["runs"])
        runs: list[Run] = []

        def on_poll(run: Run) -> None:
            progress.poll(run)
            if budget.is_over_for(runs):
                raise QueuedAtLimitError

        try:
            for slot in slots:
                runs.append(self._begin(slot, permit, start))
            write_json(self.paths.progress, progress.to_dict())
            wait_for_all(runs, on_poll)
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            end_all(runs, by="interrupt" if interrupted else "study")
            if interrupted or isinstance(error, RunError):
                error.add_note(resume_hint(self))
            raise
        finally:
            for label, run in zip(labels, runs, strict=False):
                progress.end(run, label)
            # What started together takes as long as the longest.
            budget.times.take(slots[0].arm, [run.record for run in runs])
        return runs

    def _answer_so_far(self) -> str:
        """Return the answer as of now; empty if there is none yet."""
        with suppress(Exception):  # a report that cannot be made yet ends no study
            answer = answer_so_far(self)
            return f"So far: {answer}" if self.missing else answer
        return ""

    def _launch(self, slot: Slot, permit: Permit, place: Place = ()) -> Run:
        content = self._own_content()
        entry, cwd = self._program(slot)
        fields = content["arms"][slot.arm]
        if entry is None:
            fields = of_repeat(fields, self._number(slot), self.plan)
        # Else every list of runs would call all of them by their model.
        fields = {"name": f"{self.name} {slot.label}", **fields}
        if place:
            fields["devices"] = place[: fields.get("gpus", 1)]
        tags = {
            **before_start(self.kind, self.plan, fields),
            "study": self.study_id,
            "arm": slot.arm,
            "repeat": str(slot.repeat),
        }
        beside = [
            arm for group in self.concurrent if slot.arm in group for arm in group
        ]
        if beside:
            tags["concurrent"] = "; ".join(beside)
        return start_run(
            ExperimentConfig(**fields),
            entry,
            cwd=cwd,
            permit=permit,
            on_owner_exit="stop",
            parameter_sources=dict.fromkeys(fields, "given")
            | content["parameter_sources"],
            tags=tags,
            environment=self.environment,
        )

    def _program(self, slot: Slot) -> tuple[RunEntry | None, Path | None]:
        """Return what ranks of a start execute, and where, if the arm is a program."""
        paths = self.programs.get(slot.arm)
        if paths is None:
            return None, None
        if not paths.entry.exists():
            message = (
                f"study {self.study_id} was imported without the program of arm "
                f"{slot.arm!r}. Create the study again from the script or function."
            )
            raise RunError(message)
        entry = stored_entry(paths)
        variables = entry.private["environment"]
        variables = {**variables, "STUDY_REPEAT": str(self._number(slot))}
        entry = replace(entry, private={**entry.private, "environment": variables})
        return entry, Path(self._content["programs"][slot.arm]["cwd"])

    def _number(self, slot: Slot) -> int:
        """Return what a start takes its seed from.

        A control with the seeds of its arm would repeat its values.
        """
        is_control = self.control is not None and slot.arm == self.control[1]
        return slot.repeat + (self.repeats if is_control else 0)

    def _write(self, **changes: Any) -> None:
        """Change fields of the file; for the process that executes the study."""
        content = self._own_content()
        write_json(self.paths.study, {**content, **changes})

    def _own_content(self) -> dict[str, Any]:
        """Return the file's content, if this process still executes the study."""
        content = self._content
        if content["executor"] == ProcessIdentity.of().to_dict():
            return content
        raise RunError(executed_by(self.paths, None))

    @contextmanager
    def _executing(self, *, force: bool) -> Iterator[None]:
        """Be the one process that executes the study and writes its file."""
        with executing(self.paths):
            if self._content["executor"] is not None:
                self._refuse_while_alive(force=force)
                entries = self._content["runs"]
                wait_for_the_last_runs(self.study_id, entries, force=force)
            me = ProcessIdentity.of().to_dict()
            write_json(self.paths.study, {**self._content, "executor": me})
            refresh_nfs_cache(self.paths.root)
            if (executor := self._content["executor"]) != me:
                raise RunError(executed_by(self.paths, executor))
            try:
                yield
            finally:
                # It may have been taken over.
                with suppress(RunError):
                    self._write(executor=None)

    def _refuse_while_alive(self, *, force: bool) -> None:
        executor = ProcessIdentity.from_dict(self._content["executor"])
        is_alive = executor.is_alive()
        may_go_on = is_alive is False or (force and is_alive is None)
        if may_go_on or executor == ProcessIdentity.of():
            return
        message = executed_by(self.paths, executor.to_dict())
        if is_alive is None:
            message += " If that host or container is gone, call resume(force=True)."
        raise RunError(message)


@contextmanager
def _headline_if_stopped(study: Study, *, shown: bool) -> Iterator[None]:
    """Print the headline of what has finished if a user stops the study meanwhile.

    A notebook ends there: its cells that show results do not come any more.
    """
    try:
        yield
    except (KeyboardInterrupt, RunStoppedError):
        # What is raised says how to continue, too, but papermill shows no notes of it.
        with suppress(Exception):
            if shown and (headline := headline_so_far(study)):
                text = f"{headline}\n{resume_hint(study)}"
                sys.stdout.write(f"\n{visible(text, lines=True)}\n")
                sys.stdout.flush()
        raise
