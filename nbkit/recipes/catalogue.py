"""Published experiments as configurations, with every flag of theirs accounted for.

A recipe is a file of data: the commands as their report prints them, and what each
flag means here: a field of `nbkit.ExperimentConfig`, or nothing, with the reason. The
configuration is computed from the command through that table, so that no value of the
original is written down twice.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from string import Template
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.registry import suggest
from nbkit.reports.renderer import Table

_FILES = resources.files("nbkit.recipes") / "experiments"


@dataclass(frozen=True)
class RecipeSetting:
    """One published setting of a run, and the fields that it sets in nbkit."""

    name: str
    """Flag, parameter of the program, or term of the report."""
    value: str | None
    """As printed; None for a flag without a value, or if the report has none."""
    fields: Mapping[str, Any]
    """Fields that it sets, nested ones as ``loader_config.num_workers``; empty if it is
    not carried over."""
    because: str
    """Why it is not carried over, or why the field's value differs from it."""

    @property
    def outcome(self) -> str:
        """The fields that it sets, in words."""
        texts = [f"{field}={value}" for field, value in self.fields.items()]
        return ", ".join(texts) or "not carried over"


class Recipe:
    """A published experiment, displayed as a table of its flags.

    Parameters
    ----------
    name
        Name of the recipe.
    content
        Content of its file.
    """

    def __init__(self, name: str, content: Mapping[str, Any]) -> None:
        self.name = name
        self.title: str = content["title"]
        self.source: Mapping[str, Any] = content["source"]
        """``title``, ``publisher``, ``url`` (None if it is not known) and ``year``."""
        self.notes: list[str] = content["notes"]
        """What to know before comparing results."""
        self._content = content

    @property
    def runs(self) -> list[str]:
        """Names of the runs that the publication reports."""
        return list(self._content["runs"])

    @property
    def commands(self) -> dict[str, str]:
        """Published command by run; runs without a known command are omitted."""
        return {
            run: printed["command"]
            for run, printed in self._content["runs"].items()
            if "command" in printed
        }

    @property
    def configs(self) -> dict[str, ExperimentConfig]:
        """Configuration of every run, by run name."""
        return {run: self.config(run) for run in self.runs}

    @property
    def flags(self) -> Table:
        """Every flag of every run with the fields that it sets, or why it sets none."""
        rows = {
            (setting.name, setting.value, setting.outcome, setting.because): None
            for run in self.runs
            for setting in self.settings(run)
        }
        source = f"{self.source['title']}, {self.source['year']}"
        address = f": {self.source['url']}" if self.source["url"] else ""
        runs = [f"Runs: {', '.join(self.runs)}."] if len(self.runs) > 1 else []
        return Table(
            f"{self.name}: {self.title}",
            ["published", "value", "here", "because"],
            [list(row) for row in rows],
            [f"From {source}{address}.", *runs, *self.notes],
        )

    def settings(self, run: str) -> list[RecipeSetting]:
        """Return the published settings of a run, in their order."""
        if run not in self._content["runs"]:
            message = (
                f"run={run!r} is not a run of the recipe {self.name!r}. Its runs: "
                f"{', '.join(self.runs)}.{suggest(run, self.runs)}"
            )
            raise ConfigError(message)
        content = self._content["runs"][run]
        settings = [self._setting(name, value) for name, value in self._published(run)]
        if "instead" in content:
            instead = content["instead"]
            settings.append(
                RecipeSetting(run, None, instead["fields"], because=instead["because"])
            )
        return settings

    def config(self, run: str | None = None, /, **overrides: Any) -> ExperimentConfig:
        """Return the configuration of a run.

        Examples
        --------
        >>> recipe = nbkit.recipe("netapp_resnet50")  # doctest: +SKIP
        >>> nbkit.launch(recipe.config(data="/path/to/imagenet"))  # doctest: +SKIP
        """
        if run is None:
            if len(self.runs) > 1:
                message = (
                    f"The recipe {self.name!r} has {len(self.runs)} runs. Choose one: "
                    f"{', '.join(self.runs)}."
                )
                raise ConfigError(message)
            run = self.runs[0]
        title = self.name if len(self.runs) == 1 else f"{self.name} {run}"
        fields: dict[str, Any] = {"name": title}
        for setting in self.settings(run):
            for field, value in setting.fields.items():
                _set_field(fields, field, value)
        return ExperimentConfig(**fields).replace(**overrides)

    def _published(self, run: str) -> Iterator[tuple[str, str | None]]:
        """Yield the names and values that are printed for a run."""
        content = self._content["runs"][run]
        if "command" in content:
            command = Template(content["command"])
            # Variables that the report does not print stay in place.
            text = command.safe_substitute(content.get("variables", {}))
            yield from self._parse_command(text)
        yield from self._content.get("printed", {}).items()
        yield from content.get("printed", {}).items()

    def _parse_command(self, command: str) -> Iterator[tuple[str, str | None]]:
        """Yield the flags of a command with their values, and its other words."""
        words = shlex.split(command)
        if ">" in words:
            # Where the output goes is the shell's affair.
            words = words[: words.index(">")]
        while words:
            name, values = words.pop(0), []
            takes = self._content["settings"][name].get("takes", 1)
            while name.startswith("-") and words and len(values) < takes:
                if words[0].startswith("-"):
                    break
                values.append(words.pop(0))
            yield name, " ".join(values) or None

    def _setting(self, name: str, value: str | None) -> RecipeSetting:
        meaning = self._content["settings"][name]
        if "not_carried_over" in meaning:
            return RecipeSetting(name, value, {}, meaning["not_carried_over"])
        if "field" in meaning:
            fields = {meaning["field"]: value}
        elif "values" in meaning:
            fields = meaning["values"][value]
        else:
            fields = meaning["fields"]
        return RecipeSetting(name, value, fields, meaning.get("because", ""))

    def __repr__(self) -> str:
        return f"<Recipe {self.name!r}: {', '.join(self.runs)}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return self.flags._repr_mimebundle_()


def recipe(name: str) -> Recipe:
    """Return a published experiment as a recipe.

    Parameters
    ----------
    name
        Such as ``"netapp_resnet50"``.

    Raises
    ------
    ConfigError
        If there is no recipe of that name; the text lists the names.

    Examples
    --------
    >>> nbkit.recipe("netapp_resnet50").config().batch_size_per_gpu  # doctest: +SKIP
    408
    """
    names = recipe_names()
    if name not in names:
        message = (
            f"recipe={name!r} is unknown. Use one of {', '.join(names)}."
            f"{suggest(name, names)}"
        )
        raise ConfigError(message)
    text = (_FILES / f"{name}.json").read_text(encoding="utf-8")
    return Recipe(name, json.loads(text))


def recipe_names() -> list[str]:
    """Return the names of nbkit's recipes, sorted."""
    return sorted(
        file.name.removesuffix(".json")
        for file in _FILES.iterdir()
        if file.name.endswith(".json")
    )


def _set_field(fields: dict[str, Any], path: str, value: Any) -> None:
    """Set a field, or one inside another, by its path."""
    *outer, last = path.split(".")
    for name in outer:
        fields = fields.setdefault(name, {})
    fields[last] = value
