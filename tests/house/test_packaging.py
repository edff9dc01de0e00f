"""What is installed: the wheel, its requirements and its entry points."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import HeaderParser
from importlib.metadata import distribution, version
from pathlib import Path

import pytest

import nbkit

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        # What was built when this was installed is what is tested.
        env={**os.environ, "HATCH_JUPYTER_BUILDER_SKIP_NPM": "1"},
    )
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def text_of(wheel: zipfile.ZipFile, name: str) -> str:
    (path,) = (path for path in wheel.namelist() if path.endswith(name))
    return wheel.read(path).decode()


def requirements(wheel: zipfile.ZipFile) -> list[str]:
    headers = HeaderParser().parsestr(text_of(wheel, ".dist-info/METADATA"))
    return headers.get_all("Requires-Dist") or []


def test_the_version_is_declared_once():
    assert nbkit.__version__ == version("nbkit") == PROJECT["version"]


def test_the_wheel_holds_every_file_of_the_package_and_the_notebooks(
    wheel: zipfile.ZipFile,
):
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "nbkit").rglob("*")
        if path.is_file() and not {"__pycache__", "labextension"} & set(path.parts)
    }
    notebooks = {f"nbkit/notebooks/{path.name}" for path in ROOT.glob("notebooks/*")}

    assert notebooks
    assert package | notebooks <= set(wheel.namelist())
    assert "nbkit/py.typed" in wheel.namelist()


def test_the_wheel_puts_what_jupyter_loads_where_jupyter_looks(
    wheel: zipfile.ZipFile,
):
    built = ROOT / "nbkit/labextension"
    browser = {
        f"share/jupyter/labextensions/nbkit/{path.relative_to(built).as_posix()}"
        for path in built.rglob("*")
        if path.is_file()
    }
    server = "etc/jupyter/jupyter_server_config.d/nbkit.json"

    data = {name.partition(".data/data/")[2] for name in wheel.namelist()}

    assert any(name.endswith(".js") for name in browser)
    assert browser | {server} <= data
    enabled = json.loads(text_of(wheel, server))["ServerApp"]["jpserver_extensions"]
    assert enabled == {"nbkit.server": True}


def test_torch_comes_only_with_the_extras_for_training(wheel: zipfile.ZipFile):
    for requirement in requirements(wheel):
        if re.match(r"(torch|torchvision|tensorboard)\b", requirement):
            assert requirement.endswith(("extra == 'train'", "extra == 'all'"))


def test_torch_is_bounded_below_only(wheel: zipfile.ZipFile):
    bounds = {
        requirement.removeprefix("torch").partition(";")[0].strip()
        for requirement in requirements(wheel)
        if re.match(r"torch\b", requirement)
    }
    (bound,) = bounds
    assert re.fullmatch(r">=[\d.]+", bound)


def test_each_dali_has_its_own_extra_and_is_for_linux(wheel: zipfile.ZipFile):
    extras = {}
    for requirement in requirements(wheel):
        if requirement.startswith("nvidia-dali"):
            assert "sys_platform == 'linux'" in requirement
            extra = requirement.rpartition("extra == ")[2].strip("'")
            extras[extra] = requirement.partition(">=")[0]

    assert extras == {
        "dali": "nvidia-dali-cuda120",
        "dali13": "nvidia-dali-cuda130",
        "all": "nvidia-dali-cuda120",
    }


def test_every_entry_point_leads_to_something_callable():
    program = """
from importlib.metadata import distribution
for entry in distribution("nbkit").entry_points:
    if entry.group.startswith("nbkit.") and not callable(entry.load()):
        raise SystemExit(f"{entry} is not callable")
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_entry_points_that_are_installed_are_those_of_the_project():
    groups = PROJECT["entry-points"]
    own = {"nbkit.engines", "nbkit.loaders", "nbkit.models"}
    assert set(groups) == {*own, "torchrun.logs_specs"}
    for group, expected in groups.items():
        installed = {
            entry.name: entry.value
            for entry in distribution("nbkit").entry_points
            if entry.group == group
        }
        assert installed == expected, "install again: pip install -e ."
