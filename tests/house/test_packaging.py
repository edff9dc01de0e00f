"""What is installed: wheel, sdist and lock, their requirements and entry points."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email.parser import HeaderParser
from importlib.metadata import distribution, version
from pathlib import Path
from typing import get_args

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import nbkit
from nbkit import registry
from nbkit.packages import DISTRIBUTION, newest_tested
from tests.distributions import ROOT, build, checksums

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))


@pytest.fixture(scope="module")
def wheel_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def wheel(wheel_file: Path) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(wheel_file) as opened:
        yield opened


@pytest.fixture(scope="module")
def unpacked_sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build("sdist", ROOT, folder)) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.glob("jupyterlab_nbkit-*/")
    return unpacked


def text_of(wheel: zipfile.ZipFile, name: str) -> str:
    (path,) = (path for path in wheel.namelist() if path.endswith(name))
    return wheel.read(path).decode()


def requirements(wheel: zipfile.ZipFile) -> list[str]:
    headers = HeaderParser().parsestr(text_of(wheel, ".dist-info/METADATA"))
    return headers.get_all("Requires-Dist") or []


def test_the_version_is_declared_once():
    declared = json.loads((ROOT / "labextension/package.json").read_text())["version"]

    assert "version" not in PROJECT
    assert nbkit.__version__ == version(DISTRIBUTION)
    assert Version(nbkit.__version__) == Version(declared)


def test_what_jupyterlab_says_of_uninstalling_names_the_distribution():
    told = json.loads((ROOT / "labextension/install.json").read_text())

    assert PROJECT["name"] == DISTRIBUTION == told["packageName"]
    assert told["uninstallInstructions"].endswith(f"uninstall {DISTRIBUTION}")


def test_the_sdist_makes_the_same_wheel(
    wheel_file: Path, unpacked_sdist: Path, tmp_path: Path
):
    again = build("wheel", unpacked_sdist, tmp_path)

    assert checksums(again) == checksums(wheel_file)
    # Also times and modes, so that anybody can check what was released.
    assert again.read_bytes() == wheel_file.read_bytes()


def test_the_sdist_has_sources_and_no_leftovers(unpacked_sdist: Path):
    tops = {path.name for path in unpacked_sdist.iterdir()}
    folders = {path.name for path in unpacked_sdist.rglob("*") if path.is_dir()}

    assert tops == {
        *("CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"),
        *("labextension", "nbkit", "notebooks"),
        ".ci",  # what was tested
        ".gitignore",  # hatchling reads it again
    }
    assert not folders & {"__pycache__", "node_modules", "lib", ".yarn", "tests"}


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


def test_the_wheel_knows_what_was_tested(wheel: zipfile.ZipFile, tmp_path: Path):
    files = [one for one in wheel.namelist() if one.startswith("nbkit/tested/")]
    files += ["nbkit/__init__.py", "nbkit/packages.py"]
    wheel.extractall(tmp_path, files)
    program = "import json, nbkit.packages as p; print(json.dumps(p.newest_tested()))"

    told = subprocess.check_output([sys.executable, "-c", program], cwd=tmp_path)

    assert json.loads(told) == newest_tested()
    for name in ("constraints.txt", "torch.txt"):
        kept = wheel.read(f"nbkit/tested/{name}")
        assert kept == (ROOT / ".ci" / name).read_bytes()


def test_each_dali_has_its_own_extra_and_is_for_linux(wheel: zipfile.ZipFile):
    extras: dict[str, set[str]] = {}
    for requirement in requirements(wheel):
        if requirement.startswith(("nvidia-dali", "nvidia-nvimgcodec")):
            assert "sys_platform == 'linux'" in requirement
            extra = requirement.rpartition("extra == ")[2].strip("'")
            extras.setdefault(extra, set()).add(Requirement(requirement).name)

    # With the nvImageCodec that it asks for itself.
    assert extras == {
        "dali": {"nvidia-dali-cuda120", "nvidia-nvimgcodec-cu12"},
        "dali13": {"nvidia-dali-cuda130", "nvidia-nvimgcodec-cu13"},
        "all": {"nvidia-dali-cuda120", "nvidia-nvimgcodec-cu12"},
    }


def test_every_entry_point_leads_to_something_callable():
    """Models, loaders and engines can be called as nbkit does it."""
    program = """
from importlib.metadata import distribution
from nbkit import registry
for entry in distribution("jupyterlab-nbkit").entry_points:
    own = entry.group.startswith("nbkit.") or entry.group == "console_scripts"
    loaded = entry.load()
    if own and not callable(getattr(loaded, "plan", loaded)):
        raise SystemExit(f"{entry} is not callable")
    if (kind := entry.group.removeprefix("nbkit.")) in ("models", "loaders", "engines"):
        registry.resolve(kind, entry.name)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_entry_points_that_are_installed_are_those_of_the_project():
    groups = PROJECT["entry-points"]
    own = {f"nbkit.{kind}" for kind in get_args(registry.Kind)}
    of_others = {
        "torchrun.logs_specs",
        "lightning.pytorch.callbacks_factory",
        "pytorch_lightning.callbacks_factory",
    }
    assert set(groups) == own | of_others
    for group, expected in {**groups, "console_scripts": PROJECT["scripts"]}.items():
        installed = {
            entry.name: entry.value
            for entry in distribution(DISTRIBUTION).entry_points
            if entry.group == group
        }
        assert installed == expected, "install again: pip install -e ."


def test_make_clean_leaves_nothing_of_what_is_built(tmp_path: Path):
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    ignored = re.findall(r"^/?([\w./-]+)/$", (ROOT / ".gitignore").read_text(), re.M)
    # The one lies beside code; to one of Jupyter's somebody may want to go back.
    built = set(ignored) - {"__pycache__", ".ipynb_checkpoints"}
    for name in {*built, "tests/__pycache__"}:
        (tmp_path / name).mkdir(parents=True)

    subprocess.run(["make", "--silent", "clean"], cwd=tmp_path, check=True)

    assert "labextension/lib" in built
    assert [name for name in built if (tmp_path / name).exists()] == []


def test_the_lock_allows_what_the_project_asks_for_on_every_python():
    """PyTorch, which depends on the driver, and what it brings lie apart."""
    torch = list(map(Requirement, pins_of("torch.txt")))
    others = list(map(Requirement, pins_of("constraints.txt")))
    apart = set(PYPROJECT["tool"]["uv"]["pip"]["no-emit-package"])
    assert {one.name for one in torch} <= apart
    assert not {one.name for one in others} & apart

    for python in PYTHONS:
        there = {"python_version": python, "python_full_version": f"{python}.9"}
        pins = {
            canonicalize_name(one.name): one.specifier
            for one in (*torch, *others)
            if one.marker is None or one.marker.evaluate(there)
        }
        for asked in (Requirement("pip"), *asked_for()):
            name = canonicalize_name(asked.name)
            assert name in pins, f"{name} on {python}: make lock"
            (pin,) = pins[name]
            assert pin.operator == "=="
            assert asked.specifier.contains(pin.version), f"{asked}: make lock"


def test_the_locks_have_hashes_for_the_versions_of_the_constraints():
    pins = pins_of("constraints.txt")
    everything, binder = pins_of("requirements.lock"), pins_of("binder.lock")

    assert not any(pins.values())
    assert list(everything) == list(pins), "make lock"
    # Where fewer ask for a package, its line may name fewer machines.
    versions = {line.partition(" ;")[0] for line in pins}
    assert {line.partition(" ;")[0] for line in binder} < versions, "make lock"
    for hashes in (*everything.values(), *binder.values()):
        assert hashes
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", one) for one in hashes)


def test_binder_has_a_lock_for_all_that_training_needs_beside_torch():
    there = {canonicalize_name(Requirement(pin).name) for pin in pins_of("binder.lock")}
    train = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["train"]
    asked = {canonicalize_name(Requirement(text).name) for text in train}

    assert asked - there == {"torch", "torchvision"}
    assert not {"nvidia-dali-cuda120", "pyright", "pytest"} & there


def pins_of(name: str) -> dict[str, list[str]]:
    """Return the pins of a file in .ci, and the hashes of each."""
    text = (ROOT / ".ci" / name).read_text().replace("\\\n", "")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    parts = (re.split(r"\s+--hash=", line.strip()) for line in lines)
    return {pin: hashes for pin, *hashes in parts}


def asked_for() -> list[Requirement]:
    """Return what nbkit with its usual extras, and what its tests and checks need."""
    groups, extras = PYPROJECT["dependency-groups"], PROJECT["optional-dependencies"]
    lists = [
        *(PROJECT["dependencies"], extras["train"], extras["dali"]),
        *(groups["test"], groups["check"]),
    ]
    return [Requirement(text) for each in lists for text in each]
