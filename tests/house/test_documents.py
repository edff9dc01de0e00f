"""What the pages say is so: names, links and parameters exist, blocks of code run."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from itertools import pairwise

import nbformat
import pytest
from papermill.inspection import inspect_notebook
from PIL import Image

import nbkit
from nbkit import registry
from nbkit.studies.notebooks import notebooks
from tests.house.documents import ROOT, blocks
from tests.launch.conftest import install_plugins
from tests.notebooks.kernel import running_kernel
from tests.soak.audiences import AUDIENCES, commands_of

PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *ROOT.glob("nbkit/*/*.md"),
        *ROOT.glob("nbkit/*/*/*.md"),
    )
)
# The blocks of CONTRIBUTING.md make a plug-in: test_contributing.py follows them. Those
# of trainers need their packages: tests/soak/test_trainer_pages.py.
WITH_CODE = [
    page
    for page in PAGES
    if blocks((ROOT / page).read_text())
    and page != "CONTRIBUTING.md"
    and "/trainers/" not in page
]
LONG = {"nbkit/launch/README.md", "nbkit/studies/README.md"}
"""What these run takes a minute: tests/soak/test_documents.py does."""

HERE = "device='cpu', oversubscribe=True, tensorboard=False"
SMALL = {
    "batch_size_per_gpu=256, ": "",
    'model="resnet50"': f"model='tiny', image_size=32, batch_size_per_gpu=4, {HERE}",
    "args=(1000,), gpus=8": f"args=(3,), gpus=2, {HERE}",
    "gpus=8": "gpus=1",
    "steps=200": "steps=12",
    'repeats=5,\n    control="NHWC"': (
        'repeats=1,\n    control="NHWC",\n    minutes=0.0001'  # one start of three
    ),
    "repeats=5": "repeats=1",
    'recipe.config(data="/path/to/imagenet", gpus=2)': (
        "recipe.config(data=IMAGES, gpus=1, model='tiny', image_size=32, steps=2, "
        f"epochs=None, batch_size_per_gpu=4, warmup_steps=1, {HERE})"
    ),
    '"/path/to/imagenet"': "IMAGES",
    '"/fast/imagenet-tar"': "IMAGES + '-tar'",
    "epochs=1": "epochs=1, warmup_steps=1",
    'nbkit.attach("k3f9")': "nbkit.runs()[1]",
}
"""By what a page says, what two processors do of it in a moment; from the first on."""

VALIDATED = {
    'engine="slurm"': "no Slurm here: tests/slurm runs these",
    'engine="manual"': "somebody pastes its line: tests/launch/test_manual.py does",
}
"""Blocks with one of these launch nothing: their configuration is made and checked."""

COMPILED = {
    "c.JupyterHub": "a hub's settings: tests/soak/test_slurm_runs.py starts servers so",
    'nbkit.script("train.py")': "tests/studies/test_programs.py runs scripts",
}
"""Blocks with one of these are compiled only."""


def text_of(page):
    return (ROOT / page).read_text()


def resolve(name):
    """Return what a dotted name means: a module, or something inside of one."""
    found = nbkit
    for number, part in enumerate(name.split(".")[1:], start=2):
        if part in getattr(found, "__annotations__", {}):
            return found.__annotations__[part]  # a field without a default
        try:
            found = getattr(found, part)
        except AttributeError:
            found = importlib.import_module(".".join(name.split(".")[:number]))
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_name_of_nbkit_on_a_page_exists(page):
    text = re.sub(r"^```toml\n.*?^```$", "", text_of(page), flags=re.S | re.M)

    names = set(re.findall(r"(?<![\w/.-])nbkit(?:\.[A-Za-z]\w*)+", text))
    for name in sorted(names):
        assert resolve(name) is not None


@pytest.mark.parametrize("page", PAGES)
def test_every_link_to_a_file_leads_there(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file.read_text()), target


def anchors(text):
    """Return the headings' anchors, as the usual renderers make them."""
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES)
def test_every_path_of_the_house_on_a_page_exists(page):
    named = re.findall(
        r"`((?:nbkit|tests|notebooks|labextension)/[\w/.]+)`", text_of(page)
    )

    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_on_a_page_exists(page):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = re.findall(r"(?:`|^)make ([a-z-]+)", text_of(page), re.M)

    assert set(named) <= targets


@pytest.mark.parametrize("page", PAGES)
def test_every_papermill_command_on_a_page_names_parameters_that_there_are(page):
    text = text_of(page).replace("\\\n", " ")
    text = re.sub(r'"\$\(nbkit notebook (\w+)\)"', r"notebooks/\1.ipynb", text)
    for command in re.findall(r"(?:^|`)(papermill notebooks/[^`\n]+)", text, re.M):
        _, notebook, _, *options = shlex.split(command)
        if notebook == "notebooks/smoothing.ipynb":
            continue  # the example of CONTRIBUTING.md, which its own test runs
        declared = inspect_notebook(ROOT / notebook)
        named = {after for before, after in pairwise(options) if before == "-p"}
        assert named <= declared.keys(), command


@pytest.mark.parametrize("audience", AUDIENCES)
def test_readme_has_an_install_line_and_a_command_for_every_audience(audience):
    commands = commands_of(text_of("README.md"), audience)

    make, enter, name, install, *first = commands
    assert make.startswith("python3 -m venv ")
    assert enter.startswith(". ")
    assert name.startswith("export WHEEL=")
    assert re.fullmatch(r'pip install "\$WHEEL\[\w+\]"', install)
    assert first


# README's table of them is made: tests/cli/test_tables.py holds its questions.
@pytest.mark.parametrize("notebook", notebooks())
def test_every_notebook_begins_with_its_subject(notebook):
    first = nbformat.read(nbkit.notebook(notebook), as_version=4).cells[0].source

    assert re.match(r"# [^?\n]+\n", first)


@pytest.fixture
def images(tmp_path):
    """Sixteen pictures of two classes, and as many for evaluation."""
    for split in ("train", "val"):
        for number in range(16):
            folder = tmp_path / "images" / split / f"class {number % 2}"
            folder.mkdir(parents=True, exist_ok=True)
            picture = Image.new("RGB", (48, 40), (number * 15, 90, 200))
            picture.save(folder / f"{number}.jpg")
    return tmp_path / "images"


def test_the_code_on_pages_runs_from_top_to_bottom(images, monkeypatch):
    run_code_of(sorted({*WITH_CODE} - LONG), images, monkeypatch)


def run_code_of(pages, images, monkeypatch):
    """Run the blocks of code of pages in a kernel; what they launch finishes."""
    monkeypatch.setenv("NBKIT_HOME", str(images.parent / "store"))
    monkeypatch.chdir(images.parent)
    install_plugins(monkeypatch)
    with running_kernel() as kernel:
        for page in pages:
            kernel.execute(f"%reset -f\nimport nbkit; IMAGES = {str(images)!r}")
            for block in blocks(text_of(page)):
                if not any(mark in block.text for mark in COMPILED):
                    kernel.execute(small(block.text))
                else:
                    ast.parse(block.text)
        ended = kernel.execute(
            "states = [str(run.wait().state) for run in nbkit.runs()]", "states"
        )
    registry.forget()

    assert set(ended) <= {"finished"}


def small(code):
    """Return a block as two processors can run it: see the tables above."""
    if any(mark in code for mark in VALIDATED):
        return code.replace("nbkit.launch(", "nbkit.ExperimentConfig(")
    for said, done in SMALL.items():
        code = code.replace(said, done)
    return code
