"""`ExperimentForm`: a form in a notebook that configures and launches an experiment."""

from __future__ import annotations

import contextvars
import html
import uuid
from collections.abc import Callable
from typing import Any

import ipywidgets
from IPython.display import display, update_display

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.launch.run import Run
from nbkit.launch.start import launch
from nbkit.widgets.form_check import python_line
from nbkit.widgets.form_panel import FormPanel
from nbkit.widgets.frontend import has_widgets
from nbkit.widgets.picture import NO_LOST_WIDGET
from nbkit.widgets.shown_runs import show_picture, view_of


class ExperimentForm(ipywidgets.VBox):
    """A form with every field of `ExperimentConfig`, and a button that launches a run.

    Launching does not block the notebook: the run continues in the background, and its
    live view appears below the form.

    Parameters
    ----------
    config
        Initial configuration; None shows the defaults.
    on_launch
        Called with each `Run` that was launched.
    **fields
        Fields that override those of ``config``.

    Attributes
    ----------
    run
        The `Run` that was launched last; None before the first launch.
    runs
        All launched runs, the oldest first.

    Raises
    ------
    ConfigError
        If the configuration is not valid.

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
        self.panel = FormPanel(shown, lambda: f"Launched {self.launch().run_id}.")
        self._place: contextvars.Context | None = None
        self._table_id = f"nbkit-form-{uuid.uuid4()}"
        self._table_is_shown = False
        super().__init__([self.panel])
        self.panel.observe(self._update_table, "entered")

    @property
    def config(self) -> ExperimentConfig:
        """The configuration that the form shows now.

        Raises
        ------
        ConfigError
            If an entered value cannot be used; the message names every such field.
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
            None keeps the configuration that the form shows.
        **fields
            Fields that override those of the configuration.

        Raises
        ------
        ConfigError
            If the configuration is not valid; the form does not change.
        """
        self.panel.fill((config or self.config).replace(**fields))

    def launch(self, *, trust: bool = False) -> Run:
        """Launch the shown configuration, as the button does; return immediately.

        Parameters
        ----------
        trust
            Also use Slurm options that other users wrote; see `nbkit.launch`.

        Raises
        ------
        ConfigError
            If an entered value cannot be used.
        DeviceError
            If the configuration does not fit the devices of this machine.
        RunError
            Without ``trust=True``, if other users wrote the run's Slurm options.
        StoreError
            If the store cannot be written.
        """
        config = self.config
        parameter_sources = dict.fromkeys(config.model_fields_set, "form")
        self.run = run = launch(
            config, parameter_sources=parameter_sources, trust=trust
        )
        self.runs.append(run)
        self._show(run)
        if self.on_launch is not None:
            self.on_launch(run)
        return run

    def close(self) -> None:
        """Close the form everywhere it is shown; launched runs continue."""
        # Also called of a form that could not be made, when it is forgotten.
        if self.comm is not None:
            self.panel.close()
        super().close()

    def _show(self, run: Run) -> None:
        """Show a run below the form, in the place of the one before."""
        view = view_of(run)
        self.children = (self.panel, view)
        if self._place is None:
            return
        view.announce()
        # A button's output does not belong to a cell, so no cell would show it. A copy,
        # since a context can be entered only once at a time.
        self._place.copy().run(show_picture, run)

    def _ipython_display_(self) -> None:
        """Show the form, and a table below it: a saved notebook has no form.

        The table is a separate output: a page that knows a widget shows nothing else
        of its output, even if the widget's kernel is gone.
        """
        if self.comm is not None and has_widgets():
            self._place = contextvars.copy_context()
            display(super()._repr_mimebundle_(), raw=True)
        display(self._static(), raw=True, display_id=self._table_id)
        self._table_is_shown = True

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return super()._repr_mimebundle_(**options) if has_widgets() else self._static()

    def _update_table(self, _: Any) -> None:
        if self._table_is_shown:
            update_display(self._static(), display_id=self._table_id, raw=True)

    def _static(self) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._to_html()}

    def __repr__(self) -> str:
        return f"<ExperimentForm {python_line(self.panel.check.fields)}>"

    def _to_html(self) -> str:
        """Return the fields that are not at their defaults, and the call with them."""
        check = self.panel.check
        rows = "".join(
            f"<tr><td>{path}</td><td>{html.escape(str(self.panel.entered[path]))}</td>"
            f"<td>{html.escape(check.errors.get(path, ''))}</td></tr>"
            for path, control in self.panel.controls.items()
            if self.panel.entered[path] != control.default
        )
        call = html.escape(python_line(check.fields))
        return (
            f'{NO_LOST_WIDGET}<div class="nbkf-saved">'
            "<table><caption>Experiment: non-default settings</caption>"
            f"<tbody>{rows or '<tr><td>none</td></tr>'}</tbody></table>"
            f"<p>As Python:</p><pre>{call}</pre></div>"
        )
