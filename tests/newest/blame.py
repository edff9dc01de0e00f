"""Which of the newer packages makes tests fail: the lock with one of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from tests.newest.environment import CannotInstallError
from tests.newest.result import Trial

__all__ = ["Changeable", "blame"]


class Changeable(Protocol):
    """An environment, as `Environment` is one."""

    def versions(self) -> dict[str, str]:
        """Return the version of every package."""
        ...

    def conflicts(self) -> set[tuple[str, str]]:
        """Return which package lacks which."""
        ...

    def install(self, pins: Mapping[str, str | None]) -> None:
        """Install these versions, or uninstall."""
        ...


def blame(
    changed: Mapping[str, list[str | None]],
    environment: Changeable,
    failing: Callable[[], list[str]],
) -> Iterator[Trial]:
    """Yield what fails with each newer package in an environment of the lock.

    A package that cannot be installed alone is tried with those that it needs, or that
    need it. After each trial the environment is as before.

    Parameters
    ----------
    changed
        The lock's version of each package and the newest.
    environment
        Of the lock.
    failing
        Runs the tests there and returns which fail.
    """
    locked = environment.versions()
    newest = {name: after for name, (_, after) in changed.items()}
    accepted = environment.conflicts()
    tried: set[str] = set()
    for name in changed:
        # Others of its group have been, or it is new, and comes with what needs it.
        if name in tried or locked.get(name) in (None, newest[name]):
            continue
        packages, said = {name}, ""
        try:
            packages, said = _install(name, newest, environment, accepted)
        except CannotInstallError as error:
            said = str(error)
        tried |= packages
        yield Trial(sorted(packages), [] if said else failing(), said)
        _put_back(environment, locked)


def _install(
    name: str,
    newest: Mapping[str, str | None],
    environment: Changeable,
    accepted: set[tuple[str, str]],
) -> tuple[set[str], str]:
    """Install a newer package; return it with its company, and what still conflicts."""
    packages = {name}
    while True:
        environment.install({one: newest[one] for one in sorted(packages)})
        conflicts = environment.conflicts() - accepted
        company = {one for pair in conflicts for one in pair if one in newest}
        if company <= packages:
            said = [f"{one} needs another {other}" for one, other in sorted(conflicts)]
            return packages, "; ".join(said)
        packages |= company


def _put_back(environment: Changeable, locked: Mapping[str, str]) -> None:
    now = environment.versions()
    environment.install(
        {
            name: locked.get(name)
            for name in sorted(now.keys() | locked.keys())
            if now.get(name) != locked.get(name)
        }
    )
