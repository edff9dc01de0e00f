"""No message and no page takes nbkit from a package index, where it is a stranger's."""

from __future__ import annotations

import shlex
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from nbkit.packages import DISTRIBUTION, packages_of, pip_install
from tests.house.installs import (
    EXTRAS,
    PACKAGE,
    printed_lines,
    strings,
    takes_nbkit_by_name,
)
from tests.house.test_packaging import PROJECT
from tests.house.test_repository import ROOT, files

# Code of the package is read as strings; a test may say what it forbids.
PAGES = [
    path
    for path in files()
    if not path.is_relative_to(ROOT / "tests")
    and not (path.suffix == ".py" and path.is_relative_to(PACKAGE))
    and path.name != "pyproject.toml"  # an extra names the project itself
]


@pytest.mark.parametrize(
    "code",
    [
        "say('pip install nbkit')",
        """say('run `pip install "nbkit[train]"` first.')""",
        "say('pip install '\n    'nbkit')",
        "say('pip install ' + name + ' nbkit')",
        "say(f'{python} -m pip install --upgrade {NAME}[train]')",
        "say(f'{command} {NAME}')",
        "text = 'pip install torch'\ntext += ' nbkit'",
        "run(['pip', 'install', '--quiet', 'nbkit'])",
        "run((python, '-m', 'pip', 'install', NAME))",
        "say(' '.join(['pip', 'install', 'nbkit>=1']))",
        "say('pip install {}'.format(NAME))",
        "say('pip install %s' % NAME)",
        "say('pip install jupyterlab-nbkit')",
        "say('uv pip install nbkit')",
        "say('conda install -c some nbkit')",
        "say('install nbkit[train].')",
    ],
)
def test_a_command_that_takes_nbkit_by_name_is_found_however_it_is_written(code):
    source = f"NAME = 'nbkit'\ncommand = 'pip install'\n{code}\n"

    assert any(takes_nbkit_by_name(text) for _, text in strings(source))


@pytest.mark.parametrize(
    "code",
    [
        "say('pip install --no-deps jupyterlab_nbkit-*.whl')",
        "say('pip install torch; nbkit doctor')",
        "say('pip uninstall -y nbkit; pip install torch')",
        "say('pip install \"$WHEEL[train]\"')",
        "say('cd nbkit && pip install -e .[all]')",
        "say('`pip install` enables a sidebar of nbkit')",
        "say('pip install --target=/opt/nbkit/site torch')",
        "'''Like pip install nbkit.'''",
    ],
)
def test_a_command_that_takes_something_else_is_left_alone(code):
    assert not any(takes_nbkit_by_name(text) for _, text in strings(code))


def test_no_string_of_nbkit_takes_it_by_name():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in PACKAGE.rglob("*.py")
        for line, text in strings(path.read_text(encoding="utf-8"))
        if takes_nbkit_by_name(text)
    ]
    assert found == []


def test_no_page_program_or_notebook_takes_nbkit_by_name():
    found = []
    for path in PAGES:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        lines = text.replace("\\\n", " ").splitlines()
        found += [f"{path}: {line}" for line in lines if takes_nbkit_by_name(line)]
    assert found == []


def test_commands_that_install_are_made_in_one_place():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in PACKAGE.rglob("*.py")
        if path != PACKAGE / "packages.py"
        for line, text in strings(path.read_text(encoding="utf-8"))
        if "pip install" in text
    ]
    assert found == [], "nbkit.packages.pip_install makes it"


def test_every_line_that_installs_is_of_packages_that_nbkit_needs_or_a_wheel():
    needs = {Requirement(line).name for line in metadata.requires(DISTRIBUTION) or ()}
    known = set(map(canonicalize_name, needs))
    lines = printed_lines()

    assert len(lines) > len(EXTRAS)
    for line, place in lines.items():
        pip, install, *words = shlex.split(line)
        assert (pip, install) == ("pip", "install"), place
        named = [word for word in words if not word.startswith("--")]
        assert named, place
        for word in named:
            is_wheel = word.startswith("jupyterlab_nbkit-") and word.endswith(".whl")
            assert is_wheel or canonicalize_name(Requirement(word).name) in known, place


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_is_what_the_project_declares_for_this_machine(extra):
    declared = map(Requirement, PROJECT["optional-dependencies"][extra])
    here = [one for one in declared if one.marker is None or one.marker.evaluate()]

    assert packages_of(extra) == [canonicalize_name(one.name) for one in here]
    words = shlex.split(pip_install(*packages_of(extra)))[2:]
    assert [one.specifier for one in map(Requirement, words)] == [
        one.specifier for one in here
    ]


def test_a_package_that_nbkit_does_not_need_is_not_advised():
    with pytest.raises(KeyError, match="left-pad"):
        pip_install("left-pad")


def test_versions_of_ones_own_take_the_place_of_nbkits():
    line = pip_install(*packages_of("train"), "torch<2.11", options="--upgrade")

    assert line.startswith("pip install --upgrade ")
    assert '"torch<2.11"' in line
    assert '"torch>=' not in line
