"""`ExperimentForm`: configure an experiment in a notebook and launch it from there."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any

import ipywidgets

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.launch.run import Run
from nbkit.launch.start import launch
from nbkit.widgets.display import has_widgets
from nbkit.widgets.form_check import python_line
from nbkit.widgets.form_panel import FormPanel

__all__ = ["ExperimentForm"]


class ExperimentForm(ipywidgets.VBox):
    """A form for every field of `ExperimentConfig`, with a button that launches it.

    Launching does not occupy the notebook: the run goes on by itself, and its live view
    appears below the form.

    Parameters
    ----------
    config
        What the form shows at first; None shows the defaults.
    on_launch
        Called with each `Run` that was launched.
    **fields
        Fields that take the place of the configuration's.

    Attributes
    ----------
    run
        The `Run` that was launched last; None before.
    runs
        All that were launched, the oldest first.

    Raises
    ------
    ConfigError
        If the configuration that it shall show is not valid.

    Examples
    --------
    >>> form = nbkit.ExperimentForm(model="resnet18", gpus=2)  # doctest: +SKIP
    >>> form  # doctest: +SKIP
    >>> form.run.wait().summary.images_per_second  # doctest: +SKIP
    """

    def __init__(
        self,
        config: ExperimentConfig | None = None,
        *,
        on_launch: Callable[[Run], Any] | None = None,
        **fields: Any,
    ) -> None:
        self.run: Run | None = None
        self.runs: list[Run] = []
        self.on_launch = on_launch
        shown = (config or ExperimentConfig()).replace(**fields)
        self.panel = FormPanel(shown, self._launch_by_button)
        super().__init__([self.panel])

    @property
    def config(self) -> ExperimentConfig:
        """What the form shows now.

        Raises
        ------
        ConfigError
            If something that was entered cannot be used; the text names every bad
            field.
        """
        check = self.panel.check
        if check.config is None:
            raise ConfigError("\n".join(check.errors.values()), check.errors)
        return check.config

    def fill(self, config: ExperimentConfig | None = None, **fields: Any) -> None:
        """Show another configuration.

        Parameters
        ----------
        config
            None keeps what the form shows.
        **fields
            Fields that take the place of the configuration's.

        Raises
        ------
        ConfigError
            If it is not valid; the form stays as it is.
        """
        self.panel.fill((config or self.config).replace(**fields))

    def launch(self) -> Run:
        """Launch what the form shows, as its button does; return at once.

        Raises
        ------
        ConfigError
            If something that was entered cannot be used.
        DeviceError
            If it does not fit the devices of this machine.
        StoreError
            If the store cannot be written.
        """
        config = self.config
        origins = dict.fromkeys(config.model_fields_set, "form")
        self.run = run = launch(config, origins=origins)
        self.runs.append(run)
        self._show(run)
        if self.on_launch is not None:
            self.on_launch(run)
        return run

    def _launch_by_button(self) -> str:
        return f"Launched {self.launch().run_id}."

    def _show(self, run: Run) -> None:
        """Show a run below the form, in the place of the one before."""
        # Here: the view brings charts, which take long to be imported.
        from nbkit.widgets.display import view_of

        self.children = (self.panel, view_of(run))

    def _repr_mimebundle_(self, **options: Any) -> Any:
        # A saved notebook that nobody runs shows the table, not an empty place.
        static = {"text/plain": repr(self), "text/html": self._to_html()}
        if not has_widgets():
            return static
        return {**(super()._repr_mimebundle_(**options) or {}), **static}

    def __repr__(self) -> str:
        return f"<ExperimentForm {python_line(self.panel.check.fields)}>"

    def _to_html(self) -> str:
        """Return the fields that are not at their defaults, or what is wrong."""
        check = self.panel.check
        rows = "".join(
            f"<tr><td>{path}</td><td>{html.escape(str(self.panel.entered[path]))}</td>"
            f"<td>{html.escape(check.errors.get(path, ''))}</td></tr>"
            for path, control in self.panel.controls.items()
            if self.panel.entered[path] != control.default
        )
        caption = "Experiment: fields that are not at their defaults"
        body = rows or "<tr><td>none</td></tr>"
        return f"<table><caption>{caption}</caption><tbody>{body}</tbody></table>"
