"""Results of the form for the entered values: errors, memory, commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbkit.config import ExperimentConfig, Model
from nbkit.errors import ConfigError, NbkitError
from nbkit.estimates.memory import LEFT_OUT, MemoryEstimate, estimate_memory
from nbkit.launch.code.command import torchrun_line
from nbkit.launch.devices.choice import threads_of_a_rank
from nbkit.launch.slurm.batch_script import sbatch_script
from nbkit.statistics.quantities import UNKNOWN, size
from nbkit.store.paths import RunPaths, runs_folder
from nbkit.widgets.form_fields import Control, Entered, fields_of

_WIDTH = 78


@dataclass(frozen=True)
class FormCheck:
    """What `ExperimentConfig` makes of what was entered."""

    fields: dict[str, Any]
    """Those that are not at their defaults."""
    config: ExperimentConfig | None
    """None if a field is bad."""
    errors: dict[str, str] = field(default_factory=dict)
    """A sentence for every bad field, by its path."""
    refused: dict[str, str] = field(default_factory=dict)
    """The same of fields that are good, and with which a launch is refused here."""

    @classmethod
    def of(
        cls,
        entered: Entered,
        controls: Mapping[str, Control],
        came_from: Path | None = None,
    ) -> FormCheck:
        """Check all fields together.

        Of a folder that others may have written, all options of Slurm count as theirs
        until none is left.
        """
        fields = fields_of(entered, controls)
        try:
            config = ExperimentConfig(**fields)
        except ConfigError as error:
            return cls(fields, None, error.fields or {"": str(error)})
        if came_from is not None:
            config = config.coming_from(came_from)
        return cls(fields, config)

    def to_dict(
        self, controls: Mapping[str, Control], gpus: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Return what the page shows, as JSON values."""
        wrong = self.errors | self.refused
        try:
            commands = self.commands(gpus)
        except NbkitError as error:  # such as of a folder that no script can name
            commands, wrong = [], {**wrong, "commands": str(error)}
        return {
            # Beside its field, a sentence need not name it.
            "errors": {
                path: line.removeprefix(f"{path}=")
                for path, line in wrong.items()
                if path in controls
            },
            # Such as one of a field that the form does not have.
            "general": [line for path, line in wrong.items() if path not in controls],
            "memory": self.memory(),
            "commands": commands,
        }

    def memory(self) -> dict[str, str] | None:
        """Return the estimate in words; None without a configuration."""
        if self.config is None:
            return None
        estimate = estimate_memory(self.config)
        if estimate is None:
            return {"total": UNKNOWN, "why": _unknown_reason(self.config)}
        return {"total": f"about {size(estimate.total_bytes)}", "why": _parts(estimate)}

    def commands(self, gpus: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
        """Return the commands that do the same, each with a title and a note."""
        if self.config is None:
            return []
        python = {"title": "Python", "text": python_line(self.fields), "note": ""}
        if self.config.engine == "slurm":
            return [python, _sbatch(self.config)]
        if self.config.engine != "local":
            engine = self.config.engine
            note = f"engine={engine} creates the command when the run is launched."
            return [python, {"title": engine, "text": "", "note": note}]
        uuids = _uuids(self.config, gpus)
        line = torchrun_line(
            self.config,
            runs_folder() / "RUN",
            uuids,
            "cuda" if uuids or self.config.device == "cuda" else "cpu",
            threads_of_a_rank(self.config),
        )
        note = (
            "RUN is the run folder, which Launch creates. The record contains this "
            "command with the actual folder and devices."
        )
        return [python, {"title": "torchrun", "text": line, "note": note}]


def python_line(fields: Mapping[str, Any]) -> str:
    """Return the call of `nbkit.launch` with these fields, others at their defaults."""
    return _call("nbkit.launch", fields, ExperimentConfig, indent=0)


def _call(
    name: str, fields: Mapping[str, Any], model: type[Model], *, indent: int
) -> str:
    inner = indent + 4
    parts = [
        f"{key}={_value(value, model.model_fields[key].annotation, indent=inner)}"
        for key, value in fields.items()
    ]
    line = f"{name}({', '.join(parts)})"
    if indent + len(line) <= _WIDTH and "\n" not in line:
        return line
    lines = "".join(f"\n{' ' * inner}{part}," for part in parts)
    return f"{name}({lines}\n{' ' * indent})"


def _value(value: Any, annotation: Any, *, indent: int) -> str:
    if isinstance(value, Mapping):
        if not isinstance(annotation, type):
            items = [
                f"{json.dumps(key)}: {_value(item, None, indent=indent)}"
                for key, item in value.items()
            ]
            return f"{{{', '.join(items)}}}"
        return _call(f"nbkit.{annotation.__name__}", value, annotation, indent=indent)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        items = [_value(item, None, indent=indent) for item in value]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    return repr(value)


def _sbatch(config: ExperimentConfig) -> dict[str, str]:
    asked = config.slurm.gpus_per_node
    expected = 0 if config.device == "cpu" else config.gpus
    text = sbatch_script(
        config,
        RunPaths(runs_folder() / "RUN"),
        python="python" if config.slurm.setup else sys.executable,
        gpus_per_node=expected if asked is None else asked,
    )
    note = (
        "RUN is the run folder, which Launch creates and where the script is saved. "
        "By default, the script requests GPUs only if the cluster has GPUs."
    )
    return {"title": "sbatch", "text": text, "note": note}


def _parts(estimate: MemoryEstimate) -> str:
    parts = {
        "activations": estimate.activations_bytes,
        "weights": estimate.weights_bytes,
        "gradients": estimate.gradients_bytes,
        "optimizer": estimate.optimizer_bytes,
    }
    texts = [f"{name} {size(count)}" for name, count in parts.items()]
    return f"{', '.join(texts)}. Not included: {LEFT_OUT}."


def _unknown_reason(config: ExperimentConfig) -> str:
    if config.task != "train":
        return f'task="{config.task}" does not train an nbkit model.'
    if config.batch_size_per_gpu == "max":
        return 'batch_size_per_gpu="max" uses all free GPU memory.'
    return f"There is no memory measurement of {config.model}."


def _uuids(
    config: ExperimentConfig, gpus: Sequence[Mapping[str, Any]]
) -> Sequence[str]:
    """Return the GPUs that the run would get if it were launched now."""
    if config.device in ("cpu", "replay"):
        return ()
    if config.devices is not None:
        known = {str(gpu["device"]): str(gpu["uuid"]) for gpu in gpus}
        return [known.get(str(name), str(name)) for name in config.devices]
    free_first = sorted(gpus, key=lambda gpu: gpu["is_free"] is not True)
    return [str(gpu["uuid"]) for gpu in free_first[: config.gpus]]
