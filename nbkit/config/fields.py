"""The fields of `ExperimentConfig` for readers: paths, defaults, meanings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nbkit.config.experiment import GROUPS, PROGRAM_TASKS, ExperimentConfig

_PROGRAM_GROUPS = ("Devices", "Timeouts and restarts", "Slurm", "Manual launch")


@dataclass(frozen=True)
class Field:
    """One field, or one of a configuration inside."""

    group: str
    """Heading of the field in the launch form."""
    path: str
    """Such as ``loader_config.num_workers``."""
    default: Any
    """Default as a JSON value."""
    schema: Mapping[str, Any]
    """JSON Schema of the field's values; its description is the field's docstring."""

    @property
    def meaning(self) -> str:
        """The first sentence of its docstring."""
        words = " ".join(self.schema["description"].split())
        match = re.match(r".+?\.(?= [A-Z`]|$)", words)
        return match[0] if match else words


def described_fields() -> list[Field]:
    """Return every field in the order of the class."""
    schema = ExperimentConfig.model_json_schema()
    fields: list[Field] = []
    group = ""
    for name, field in schema["properties"].items():
        group = GROUPS.get(name, group)
        fields += _described(group, name, field, field.get("default"), schema["$defs"])
    return fields


def changed_fields(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a configuration that are not at their defaults."""
    defaults = dict(flat(ExperimentConfig().model_dump(mode="json")))
    if stored.get("task") in PROGRAM_TASKS:
        defaults["hang_timeout_seconds"] = None
    return {
        path: value
        for path, value in flat(stored)
        if path not in defaults or defaults[path] != value
    }


def read_fields(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a run reads: a program has no model and no images."""
    if stored.get("task") not in PROGRAM_TASKS:
        return dict(flat(stored))
    names, group = set(), ""
    for name in ExperimentConfig.model_fields:
        group = GROUPS.get(name, group)
        if name == "task" or group in _PROGRAM_GROUPS:
            names.add(name)
    return dict(flat({name: value for name, value in stored.items() if name in names}))


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested values by dotted paths; an empty mapping is a value."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _described(
    group: str,
    path: str,
    field: Mapping[str, Any],
    default: Any,
    definitions: Mapping[str, Any],
) -> Iterator[Field]:
    if "$ref" in field:
        inside = definitions[field["$ref"].rpartition("/")[2]]
        for name, nested in inside["properties"].items():
            at = (default or {}).get(name, nested.get("default"))
            yield from _described(group, f"{path}.{name}", nested, at, definitions)
        return
    yield Field(group, path, default, field)


LABEL_FAULT_FIELDS = ("missing_labels", "uncertain_labels")
DATA_FAULT_FIELDS = ("unreadable_images", *LABEL_FAULT_FIELDS)
"""What is done about images and labels that cannot be read."""

SIXTEEN_BIT = ("fp16", "bf16")
