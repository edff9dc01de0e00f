"""The form in a page, and its messages to and from the kernel.

The page sets `FormPanel.entered` while the user types; the kernel answers with
`FormPanel.checked` and never changes what was typed. A button sends a message. A page
first asks whether the kernel responds: while a cell runs, a kernel without subshells
does not, and a button's action must not happen long after the click.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import anywidget
import traitlets

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, NbkitError
from nbkit.launch.submit import existing_data
from nbkit.live.browser_part import page_module, static_text
from nbkit.widgets.form_check import FormCheck
from nbkit.widgets.form_fields import entered_of, sections
from nbkit.widgets.form_gpus import READING, GpuLook
from nbkit.widgets.form_partitions import NOT_ASKED, PartitionLook
from nbkit.widgets.form_refusals import Refusals, by_field


class FormPanel(anywidget.AnyWidget):
    """The controls of a form, without what becomes of the runs that it launches."""

    _esm = page_module() + static_text(
        "form_fields.js", "form_parts.js", "form.js", package="nbkit.widgets"
    )
    _css = static_text("form.css", package="nbkit.widgets")

    sections = traitlets.List().tag(sync=True)
    """Headings and controls; see `nbkit.widgets.form_fields`."""
    presets = traitlets.List().tag(sync=True)
    """Names of published experiments: ``recipe`` or ``recipe: run``."""
    entered = traitlets.Dict().tag(sync=True)
    """What every control holds, by the path of its field."""
    checked = traitlets.Dict().tag(sync=True)
    """Errors, memory and commands; see `FormCheck.to_dict`."""
    gpus = traitlets.Dict().tag(sync=True)
    """What `nbkit.widgets.form_gpus.describe_gpus` returns."""
    partitions = traitlets.Dict().tag(sync=True)
    """What `nbkit.widgets.form_partitions.describe_partitions` returns."""
    note = traitlets.Dict().tag(sync=True)
    """The result of the last button: ``text``, ``is_error`` and which, ``of``."""

    def __init__(self, config: ExperimentConfig, launch: Callable[[], str]) -> None:
        form_sections = sections()
        controls = (
            control for section in form_sections for control in section.controls
        )
        self.controls = {control.path: control for control in controls}
        self._launch = launch
        self._came_from = config.slurm.came_from
        # Before anything that may fail: close() ends it.
        self._look = GpuLook(self._show_gpus)
        super().__init__(
            sections=[*map(asdict, form_sections)],
            entered=entered_of(config, self.controls),
            gpus=READING,
            partitions=NOT_ASKED,
            note={"text": "", "is_error": False, "of": ""},
        )
        # Pages, cells, GPUs, partitions and refusals each have a thread.
        self._lock = threading.RLock()
        self._refusals = Refusals(self._show_refused)
        self.check = FormCheck({}, None)
        """Of what is entered now."""
        self._check_and_show()
        self.observe(self._on_entered, "entered")
        self.observe(self._show_check, "gpus")
        self.on_msg(self._on_message)
        self._look.start()
        self._partition_look = PartitionLook(self._show_partitions)
        self._ask_for_partitions()
        # Not waited for: what they are read with takes a second to be imported.
        threading.Thread(
            target=self._list_presets, name="form-presets", daemon=True
        ).start()

    def fill(self, config: ExperimentConfig) -> None:
        """Show a configuration in the controls, in place of what was entered."""
        entered = entered_of(config, self.controls)
        with self._lock:
            self._came_from = config.slurm.came_from
            is_shown = self.entered == entered
            self.entered = entered
            if is_shown:  # no observer is called for an equal value
                self._check_and_show()

    def say(self, text: str, of: str = "launch", *, is_error: bool = False) -> None:
        """Show the result of a button beside it."""
        self.note = {"text": text, "is_error": is_error, "of": of}

    def close(self) -> None:
        """Close the form everywhere it is shown; launched runs continue."""
        self._look.close()
        super().close()

    def _on_entered(self, _: Any) -> None:
        self._check_and_show()
        self._ask_for_partitions()
        if self.note["is_error"]:
            self.say("")

    def _check_and_show(self) -> None:
        # Under one lock: else a verdict about older values could come last.
        with self._lock:
            before = self.check
            self.check = FormCheck.of(self.entered, self.controls, self._came_from)
            if (config := self.check.config) is not None:
                # Until there is an answer: else each key would hide it for a moment.
                self.check = replace(self.check, refused=before.refused)
                self._refusals.ask(config)
            self._show_check()

    def _show_check(self, _: Any = None) -> None:
        with self._lock:
            # No run gets a GPU of a trace: its ranks run on CPUs.
            gpus = [] if self.gpus["replayed"] else self.gpus["gpus"]
            self.checked = self.check.to_dict(self.controls, gpus)

    def _show_refused(self, config: ExperimentConfig, errors: list[NbkitError]) -> None:
        with self._lock:
            if self.check.config is config:
                refused = by_field(errors, self.controls)
                self.check = replace(self.check, refused=refused)
                self._show_check()

    def _show_gpus(self, offer: dict[str, Any]) -> None:
        self.gpus = {**offer, "at": time.time()}
        with self._lock:
            if self.check.config is not None:
                # A folder may be there by now, or a GPU.
                self._refusals.ask(self.check.config)

    def _ask_for_partitions(self) -> None:
        # Only this engine needs a cluster.
        if str(self.entered["engine"]).strip() == "slurm":
            self._partition_look.start()

    def _show_partitions(self, offer: dict[str, Any]) -> None:
        self.partitions = {**offer, "at": time.time()}

    def _list_presets(self) -> None:
        from nbkit.recipes.catalogue import recipe, recipe_names

        presets: list[str] = []
        for name in recipe_names():
            runs = recipe(name).runs
            presets += [name] if len(runs) == 1 else [f"{name}: {run}" for run in runs]
        self.presets = presets

    def _on_message(self, _: Any, message: dict[str, Any], __: Any) -> None:
        """Do what a page asks for, and confirm the request."""
        kind = message["kind"]
        try:
            if kind == "launch":
                # What was typed last may still be on its way by itself.
                self.entered = message["entered"]
                self.say(self._launch())
            elif kind == "preset":
                self._take_preset(message["name"])
            elif kind == "refresh":
                self._look.start()
            elif kind == "partitions":
                self._ask_for_partitions()
        except Exception as error:
            self.say(f"{type(error).__name__}: {error}", kind, is_error=True)
            if not isinstance(error, NbkitError):
                raise
        finally:
            # Not "id": ipykernel takes that for a message's, and keeps it for ever.
            self.send({"kind": "heard", "request": message["request"]})

    def _take_preset(self, preset: str) -> None:
        from nbkit.recipes.catalogue import recipe

        name, _, run = preset.partition(": ")
        chosen_recipe = recipe(name)
        config = chosen_recipe.config(run or None)
        self.fill(config)
        data = ""
        try:
            existing_data(config.data)
        except ConfigError:
            data = f" data={config.data!r} cannot be used on this machine. Set data to "
            data += "the path of the data set."
        self.say(
            f"{chosen_recipe.title}.{data} Differences from the publication: "
            f'nbkit.recipe("{name}").',
            "preset",
        )
