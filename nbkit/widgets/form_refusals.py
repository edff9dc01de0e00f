"""Reasons why a launch would be refused although every field is valid."""

from __future__ import annotations

import re
import threading
import traceback
from collections.abc import Callable, Mapping

from nbkit.config import ExperimentConfig
from nbkit.errors import NbkitError
from nbkit.launch.code.trust import permit_configurations
from nbkit.launch.submit import refusals
from nbkit.widgets.form_fields import Control

_FIELD = re.compile(r"(\w+(?:\.\w+)*)[=:]")
"""The field that a refusal is of: its text begins with it."""


class Refusals:
    """Asks in a separate thread: a driver or a file server may hang.

    Only the newest configuration that was entered since then is asked next.
    """

    def __init__(
        self, show: Callable[[ExperimentConfig, list[NbkitError]], None]
    ) -> None:
        self._show = show
        self._lock = threading.Lock()
        self._next: ExperimentConfig | None = None
        self._under_way: threading.Thread | None = None

    def ask(self, config: ExperimentConfig) -> None:
        """Ask about a configuration, in the place of one that waits to be asked."""
        with self._lock:
            self._next = config
            if self._under_way is None:
                self._under_way = threading.Thread(
                    target=self._ask_all, name="form-refusals", daemon=True
                )
                self._under_way.start()

    def _ask_all(self) -> None:
        while True:
            with self._lock:
                config, self._next = self._next, None
                if config is None:
                    self._under_way = None
                    return
            try:
                errors = [*refusals(config)]
                try:
                    permit_configurations([config], trust=False)
                except NbkitError as error:
                    errors.append(error)
            except Exception as error:  # noqa: BLE001 - the form shows it
                what = traceback.format_exception_only(error)[-1].strip()
                errors = [NbkitError(f"Could not check the launch: {what}")]
            self._show(config, errors)


def by_field(
    refused: list[NbkitError], controls: Mapping[str, Control]
) -> dict[str, str]:
    """Return the sentences of refusals by their field's path; "" has the others."""
    lines: dict[str, list[str]] = {}
    for error in refused:
        text = str(error)
        named = _FIELD.match(text)
        path = named[1] if named and named[1] in controls else ""
        lines.setdefault(path, []).append(text)
    return {path: "\n".join(texts) for path, texts in lines.items()}
