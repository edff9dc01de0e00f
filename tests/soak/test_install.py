"""What is installed works without the checkout and without Node; and so on Binder."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nbkit.study.sources import questions
from tests.distributions import ROOT, build, checksums
from tests.house.test_repository import files
from tests.server.jupyter import Jupyter
from tests.soak.newcomer import Newcomer
from tests.waiting import wait_until

# PyTorch is downloaded where pip has not kept it.
pytestmark = pytest.mark.timeout(3600)

SMALL = "-p device cpu -p gpus 2 -p steps 4 -p repeats 1"
BINDER_BYTES = 2 * 2**30
"""What a user of mybinder.org gets at the most."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def newcomer(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    """Return somebody who has the wheel, and no PyTorch, Node or checkout."""
    newcomer = Newcomer(tmp_path_factory.mktemp("wheel-user") / "home")
    newcomer.variables["PYTHON"] = sys.executable
    newcomer.succeeds(f"{ROOT}/.ci/smoke {wheel} environment")
    newcomer.succeeds('PATH="$PWD/environment/no-node:$PWD/environment/bin:$PATH"')
    return newcomer


def test_a_server_shows_the_sidebar_and_the_notebooks(newcomer: Newcomer):
    with newcomer.opens("jupyter lab") as server:
        status = server.request("nbkit/api/status").body
        listed = server.request("nbkit/api/notebooks").body["notebooks"]
        served = sidebar(server)

    assert status["version"]
    assert {one["name"] for one in listed} == {
        path.stem for path in ROOT.glob("notebooks/*.ipynb")
    }
    assert "nbkit" in served


def test_an_sdist_becomes_the_same_wheel_in_an_environment_of_its_own(
    newcomer: Newcomer, wheel: Path, tmp_path: Path
):
    sdist = build("sdist", ROOT, tmp_path)

    newcomer.succeeds(f"pip wheel -qq --no-deps --wheel-dir {tmp_path} {sdist}")

    (again,) = tmp_path.glob("*.whl")
    assert without_versions(again) == without_versions(wheel)


def test_the_command_of_a_question_runs_from_any_folder(
    newcomer: Newcomer, wheel: Path
):
    newcomer.succeeds(f'pip install -qq "{wheel}[train]"')
    newcomer.succeeds("mkdir -p elsewhere && cd elsewhere")
    said = newcomer.succeeds("python -m nbkit.study.sources")
    commands = re.findall(r"^command +(papermill .*)$", said, re.MULTILINE)
    (scaling,) = (one for one in commands if re.search(r"\bscaling\b", one))

    newcomer.succeeds(f"{scaling} {SMALL}")
    answer = newcomer.succeeds("python -m nbkit.study.headline out.ipynb")

    assert len(commands) == len(questions())
    assert "2 processes" in answer


def test_binder_builds_and_opens_the_tour_and_it_fits(tmp_path: Path):
    visitor = Newcomer(tmp_path / "home")
    for path in files():
        copy = visitor.home / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    visitor.succeeds(f"{sys.executable} -m venv {tmp_path}/environment")
    visitor.succeeds(f'PATH="{tmp_path}/environment/bin:$PATH"')
    # In the image these are the builds for CPUs, from conda-forge.
    visitor.succeeds("pip install -qq torch torchvision")
    visitor.succeeds("binder/postBuild && pip check")

    with visitor.opens("binder/start jupyter lab") as server:
        page = server.request("lab/tree/notebooks/interactive.ipynb")
        with server.view() as view:
            inventory = view.next("inventory")
        most = execute(visitor, "notebooks/interactive.ipynb")
        rows = server.request("nbkit/api/runs").body["runs"]

    assert page.status == 200
    assert (inventory["source"], len(inventory["gpus"])) == ("replay", 8)
    assert [row["state"] for row in rows].count("finished") == 3
    assert most < BINDER_BYTES


def execute(visitor: Newcomer, notebook: str) -> int:
    """Execute a notebook; return the most memory that all of the visitor's took."""
    log, most = visitor.home / "papermill.log", 0
    with (
        log.open("wb") as written,
        subprocess.Popen(
            [
                "papermill",
                "--no-progress-bar",
                notebook,
                str(visitor.home / "out.ipynb"),
            ],
            cwd=visitor.folder,
            env=visitor.variables,
            stderr=written,
        ) as process,
    ):

        def ended() -> bool:
            nonlocal most
            most = max(most, visitor.memory_bytes())
            return process.poll() is not None

        wait_until(ended, f"the end of {notebook}", limit_seconds=1800)
    assert process.returncode == 0, log.read_text()
    return most


def sidebar(server: Jupyter) -> str:
    """Return what the browser loads first of nbkit's part."""
    page = server.request("lab").body
    (parts,) = re.findall(r'"federated_extensions": (\[.*?\])', page)
    (own,) = (part for part in json.loads(parts) if part["name"] == "nbkit")
    answer = server.request(f"lab/extensions/nbkit/{own['load']}")
    assert answer.status == 200
    return answer.body


def without_versions(wheel: Path) -> dict[str, int]:
    """Return a wheel's checksums but those that name the version of its builder."""
    kept = re.compile(r".*(?<!/WHEEL)(?<!/RECORD)")
    return {
        name: sum_ for name, sum_ in checksums(wheel).items() if kept.fullmatch(name)
    }
