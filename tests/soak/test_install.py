"""What is installed works without the checkout and without Node; and so on Binder."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from nbkit.packages import (
    DISTRIBUTION,
    NAMESAKE,
    REINSTALL,
    packages_of,
    pip_install,
)
from nbkit.questions.question import TOUR, Question, notebooks_of_questions
from tests.distributions import ROOT, build, checksums
from tests.house.test_installs import EXTRAS
from tests.house.test_repository import files
from tests.server.jupyter import Jupyter
from tests.soak.newcomer import Newcomer
from tests.waiting import wait_until

# PyTorch is downloaded where pip has not kept it.
pytestmark = pytest.mark.timeout(3600)

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


@pytest.fixture(scope="module")
def user(newcomer: Newcomer, wheel: Path) -> Newcomer:
    """Return the newcomer with everything that trains, away from the checkout."""
    newcomer.succeeds(f'pip install -qq "{wheel}[all]"')
    newcomer.succeeds("mkdir -p elsewhere/local elsewhere/nas && cd elsewhere")
    said = newcomer.succeeds("python -c 'import nbkit; print(nbkit.__file__)'")
    assert str(newcomer.home) in said
    return newcomer


@pytest.mark.parametrize("question", notebooks_of_questions(), ids=lambda one: one.name)
def test_the_command_of_a_question_answers_it_without_the_checkout(
    user: Newcomer, question: Question
):
    printed = user.succeeds("python -m nbkit.questions.sources")
    command = shown(printed, question.name, "command")

    user.succeeds(f"{command} {small(question.name, user.folder)}")

    notebook = nbformat.read(user.folder / "out.ipynb", as_version=4)
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", ())]
    assert not [one for one in outputs if one.output_type == "error"]
    if question is not TOUR:
        assert "Report: " in user.succeeds("python -m nbkit.reports.headline out.ipynb")


def shown(printed: str, notebook: str, column: str) -> str:
    """Return what the list of the questions says of a notebook."""
    (block,) = re.findall(rf"^notebook +{notebook}\n(?:.+\n)+", printed, re.MULTILINE)
    (said,) = re.findall(rf"^{column} +(.+)$", block, re.MULTILINE)
    return said


def small(notebook: str, folder: Path) -> str:
    """Return what makes a notebook's command one for two CPUs and small images.

    Paths of the commands are those of a GPU server: a user puts in their own.
    """
    train = "-p device cpu -p repeats 1"
    tiny = f"{train} -p model resnet20 -p image_size 32"
    own = {
        "scaling": f"{train} -p gpus 2 -p steps 4",
        "precision": f"{tiny} -p steps 4",
        "machines": "",
        "storage": f"-p device cpu -p paths local={folder}/local,nas={folder}/nas",
        "input_pipeline": f"{train} -p gpus 1 -p steps 4 -p trials 2",
        "concurrent_jobs": f"{tiny} -p layout 1,1 -p steps 8",
        "inference": f"{tiny} -p training_steps 4 -p batches 5",
        "chexnet": f"{tiny} -p gpus 2 -p epochs 1 -p data synthetic-multilabel",
        "time_to_accuracy": f"{tiny} -p gpus 1 -p epochs 1 -p data photos "
        "-p batch_size_per_gpu 16 -p estimate_steps 2",
        "interactive": "",
    }
    return own[notebook]


@pytest.fixture(scope="module")
def nobody(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    """Return somebody with an empty environment, beside nbkit's wheel."""
    nobody = Newcomer(tmp_path_factory.mktemp("nobody") / "home")
    nobody.succeeds(f"{sys.executable} -m venv environment")
    nobody.succeeds('PATH="$PWD/environment/bin:$PATH"')
    # One that reads what a package needs without its gigabytes.
    nobody.succeeds("pip install -qq --upgrade pip")
    shutil.copy(wheel, nobody.home)
    return nobody


@pytest.mark.parametrize(
    "line", [REINSTALL, *(pip_install(*packages_of(extra)) for extra in EXTRAS)]
)
def test_a_line_that_nbkit_prints_installs_what_it_means(nobody: Newcomer, line: str):
    tried = "pip install --dry-run --quiet --report report.json"

    nobody.succeeds(line.replace("pip install", tried))

    report = json.loads((nobody.folder / "report.json").read_text())
    taken = {
        canonicalize_name(one["metadata"]["name"]): one["requested"]
        for one in report["install"]
    }
    words = [word for word in shlex.split(line)[2:] if not word.startswith("--")]
    assert {name for name, requested in taken.items() if requested} == {
        DISTRIBUTION
        if word.endswith(".whl")
        else canonicalize_name(Requirement(word).name)
        for word in words
    }
    assert NAMESAKE not in taken


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
