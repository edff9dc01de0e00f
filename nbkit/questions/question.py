"""`Question`: declaration of a notebook, its plan and its report.

Launcher tiles, command line, documentation, studies and tests read the questions that
are registered; a package adds one as nbkit does. Every Jupyter server lists them: what
plans and runs need is imported where it is used.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbkit import registry
from nbkit.errors import ConfigError

if TYPE_CHECKING:
    from nbkit.questions.study_plan import Plan
    from nbkit.studies.parameters import Parameters
    from nbkit.studies.study import Study


MODULES = {"describe": ".planning", "plan": ".planning", "result": ".page"}
"""Modules that a question of nbkit has."""


@dataclass(frozen=True)
class Question:
    """A question that a notebook answers.

    Parameters
    ----------
    package
        Package of the question. Its last component names the question and the notebook.
    text
        The question, in lower case.
    modules
        Module of each public name, such as ``.planning``. Required: ``plan``, and
        ``report`` or ``result`` (an object with a method ``report``). Optional:
        ``describe`` makes the notes of a stored plan;
        ``prepare`` measures before the study and returns a changed plan;
        ``before_start`` is called before each start; ``run`` replaces the study.
    reports
        Short names of the published reports that ask this question.
    parameters
        Parameters of the command that runs it like these reports.
    gpus
        Minimum number of GPUs to reproduce the figures of the reports.
    needs
        Other requirements for these figures.
    rank
        Position among the tiles and in tables.
    """

    package: str
    text: str
    modules: Mapping[str, str] = field(default_factory=dict)
    reports: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    gpus: int = 0
    needs: str = ""
    rank: int = 100

    @property
    def name(self) -> str:
        """Name of the notebook, and kind of its studies."""
        return self.package.rpartition(".")[2]

    @property
    def folder(self) -> Path:
        """Folder of the package; a notebook in it gets a launcher tile."""
        return Path(importlib.import_module(self.package).__file__ or "").parent

    @property
    def further_parameters(self) -> str:
        """Parameters that the notebook's cell omits: annotated, commented literals."""
        file = self.folder / "parameters.py"
        is_package = (self.folder / "__init__.py").exists()
        return file.read_text("utf-8") if is_package and file.exists() else ""

    @property
    def command(self) -> str:
        """Command that runs it like the published reports."""
        from nbkit.studies.parameters import papermill_command

        return papermill_command(self.name, self.parameters)

    def plan(self, parameters: Parameters) -> Any:
        """Return the plan for these parameters, without starting anything."""
        return self._part("plan")(parameters)

    def run(self, plan: Plan) -> Study:
        """Execute a plan, and return the study.

        Raises
        ------
        RunFailedError
            If a run fails; the error names the study, which ``resume()`` continues.
        """
        if "run" in self.modules:
            return self._part("run")(plan)
        began = time.monotonic()
        if "prepare" in self.modules:
            plan = self._part("prepare")(plan)
        from nbkit.studies.study import Study

        study = Study.create(
            self.name,
            plan.arms,
            repeats=plan.repeats,
            control=plan.control,
            unrepeated=plan.unrepeated,
            concurrent=plan.concurrent,
            parameters=plan.parameters,
            environment=plan.environment,
            kind=self.name,
            plan=plan.facts,
            minutes=plan.minutes_after(time.monotonic() - began),
        )
        return study.run(wait_for_idle=plan.wait_for_idle)

    def report(self, study: Any) -> Any:
        """Return the `Report` of a study."""
        if "report" in self.modules:
            return self._part("report")(study)
        return self._part("result")(study).report()

    def describe(self, study: Any) -> list[str]:
        """Return the notes of the plan that is stored with a study."""
        if "describe" not in self.modules:
            return []
        from nbkit.questions.study_plan import PlanValues

        return [*self._part("describe")(PlanValues.of(study))]

    def before_start(
        self, plan: Mapping[str, Any], arm: Mapping[str, Any]
    ) -> dict[str, str]:
        """Prepare the start of a run; return tags for its record."""
        if "before_start" not in self.modules:
            return {}
        return self._part("before_start")(plan, arm)

    def face(self) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
        """Return ``__getattr__`` and ``__dir__`` of the package."""
        names = sorted({*self.modules, "report", "run"})

        def get(name: str) -> Any:
            if name == "report" and "run" not in self.modules:
                # What users call saves it, with audit and limits: `nbkit.report`.
                return importlib.import_module("nbkit.questions.study_report").report
            if name in self.modules:
                return self._part(name)
            if name == "run":
                return self.run
            message = f"module {self.package!r} has no attribute {name!r}"
            raise AttributeError(message)

        return get, lambda: names

    def _part(self, name: str) -> Any:
        return getattr(importlib.import_module(self.modules[name], self.package), name)


def questions() -> list[Question]:
    """Return the registered questions, in the order of their tiles."""
    declared = []
    for name in registry.names("questions"):
        # A package that cannot be imported says so where its question is asked.
        with suppress(ConfigError):
            declared.append(registry.resolve("questions", name))
    return sorted(declared, key=lambda question: (question.rank, question.name))


TOUR = Question(
    "nbkit.questions.interactive",
    text="how to configure, launch, watch, stop, resume and compare runs",
    reports=("Dell guide",),
)
"""The notebook that asks nothing: it leaves runs and no study."""


def notebooks_of_questions() -> list[Question]:
    """Return the questions of the notebooks, in the order of their tiles."""
    return [TOUR, *questions()]
