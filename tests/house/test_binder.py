"""What Binder builds an image from, and what it starts in it."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement

from tests.distributions import ROOT
from tests.server.jupyter import jupyter

BINDER = ROOT / "binder"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_environment_has_a_python_and_a_torch_that_nbkit_allows():
    environment = yaml.safe_load((BINDER / "environment.yml").read_text())
    python, pip, *torch = environment["dependencies"]
    train = map(Requirement, PROJECT["optional-dependencies"]["train"])
    allowed = {one.name: one.specifier for one in train}

    assert environment["channels"] == ["conda-forge"]
    version = python.removeprefix("python=")
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]
    assert pip == "pip"
    assert {one.name: one.specifier for one in map(Requirement, torch)} == {
        "pytorch-cpu": allowed["torch"],
        "torchvision": allowed["torchvision"],
    }


def test_nothing_is_there_that_binder_leaves_out_or_cannot_run():
    # A Dockerfile would replace these; beside environment.yml the files of pip, and the
    # one that names a Python, are not read.
    assert {path.name for path in BINDER.iterdir()} == {
        *("environment.yml", "postBuild", "start")
    }
    for name in ("postBuild", "start"):
        assert os.access(BINDER / name, os.X_OK)
        subprocess.run(["bash", "-n", str(BINDER / name)], check=True)


def test_the_sidebar_shows_eight_gpus_and_says_that_they_are_replayed(tmp_path: Path):
    said = subprocess.check_output([BINDER / "start", "env"], text=True)
    variables = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    source = {"NBKIT_GPU_SOURCE": variables["NBKIT_GPU_SOURCE"]}

    with jupyter(tmp_path, variables=source) as server, server.view() as view:
        inventory = view.next("inventory")

    assert (inventory["source"], inventory["replay"]) == ("replay", "eight-gpus")
    assert len(inventory["gpus"]) == 8
