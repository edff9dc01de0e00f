"""Requirements of nbkit, and the command that installs them.

Its distribution is not called nbkit: on the package index that is another project. So
no command that is shown names nbkit: it names the packages that are missing, or the
wheel.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement


DISTRIBUTION = "jupyterlab-nbkit"
NAMESAKE = "nbkit"
"""Another project's distribution on the package index."""
REINSTALL = "pip install --force-reinstall --no-deps jupyterlab_nbkit-*.whl"
"""Installs nbkit again. It names a file, so pip never asks the package index for it."""

_PACKAGE = Path(__file__).parent
_LOCK = ("constraints.txt", "torch.txt")
"""The versions that are tested: all but PyTorch's, and PyTorch's."""


def version() -> str:
    """Return the version of nbkit."""
    return metadata.version(DISTRIBUTION)


def not_installed() -> str:
    """Return what to say where nbkit is imported without its entry points."""
    source = _PACKAGE.parent
    is_checkout = (source / "pyproject.toml").exists()
    remedy = f"pip install -e {source}" if is_checkout else REINSTALL
    return (
        f"nbkit is on the import path ({source}), but not installed, so its models, "
        f"loaders and engines are not registered. Run {remedy}."
    )


def packages_of(extra: str) -> list[str]:
    """Return the packages that an extra of nbkit brings on this machine."""
    return [
        requirement.name
        for requirement in _requirements()
        if requirement.marker is not None and _applies(requirement, extra)
    ]


def pip_install(*packages: str, options: str = "") -> str:
    """Return a command for a shell that installs packages."""
    from packaging.requirements import Requirement

    asked = {
        requirement.name: f"{requirement.name}{requirement.specifier}"
        for requirement in _requirements()
    }
    chosen: dict[str, str] = {}
    for package in packages:
        wanted = Requirement(package)
        ours = asked[wanted.name]
        chosen[wanted.name] = package if wanted.specifier else ours
    quoted = (f'"{requirement}"' for requirement in chosen.values())
    return " ".join(filter(None, ["pip install", options, *quoted]))


def newest_tested() -> dict[str, str]:
    """Return the newest version of each package that was tested on such a machine."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    # In the wheel, or in the checkout.
    folder = _PACKAGE / "tested"
    folder = folder if folder.exists() else _PACKAGE.parent / ".ci"
    texts = [(folder / file).read_text(encoding="utf-8") for file in _LOCK]
    lines = "".join(texts).splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    return {
        canonicalize_name(pin.name): specifier.version
        for pin in pins
        for specifier in pin.specifier
        if _applies(pin)
    }


def needed() -> set[str]:
    """Return the names of all that nbkit needs, with any extra, and what that needs."""
    from packaging.requirements import InvalidRequirement
    from packaging.utils import canonicalize_name

    extras = metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or []
    waiting = [(DISTRIBUTION, extra) for extra in ("", *extras)]
    required: set[tuple[str, str]] = set()
    while waiting:
        package, extra = asked = waiting.pop()
        if asked in required:
            continue
        required.add(asked)
        # What is not installed needs nothing here; others' metadata may be odd.
        with suppress(metadata.PackageNotFoundError, InvalidRequirement):
            for requirement in _requirements(package):
                if _applies(requirement, extra):
                    name = canonicalize_name(requirement.name)
                    waiting += [(name, each) for each in ("", *requirement.extras)]
    return {package for package, _ in required} - {DISTRIBUTION}


def newer_than_tested(versions: Mapping[str, str]) -> dict[str, str]:
    """Return the version here of what nbkit needs where it is newer than the given."""
    from packaging.version import InvalidVersion, Version

    newer = {}
    for package in sorted(needed() & versions.keys()):
        with suppress(metadata.PackageNotFoundError, InvalidVersion):
            # 2.14.1+cu130 is a build of 2.14.1.
            here = Version(str(metadata.version(package))).public
            if Version(here) > Version(versions[package]):
                newer[package] = here
    return newer


def _requirements(package: str = DISTRIBUTION) -> list[Requirement]:
    """Return what the metadata of a distribution says that it needs."""
    from packaging.requirements import Requirement

    return [Requirement(line) for line in metadata.requires(package) or ()]


def _applies(requirement: Requirement, extra: str = "") -> bool:
    marker = requirement.marker
    return marker is None or marker.evaluate({"extra": extra})
