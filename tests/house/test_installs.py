"""No message and no page takes nbkit from a package index, where it is a stranger's."""

from __future__ import annotations

import re
import shlex

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from nbkit.packages import packages_of, pip_install
from tests.house.test_packaging import PROJECT
from tests.house.test_repository import ROOT, files

EXTRAS = ("train", "dali", "dali13", "int8")

BY_NAME = re.compile(
    r"\b(?:pip3?|pipx|uv|conda|mamba)\s(?:[^;|&\n`]*\s)?(?:install|add|download|wheel)"
    r"""\s(?:[^;|&\n`]*[\s"'=])?(?:jupyterlab[-_])?nbkit(?![\w/*-]|\.\w)"""
    r"|nbkit\[[a-z]"
)


def test_installs_never_take_nbkit_by_name():
    by_name, made_elsewhere = [], []
    for path in files():
        name = path.relative_to(ROOT).as_posix()
        # A test may say what it forbids, and an extra names the project itself.
        if name.startswith("tests/") or name == "pyproject.toml":
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if BY_NAME.search(text.replace("\\\n", " ")):
            by_name.append(name)
        is_code = name.startswith("nbkit/") and path.suffix == ".py"
        if is_code and "pip install" in text and name != "nbkit/packages.py":
            made_elsewhere.append(name)

    assert by_name == []
    assert made_elsewhere == [], "nbkit.packages.pip_install makes it"


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_is_what_the_project_declares_for_this_machine(extra):
    declared = map(Requirement, PROJECT["optional-dependencies"][extra])
    here = [one for one in declared if one.marker is None or one.marker.evaluate()]

    assert packages_of(extra) == [canonicalize_name(one.name) for one in here]
    words = shlex.split(pip_install(*packages_of(extra)))[2:]
    assert [one.specifier for one in map(Requirement, words)] == [
        one.specifier for one in here
    ]


def test_pip_install_takes_needed_packages_and_own_versions():
    with pytest.raises(KeyError, match="left-pad"):
        pip_install("left-pad")

    line = pip_install(*packages_of("train"), "torch<2.11", options="--upgrade")
    assert line.startswith("pip install --upgrade ")
    assert '"torch<2.11"' in line
    assert '"torch>=' not in line
