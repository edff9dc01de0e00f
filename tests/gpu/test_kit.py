"""What a kit for a machine without a network has to hold."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from kit import LIMIT_BYTES, REQUIRED, check_python, check_size
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from nbkit.packages import DISTRIBUTION

HERE = Path(__file__).parent

# What the slot's process, its runs and their ranks import, where nothing else is there.
IMPORTS = """
import importlib, json, sys
from importlib.machinery import PathFinder
hidden = set(json.loads(sys.argv[1]))

class Rest(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in hidden else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Rest
for name in ("environment", "table", "right", "holds", "fast", "node", "reference"):
    importlib.import_module(name)
for name in ("launch.supervision.supervisor", "launch.supervision.attempts",
    "launch.supervision.local_ranks",
             "telemetry.sampler", "telemetry.health", "launch.health", "store.health",
             "worker.train", "worker.inference", "worker.allreduce",
             "worker.data.decode", "worker.data.torch_loader", "worker.data.source"):
    importlib.import_module("nbkit." + name)
"""


def test_all_that_is_imported_is_in_the_kit_or_comes_with_torch():
    there = {DISTRIBUTION, *brought_along("torch"), *brought_along("torchvision")}
    there |= set(map(canonicalize_name, REQUIRED))
    declared = {name_of(line) for line in requires(DISTRIBUTION) or []}
    hidden = [
        module
        for module, owners in packages_distributions().items()
        if set(map(canonicalize_name, owners)) <= declared - there
    ]

    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, json.dumps(hidden)],
        cwd=HERE,
        capture_output=True,
        text=True,
    )

    assert {"tornado", "altair", "cloudpickle"} <= set(hidden)
    assert done.returncode == 0, done.stderr


def brought_along(package: str) -> set[str]:
    """Return a package and all that installs with it."""
    found: set[str] = set()
    left = [canonicalize_name(package)]
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        try:
            lines = requires(name) or []
        except PackageNotFoundError:
            continue
        left += [name_of(line) for line in lines if "extra ==" not in line]
    return found


def name_of(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


@pytest.mark.parametrize("version", ["3.10", "3", "python3.12", "/usr/bin/python3"])
def test_a_version_that_nbkit_does_not_run_with_is_refused(version):
    with pytest.raises(ValueError, match=f"PYTHON={version} is no version"):
        check_python(version)


def test_a_kit_that_is_too_large_to_carry_is_refused():
    check_size(LIMIT_BYTES - 1)
    with pytest.raises(ValueError, match="64 MiB, it may have 64"):
        check_size(LIMIT_BYTES)
