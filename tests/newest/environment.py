"""An environment whose packages are changed, and what is then wrong with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from nbkit.packages import DISTRIBUTION

__all__ = ["CannotInstallError", "Environment", "changes"]


class CannotInstallError(Exception):
    """pip's last words."""


class Environment:
    """An environment for Python that `.ci/setup` has made.

    Parameters
    ----------
    folder
        Of the environment.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.python = folder / "bin/python"

    def versions(self) -> dict[str, str]:
        """Return the version of every package but nbkit's own, by canonical name."""
        named = {canonicalize_name(one.name): one.version for one in self._installed()}
        return {name: named[name] for name in sorted(named) if name != DISTRIBUTION}

    def conflicts(self) -> set[tuple[str, str]]:
        """Return which package lacks which: their names."""
        versions = self.versions()
        found = set()
        for one in self._installed():
            for needed in map(Requirement, one.requires or ()):
                if needed.marker and not needed.marker.evaluate({"extra": ""}):
                    continue
                name = canonicalize_name(needed.name)
                version = versions.get(name)
                if version is None or not needed.specifier.contains(version, True):
                    found.add((canonicalize_name(one.name), name))
        return found

    def install(self, pins: Mapping[str, str | None]) -> None:
        """Install these versions and nothing else; None uninstalls a package.

        Raises
        ------
        CannotInstallError
            If pip cannot.
        """
        wanted = [f"{name}=={version}" for name, version in pins.items() if version]
        if wanted:
            self._pip("install", "--no-deps", *wanted)
        unwanted = [name for name, version in pins.items() if version is None]
        if unwanted:
            self._pip("uninstall", "--yes", *unwanted)

    def freeze(self) -> str:
        """Return what ``pip freeze`` says."""
        return self._pip("freeze", "--all", "--exclude-editable")

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Let `.ci/setup` make the environment again unless this comes to its end."""
        ready, unfinished = self._folder / ".ready", self._folder / ".unfinished"
        ready.rename(unfinished)
        yield
        unfinished.rename(ready)

    def _installed(self) -> Iterator[Distribution]:
        folders = self._folder.glob("lib/python*/site-packages")
        return iter(distributions(path=[str(folder) for folder in folders]))

    def _pip(self, command: str, *arguments: str) -> str:
        # The pip of this process: that of the environment may be what is changed.
        argv = [sys.executable, "-m", "pip", "--python", str(self.python)]
        done = subprocess.run(
            [*argv, "--quiet", "--disable-pip-version-check", command, *arguments],
            # Constraints of the machine may ask for other versions.
            env={**os.environ, "PIP_CONSTRAINT": ""},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise CannotInstallError(done.stderr.strip().rpartition("\n")[2])
        return done.stdout


def changes(
    tested: Mapping[str, str], newest: Mapping[str, str]
) -> dict[str, list[str | None]]:
    """Return both versions of every package whose version is not the tested one.

    Parameters
    ----------
    tested, newest
        Versions by package; one that is only in the first is left out.
    """
    return {
        name: [tested.get(name), version]
        for name, version in newest.items()
        # torch says for which CUDA it was built: 2.14.1+cu130.
        if version.partition("+")[0] != tested.get(name)
    }
