"""What `make` asks pip for, by the driver of the machine; nothing is installed."""

from __future__ import annotations

import os
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from nbkit.telemetry.torch_builds import last_torch

ROOT = Path(__file__).parents[2]

SMI = """#!/bin/sh
case "$*" in
*compute_cap*) [ -n "{capability}" ] || exit 2; echo "{version}, {capability}" ;;
*) echo "{version}" ;;
esac
"""

Done = subprocess.CompletedProcess[str]


@pytest.fixture
def setup(tmp_path: Path) -> Callable[..., Done]:
    """Return what says how an environment would be made below some driver."""

    def run(
        version: str = "", capability: str = "", *options: str, **variables: str
    ) -> Done:
        tools = tmp_path / "bin"
        tools.mkdir(exist_ok=True)
        smi = tools / "nvidia-smi"
        # Without a driver it is there, and fails, as in some images.
        program = SMI.format(version=version, capability=capability)
        smi.write_text(program if version else "#!/bin/sh\nexit 9\n")
        smi.chmod(0o755)
        path = f"{tools}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            [".ci/setup", "--dry-run", *options, tmp_path / "venv", "-e", ".[all]"],
            cwd=ROOT,
            env={**os.environ, "PATH": path, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    return run


@pytest.mark.parametrize(
    ("version", "capability", "asked"),
    [
        ("580.65.06", "9.0", ".[train,dali13] torch"),
        ("535.183.01", "6.1", ".[train,dali] torch<2.8"),
    ],
)
def test_pip_is_asked_for_the_torch_that_runs_with_the_driver(
    setup, version, capability, asked
):
    done = setup(version, capability)

    told, command = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert f"driver {version}" in told
    assert command == f"setup: pip install -e {asked}"


@pytest.mark.parametrize(
    ("branch", "capability", "extra", "torch"),
    [
        (535, (8, 0), "dali", "torch<2.11"),
        (550, (9, 0), "dali", "torch<2.11"),
        (570, (10, 0), "dali", "torch<2.11"),
        (580, (7, 0), "dali", "torch<2.11"),
    ],
)
def test_the_last_torch_that_runs_with_the_driver(branch, capability, extra, torch):
    build = last_torch([capability], branch, "x86_64")

    assert build is not None
    assert (build.dali, build.requirement) == (extra, torch)


def test_a_driver_that_runs_no_torch_stops_it_before_the_download(setup):
    done = setup("470.57.02")

    assert done.returncode == 1
    assert done.stdout == ""
    assert "driver 470.57.02" in done.stderr
    assert "install driver 5" in done.stderr
    assert setup("470.57.02", TORCH="torch").returncode == 0


def test_without_a_gpu_pip_is_asked_as_before(setup, tmp_path):
    assert setup().stdout == "setup: pip install -e .[all]\n"
    # A login node may share the environment of its GPU nodes.
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv/.builds").write_text("torch<2.11 dali\n")

    assert setup().stdout.endswith("pip install -e .[train,dali] torch<2.11\n")


def test_a_lock_comes_first_by_its_hashes_then_torch_then_nbkit_alone(setup):
    hashed = "setup: pip install --require-hashes --no-deps --requirement"
    within = "setup: pip install --constraint .ci/constraints.txt"
    tested = f"{within} --constraint .ci/torch.txt torch torchvision"
    alone = "setup: pip install --no-deps --build-constraint .ci/constraints.txt"

    assert setup("", "", "--lock").stdout.splitlines() == [
        f"{hashed} .ci/requirements.lock",
        tested,
        f"{alone} -e .[all]",
    ]
    told, *commands = setup("580.65.06", "9.0", "--lock").stdout.splitlines()
    assert told == "setup: driver 580.65.06 runs torch dali"
    assert commands[1:] == [tested, f"{alone} -e .[train,dali] torch"]


def test_a_driver_that_does_not_run_the_tested_torch_gets_the_last_that_it_runs(setup):
    told, _, torch, nbkit = setup("535.183.01", "8.0", "--lock").stdout.splitlines()

    assert "driver 535.183.01 runs torch<2.11 dali" in told
    assert torch.endswith("--constraint .ci/constraints.txt torch<2.11 torchvision")
    assert nbkit.endswith("-e .[train,dali] torch<2.11")
    other = setup("580.65.06", "9.0", "--lock", TORCH="torch==2.9.*").stdout
    assert "constraints.txt torch==2.9.* torchvision\n" in other


def asked(*arguments: str) -> str:
    """Return the commands of targets of make."""
    inherited = ("PIP_", "MAKE")
    without = {k: v for k, v in os.environ.items() if not k.startswith(inherited)}
    argv = ["make", "--dry-run", *arguments]
    return subprocess.check_output(argv, cwd=ROOT, env=without, text=True)


def test_an_environment_is_locked_unless_constraints_are_named():
    """Whichever target makes it; an empty one takes the newest."""
    locked = ".ci/setup --lock .venv -e"
    for target in ("run", "test", "lab", "bench"):
        assert locked in asked(target)
    assert locked not in asked("PIP_CONSTRAINT=", "test")
    for target in ("setup-newest", "setup-peers", "setup-lock"):
        assert "--lock" not in asked(target).replace("--group lock", "")
    # Whatever constraints are named: the one has none, the other is what blames.
    for own in ((), ("PIP_CONSTRAINT=other.txt",)):
        newest = "PIP_CONSTRAINT= .ci/setup --upgrade .venv-newest -e"
        assert newest in asked(*own, "setup-newest")
        assert ".ci/setup --lock .venv-blame -e" in asked(*own, "setup-blame")


@pytest.mark.parametrize("target", ["test-newest", "test-lowest"])
def test_tests_with_other_versions_leave_the_usual_environment_alone(target):
    told = asked(target, "TESTS=tests/store")

    assert ".venv " not in told
    assert ".venv/" not in told
    assert told.rstrip().endswith("tests/store")


def test_tests_are_run_with_the_bounds_of_the_project_on_its_oldest_python():
    told = asked("test-lowest", "TESTS=tests/store").replace("\\\n", "")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].removeprefix(">=")

    assert f"--python {oldest} .venv-lowest" in told
    assert "--resolution lowest-direct -e '.[train,dali]' --group test" in told
    # No bound is written down a second time.
    assert "==" not in told
    assert told.rstrip().endswith('-m "not gpu"   tests/store')
