"""Checks of this installation, for `nbkit doctor`.

Each package's checks are in ``nbkit/<package>/health.py``, a function ``checks``. They
are run as a separate process (``python -m nbkit.telemetry.health``), since a driver, a
file server or an import may hang: then only that process is given up, and the results
before it are kept. `nbkit.cli.doctor` runs them all.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from importlib import metadata

from nbkit.findings import Finding, Severity

_PR_SET_PDEATHSIG = 1


def check(
    subject: str, ok: bool, evidence: str, action: str, otherwise: Severity = "warning"
) -> Finding:
    """Return ``ok``, or else the other severity with its action."""
    if ok:
        return Finding(subject, "ok", evidence)
    return Finding(subject, otherwise, evidence, action)


def check_package(
    subject: str, package: str, missing: str, action: str, otherwise: Severity
) -> Finding:
    """Return the version of an installed package, or what it means without it."""
    version = installed(package)
    return check(subject, version is not None, version or missing, action, otherwise)


def stream(results: Iterable[Finding]) -> None:
    """Write each result as a line of JSON to standard output as soon as it is there.

    What a check itself prints goes to standard error instead: libraries greet. It ends
    with the process that started it.
    """
    end_with_parent()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as output:
        os.dup2(2, 1)
        for result in results:
            output.write(json.dumps(asdict(result)) + "\n")
            output.flush()


def end_with_parent() -> None:
    """Let the kernel end this process when its parent has ended, by whatever."""
    # Linux alone has it: https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html
    with suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def installed(package: str) -> str | None:
    """Return the version of an installed package; None without it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
