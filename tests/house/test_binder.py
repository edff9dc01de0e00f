"""What Binder builds an image from, and what it starts in it."""

from __future__ import annotations

import os
import subprocess
import tomllib

import yaml
from packaging.requirements import Requirement

from tests.distributions import ROOT

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


def test_the_sidebar_gets_a_trace_of_eight_gpus():
    said = subprocess.check_output([BINDER / "start", "env"], text=True)

    assert "NBKIT_GPU_SOURCE=replay:eight-gpus\n" in said
