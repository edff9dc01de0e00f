"""Provenance of a run: code, environment, machine and storage."""

from __future__ import annotations

import os
import platform
import queue
import re
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.datasets.cache import NAMED, cache_path
from nbkit.launch.code.variables import is_recorded, rank_variables
from nbkit.packages import DISTRIBUTION
from nbkit.store.ownership import make_folder, write_file
from nbkit.store.paths import RunPaths, runs_folder
from nbkit.store.redaction import redacted
from nbkit.telemetry.machine import describe_machine
from nbkit.telemetry.storage import describe_storage

_DIFF = (
    *("-c", "diff.relative=false"),  # git below 2.28 has no --no-relative
    *("-c", "diff.autoRefreshIndex=false"),  # else it locks the user's index
    *("diff", "HEAD", "--binary", "--unified=3", "--no-color", "--submodule=short"),
    *("--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/"),
)
"""A patch of the whole checkout that can be applied, whatever the user has configured
for reading diffs."""
_UNTRACKED = (
    *("ls-files", "--others", "--exclude-standard", "--exclude=__pycache__"),
    *("--full-name", ":/"),
)
"""In the whole checkout. What Python itself writes is no code of the user."""


class ProvenanceThread(threading.Thread):
    """Describes code, environment, machine and storage, and holds up no run for it."""

    def __init__(self, config: ExperimentConfig, paths: RunPaths, cwd: Path) -> None:
        super().__init__(daemon=True)
        self._descriptions: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._parts: dict[str, Callable[[], Any]] = {
            "code": lambda: describe_code(cwd, paths),
            "environment": lambda: describe_environment(
                paths, rank_variables(config, paths)
            ),
            # GPUs are described by the sampler: a hung driver stops only that.
            "machine": lambda: describe_machine(gpus=False),
        }
        if config.data != "synthetic":
            # What has a name is in the cache, or will be there in a moment.
            named = config.data in NAMED
            path = cache_path(config.data) if named else config.data
            self._parts["storage"] = lambda: describe_storage(path)

    def run(self) -> None:
        """Describe one part after the other; a part that fails stays unknown."""
        for name, describe in self._parts.items():
            try:
                self._descriptions.put((name, describe()))
            except Exception:  # noqa: BLE001 - the run continues with an unknown
                traceback.print_exc()

    def finish(self, timeout_seconds: float) -> None:
        """Wait a moment for what is not described yet, if anything was begun."""
        if self.is_alive():
            self.join(timeout_seconds)

    def take(self) -> dict[str, Any]:
        """Return the parts that were described since the last call."""
        descriptions: dict[str, Any] = {}
        while not self._descriptions.empty():
            name, description = self._descriptions.get()
            descriptions[name] = description
        return descriptions


def describe_code(cwd: Path, paths: RunPaths) -> dict[str, Any]:
    """Return the commit of the working folder, and keep its uncommitted diff."""
    names = ("commit", "branch", "remote", "dirty", "diff", "untracked")
    commit = _git(cwd, "rev-parse", "HEAD")
    if commit is None:
        return dict.fromkeys(names)
    diff = _git_bytes(cwd, *_DIFF)
    untracked = _git(cwd, *_UNTRACKED)
    if diff:
        make_folder(paths.code, paths.root)
        write_file(paths.code / "diff.patch", diff)
    elif diff is not None:
        # An earlier attempt may have had one.
        (paths.code / "diff.patch").unlink(missing_ok=True)
    remote = _git(cwd, "remote", "get-url", "origin")
    return {
        "commit": commit,
        "branch": _git(cwd, "rev-parse", "--abbrev-ref", "HEAD"),
        # A remote's address may carry a password, which may have an @ itself.
        "remote": redacted(re.sub(r"//[^/]*@", "//", remote)) if remote else None,
        "dirty": None if diff is None else bool(diff or untracked),
        "diff": "code/diff.patch" if diff else None,
        "untracked": None if untracked is None else len(untracked.splitlines()),
    }


def describe_environment(
    paths: RunPaths, variables: Mapping[str, str]
) -> dict[str, Any]:
    """Return interpreter, packages and those variables of ranks that change results."""
    packages: dict[str, str] = {}
    for dist in metadata.distributions():
        # The first one found is the one that is imported.
        packages.setdefault((dist.metadata["Name"] or "").lower(), dist.version)
    make_folder(paths.code, paths.root)
    lines = [f"{name}=={packages[name]}" for name in sorted(packages) if name]
    write_file(paths.code / "packages.txt", ("\n".join(lines) + "\n").encode())
    shown = [
        "torch",
        "torchvision",
        "numpy",
        "pillow",
        "nvidia-dali-cuda120",
        "nvidia-dali-cuda130",
        "nvidia-nvimgcodec-cu12",
        "nvidia-nvimgcodec-cu13",
    ]
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "packages": {
            "nbkit": packages.get(DISTRIBUTION),
            **{name: packages.get(name) for name in shown},
        },
        "variables": {
            name: redacted(value)
            for name, value in sorted(variables.items())
            if is_recorded(name)
        },
    }


def _git(cwd: Path, *arguments: str) -> str | None:
    """Return what git says as text; None if it says nothing in time."""
    output = _git_bytes(cwd, *arguments)
    return None if output is None else output.decode(errors="replace").strip("\n")


def _git_bytes(cwd: Path, *arguments: str) -> bytes | None:
    try:
        done = subprocess.run(
            ["git", "-c", "core.quotepath=off", *arguments],
            cwd=cwd,
            # A run's folder is not part of a checkout around the store.
            env={**os.environ, "GIT_CEILING_DIRECTORIES": str(runs_folder())},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
