"""Every exception that nbkit raises on purpose, in one tree.

::

    NbkitError
    ├── ConfigError (ValueError)            a value that cannot be used
    │   └── ParameterError                  a notebook parameter that cannot be used
    ├── LaunchError                         a run could not be started
    │   └── DeviceError                     a device is missing, busy or unsupported
    ├── RunError                            an error about an existing run
    │   ├── RunNotFoundError (LookupError)
    │   ├── RunFailedError                  carries the run's cause
    │   ├── NonFiniteError                  NaN or Inf where the run forbids it
    │   └── RunStoppedError                 a run was stopped before it finished
    ├── StoreError (OSError)                a file or folder cannot be read or written
    ├── PageCacheError                      a cold measurement would read from memory
    ├── TelemetryError
    │   └── NvmlUnavailableError            carries the reason
    └── NotEnoughDataError (ValueError)     a statistic needs more observations
        └── DivergedError                   the metric of a run is NaN or infinite

A message has three parts: the value, the limit, and what to do now.
"""

from __future__ import annotations

from nbkit.visible import visible


class NbkitError(Exception):
    """Base of every error that nbkit raises on purpose."""

    def __str__(self) -> str:
        # Many quote text from other users or programs.
        return visible(super().__str__(), lines=True)


class ConfigError(NbkitError, ValueError):
    """A configuration that cannot be used; the text names every bad field.

    Parameters
    ----------
    message
        One line for every bad field.
    fields
        The same lines by field, such as ``loader_config.num_workers``.
    """

    def __init__(self, message: str, fields: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.fields = fields or {}


class ParameterError(ConfigError):
    """A notebook parameter with an unknown name or a value of another type."""


class LaunchError(NbkitError):
    """A run could not be started."""


class DeviceError(LaunchError):
    """A device is missing, held by another run, or not supported by this build."""


class RunError(NbkitError):
    """An error about an existing run."""


class RunNotFoundError(RunError, LookupError):
    """The store has no run, or several, with that id or ending."""


class RunFailedError(RunError):
    """A run failed.

    Parameters
    ----------
    message
        Run id, failing rank (if known), cause and log path.
    cause
        The ``cause`` part of the run's record.
    """

    def __init__(self, message: str, cause: dict[str, object] | None = None) -> None:
        super().__init__(message)
        self.cause = cause or {}


class NonFiniteError(RunError):
    """A loss, gradient or weight is NaN or Inf in a run that forbids it."""


class RunStoppedError(RunError):
    """A run was stopped before it finished."""


class StoreError(NbkitError, OSError):
    """A file or folder, such as a run's, cannot be read or written."""


class PageCacheError(NbkitError):
    """Files of a cold measurement are in the page cache."""


class TelemetryError(NbkitError):
    """The GPUs or the machine cannot be read."""


class NvmlUnavailableError(TelemetryError):
    """NVML cannot be used on this machine.

    Parameters
    ----------
    message
        What failed and what to do about it.
    reason
        Short reason for programs, such as ``"no library"`` or ``"driver not loaded"``.
    """

    def __init__(self, message: str, reason: str = "unknown") -> None:
        super().__init__(message)
        self.reason = reason


class NotEnoughDataError(NbkitError, ValueError):
    """There are too few observations for a statistic."""


class DivergedError(NotEnoughDataError):
    """The metric of a run is NaN or infinite."""
