"""A study: several configurations, each run several times, in a balanced order.

A study is a folder with one file, ``studies/<study_id>/study.json``: the plan, the
order and the ids of the runs, written by the process that executes the study. What
became of a run is asked of the run itself. The file also says what kind of study it
is, with the facts of its plan, so that `nbkit.report` needs nothing but the store.
"""

from __future__ import annotations

import datetime
import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from nbkit.config import ExperimentConfig
from nbkit.errors import (
    ConfigError,
    NotEnoughDataError,
    RunError,
    RunNotFoundError,
    StoreError,
)
from nbkit.launch.run import Run, attach
from nbkit.launch.start import launch
from nbkit.store.metrics import store_error
from nbkit.store.paths import StudyPaths, studies_folder, the_study_folder
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import read_json, utc_now, write_json
from nbkit.study.kinds import before_start
from nbkit.study.order import Slot, arms_and_order, balanced_order, of_repeat, twin
from nbkit.study.parameters import Parameters
from nbkit.study.progress import Progress
from nbkit.study.starts import (
    check_together,
    end_all,
    finished_runs,
    grouped,
    variables_set,
    wait_for_all,
)

__all__ = ["STUDY_SCHEMA", "Slot", "Study", "balanced_order"]

STUDY_SCHEMA = "nbkit.study/1"


class Study:
    """A study in the store; open it from any process, execute it from one.

    Parameters
    ----------
    root
        The study's folder.
    """

    def __init__(self, root: Path) -> None:
        self.paths = StudyPaths(root)
        self._last_content: dict[str, Any] = {}
        if not self._content:
            message = f"{self.paths.study} does not exist; Study.create() makes one."
            raise StoreError(message)

    @classmethod
    def create(
        cls,
        name: str,
        arms: Mapping[str, ExperimentConfig],
        *,
        repeats: int = 1,
        control: str | None = None,
        once: Mapping[str, ExperimentConfig] | None = None,
        together: Sequence[Sequence[str]] = (),
        parameters: Parameters | None = None,
        environment: Mapping[str, str] | None = None,
        kind: str | None = None,
        plan: Mapping[str, Any] | None = None,
    ) -> Self:
        """Write the plan of a new study; nothing is started.

        Parameters
        ----------
        name
            What the study is called, such as the notebook's name.
        arms
            Configuration by the name that reports will use.
        repeats
            Process starts of every arm.
        control
            Arm that is measured a second time, as an arm of its own that is called
            "<arm> again" (A/A control). It is what the others are compared with; the
            two are as far apart as the order allows.
        once
            What is measured a single time and before the arms, by name, such as the
            bandwidth between devices. It is not compared with anything.
        together
            Arms that are started at once, group by group, each group in the order of
            the arms. If one of its runs does not finish, all of them are done again.
        parameters
            The notebook's parameters, for the record.
        environment
            Environment variables that every run of the study gets.
        kind
            Which report it gets, such as ``scaling``; None for that of any arms.
        plan
            What that report has to know of the plan, as JSON values.

        Raises
        ------
        ConfigError
            If there is nothing to run, a name is used twice, the control is no arm, or
            arms cannot be started together.
        StoreError
            If the store cannot be written.
        """
        if not arms or repeats < 1:
            message = (
                f"a study of {len(arms)} arms and repeats={repeats} has nothing to "
                "run; use at least one arm and repeats=1."
            )
            raise ConfigError(message)
        check_together(together, list(arms), control)
        every, order = arms_and_order(arms, repeats, control, once or {})
        root = studies_folder() / _study_id(name)
        try:
            root.mkdir(parents=True)
        except OSError as error:
            raise store_error(root, error) from error
        content = {
            "schema": STUDY_SCHEMA,
            "study_id": root.name,
            "name": name,
            "kind": kind,
            "plan": dict(plan or {}),
            "created": utc_now(),
            "arms": {
                arm: config.model_dump(mode="json", exclude_unset=True)
                for arm, config in every.items()
            },
            "once": list(once or {}),
            "control": None if control is None else [control, twin(control)],
            "together": [list(group) for group in together],
            "repeats": repeats,
            "order": [[slot.arm, slot.repeat] for slot in order],
            "parameters": dict(parameters or {}),
            "origins": parameters.origins if parameters else {},
            "environment": dict(environment or {}),
            "executor": None,
            "runs": [],
        }
        write_json(StudyPaths(root).study, content)
        return cls(root)

    @classmethod
    def open(cls, study_id: str) -> Self:
        """Return a study of the store by its id, or by the end of it.

        Raises
        ------
        StoreError
            If no study, or more than one, is meant.
        """
        return cls(the_study_folder(study_id))

    @property
    def study_id(self) -> str:
        """The study's id, which is its folder's name."""
        return self.paths.root.name

    @property
    def name(self) -> str:
        """What the study is called."""
        return self._content["name"]

    @property
    def kind(self) -> str | None:
        """Which report the study gets; None for that of any arms."""
        return self._content.get("kind")

    @property
    def plan(self) -> dict[str, Any]:
        """What the report has to know of the plan; empty if nothing was said."""
        return self._content.get("plan") or {}

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that every run gets."""
        return dict(self._content["environment"])

    @property
    def repeats(self) -> int:
        """Planned process starts of every arm."""
        return self._content["repeats"]

    @property
    def arms(self) -> dict[str, ExperimentConfig]:
        """Configuration of every arm, in the plan's order; first what runs once."""
        arms = self._content["arms"].items()
        # Who looks at a study need not have the plug-ins that it uses.
        return {arm: ExperimentConfig.from_store(json.dumps(f)) for arm, f in arms}

    @property
    def once(self) -> list[str]:
        """What is measured a single time; also one of `arms`."""
        return self._content.get("once") or []

    @property
    def control(self) -> tuple[str, str] | None:
        """The arm that is measured twice, and its second name; None without."""
        control = self._content.get("control")
        return None if control is None else (control[0], control[1])

    @property
    def together(self) -> list[list[str]]:
        """Arms that are started at once, group by group."""
        return self._content.get("together") or []

    @property
    def order(self) -> list[Slot]:
        """Every process start of the plan, in the order of execution."""
        return [Slot(arm, repeat) for arm, repeat in self._content["order"]]

    @property
    def missing(self) -> list[Slot]:
        """What has no finished run yet, in the order of execution."""
        finished = self._finished()
        return [slot for slot in self.order if slot not in finished]

    def runs_by_arm(self) -> dict[str, list[Run]]:
        """Return the finished runs of every arm, in the order of their repeats."""
        content, finished = self._content, self._finished()
        return {
            arm: [
                finished[Slot(arm, repeat)]
                for repeat in range(content["repeats"])
                if Slot(arm, repeat) in finished
            ]
            for arm in content["arms"]
        }

    def run(self, *, progress: bool = True) -> Self:
        """Run what has no finished run yet, one after the other, or a group at once.

        Every run is a process start of its own, and is stopped if this process ends.

        Raises
        ------
        RunFailedError
            If a run fails; the runs before it are kept, those beside it are stopped.
        RunStoppedError
            If somebody stops a run.
        """
        with self._executing():
            starts = grouped(self.missing, self.together)
            shown = Progress(self.name, len(starts), quiet=not progress)
            for slots in starts:
                self._run_at_once(slots, shown)
                if self._second_look() in slots:
                    shown.say(self._needed())
            shown.close()
        return self

    def resume(self, *, progress: bool = True) -> Self:
        """Go on with an interrupted study; the same as `run`, which repeats nothing."""
        return self.run(progress=progress)

    def __repr__(self) -> str:
        done, planned = len(self._finished()), len(self.order)
        return f"<Study {self.study_id} {done} of {planned} runs finished>"

    def _run_at_once(self, slots: Sequence[Slot], progress: Progress) -> None:
        labels = [f"{slot.arm}, repeat {slot.repeat + 1}" for slot in slots]
        progress.start(" + ".join(labels))
        start = len(self._content["runs"])
        runs: list[Run] = []
        try:
            for slot in slots:
                runs.append(self._launch(slot, start))
            wait_for_all(runs, progress.poll)
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            end_all(runs, by="interrupt" if interrupted else "study")
            if isinstance(error, RunError):
                me = f"nbkit.Study.open({self.study_id!r})"
                error.add_note(f"{me}.resume() runs what is missing.")
            raise
        finally:
            for label, run in zip(labels, runs, strict=False):
                progress.end(run, label)

    def _second_look(self) -> Slot | None:
        """Return the last start of the second repeat, if more repeats are planned.

        Who looks after every repeat, and stops at the first verdict, takes chance for a
        difference too often: so progress speaks of it a single time.
        """
        second = [slot for slot in self.order if slot.repeat == 1]
        # What to compare of runs at once, or of seeds, only their own report knows.
        its_own = self.together or self.plan.get("seed_per_repeat")
        return None if self.repeats <= 2 or its_own else second[-1]

    def _needed(self) -> str:
        """Return how many repeats the study is estimated to need, in words."""
        # Imported here: it describes studies, and so imports this module.
        from nbkit.study.arms import arms_of

        try:
            return arms_of(self).needed_sentence
        except NotEnoughDataError:
            return ""  # a run that measured nothing is the report's to complain of

    def _launch(self, slot: Slot, start: int) -> Run:
        content = self._content
        fields = of_repeat(content["arms"][slot.arm], slot.repeat, self.plan)
        # Else every list of runs would call all of them by their model.
        fields = {"name": f"{self.name} {slot.arm}", **fields}
        tags = {
            **before_start(self.kind, self.plan, fields),
            "study": self.study_id,
            "arm": slot.arm,
            "repeat": str(slot.repeat),
        }
        beside = [arm for group in self.together if slot.arm in group for arm in group]
        if beside:
            tags["together"] = "; ".join(beside)
        with variables_set(self.environment):
            run = launch(
                ExperimentConfig(**fields),
                on_owner_exit="stop",
                origins=content["origins"],
                tags=tags,
            )
        entry = {"arm": slot.arm, "repeat": slot.repeat, "run_id": run.run_id}
        self._write(runs=[*content["runs"], {**entry, "start": start}])
        return run

    @property
    def _content(self) -> dict[str, Any]:
        """What the file says now: another process may be executing the study.

        What it said last if it was removed meanwhile.
        """
        self._last_content = read_json(self.paths.study) or self._last_content
        return self._last_content

    def _write(self, **changes: Any) -> None:
        """Change fields of the file; for the process that executes the study."""
        write_json(self.paths.study, {**self._content, **changes})

    def _finished(self) -> dict[Slot, Run]:
        return finished_runs(self._content["runs"], self.together)

    @contextmanager
    def _executing(self) -> Iterator[None]:
        """Be the one process that executes the study and writes its file."""
        executor = self._content["executor"]
        if executor is not None:
            self._refuse_while_alive(ProcessIdentity.from_dict(executor))
            self._wait_for_the_last_runs()
        self._write(executor=ProcessIdentity.of().to_dict())
        try:
            yield
        finally:
            self._write(executor=None)

    def _refuse_while_alive(self, executor: ProcessIdentity) -> None:
        if executor == ProcessIdentity.of() or executor.is_alive() is False:
            return
        message = (
            f"study {self.study_id} is being executed by process {executor.pid} on "
            f"{executor.host}; wait for it or interrupt it. If that host is gone, set "
            f'"executor" to null in {self.paths.study}.'
        )
        raise RunError(message)

    def _wait_for_the_last_runs(self) -> None:
        """Let the runs of an executor that was killed come to their end.

        They are being stopped, because their owner is gone.
        """
        entries = self._content["runs"]
        for entry in entries:
            if entry.get("start") != entries[-1].get("start"):
                continue
            try:
                run = attach(entry["run_id"])
                run.wait(raise_on_failure=False, on_poll=lambda _: None)
            except RunNotFoundError:
                continue


def _study_id(name: str) -> str:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    what = re.sub(r"[^a-z0-9]+", "-", name.lower())[:32].strip("-") or "study"
    return f"{now}-{what}-{secrets.token_hex(2)}"
