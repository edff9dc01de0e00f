"""Results of the checks of this installation: one form for every package.

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
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Literal, TypeAlias

_PR_SET_PDEATHSIG = 1

State: TypeAlias = Literal["ok", "info", "warning", "failure"]
"""``ok`` works; ``info`` is a fact, such as that there is no GPU; ``warning`` is worse
than it could be, or matters for one purpose only; ``failure`` does not work, and is
needed here.
"""


@dataclass(frozen=True)
class CheckResult:
    """What one check found."""

    what: str
    """What was looked at, in a word or three."""
    state: State
    detail: str
    """What is there, with units; a sentence or less."""
    remedy: str = ""
    """What to do now; empty where there is nothing to do."""


def check(
    what: str, is_ok: bool, detail: str, remedy: str, otherwise: State = "warning"
) -> CheckResult:
    """Return ``ok``, or else the other state with its remedy."""
    if is_ok:
        return CheckResult(what, "ok", detail)
    return CheckResult(what, otherwise, detail, remedy)


def check_package(
    what: str, package: str, missing: str, remedy: str, otherwise: State
) -> CheckResult:
    """Return the version of an installed package, or what it means without it."""
    version = installed(package)
    return check(what, version is not None, version or missing, remedy, otherwise)


def stream(results: Iterable[CheckResult]) -> None:
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
