"""The rules of tests/conftest.py hold: a test that breaks one does not pass."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TESTS = """
import os, subprocess, sys, threading, time
import pytest

FOREVER = [sys.executable, "-c", "import signal; print(flush=True); signal.pause()"]

def test_clean():
    subprocess.run([sys.executable, "-c", ""], check=True)

def test_child():
    test_child.process = subprocess.Popen(FOREVER)

def test_detached_process():
    said, says = os.pipe()
    argv = ["/bin/sh", "-c", '"$@" &', "sh", *FOREVER]
    subprocess.run(argv, start_new_session=True, stdout=says)
    # While it becomes another program, it has no variables that tell whose it is.
    os.read(said, 1)

def test_zombie():
    test_zombie.process = process = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

def test_thread():
    threading.Thread(target=threading.Event().wait, daemon=True, name="lazy").start()

def test_variable():
    os.environ["LEFT_BEHIND"] = "1"

def test_skipped():
    pytest.skip("no reason")

@pytest.mark.gpu
def test_gpu():
    pytest.skip("no GPU")
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run the tests above under the rules, as in CI; return what is said of each."""
    folder = tmp_path_factory.mktemp("rules")
    rules = (ROOT / "tests/conftest.py").read_text()
    impatient = rules.replace("GRACE_SECONDS = 30.0", "GRACE_SECONDS = 0.1")
    assert impatient != rules
    (folder / "conftest.py").write_text(impatient)
    (folder / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    (folder / "test_bad.py").write_text(TESTS)
    subprocess.run(
        [sys.executable, "-m", "pytest", "--junitxml=report.xml", "test_bad.py"],
        cwd=folder,
        env={**os.environ, "CI": "true"},
        stdout=subprocess.DEVNULL,
    )
    return {
        case.get("name", ""): " ".join(
            f"{part.tag}: {part.get('message')} {part.text}" for part in case
        )
        for case in ElementTree.parse(folder / "report.xml").iter("testcase")
    }


def test_a_clean_test_passes(outcomes: dict[str, str]):
    assert outcomes["test_clean"] == ""


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("test_child", "left behind: process"),
        ("test_detached_process", "left behind: process"),
        ("test_zombie", "left behind: zombie"),
        ("test_thread", "left behind: thread 'lazy'"),
        ("test_variable", "left behind: environment variable LEFT_BEHIND"),
    ],
)
def test_what_is_left_behind_is_an_error(
    outcomes: dict[str, str], test: str, said: str
):
    assert outcomes[test].startswith("error:")
    assert said in outcomes[test]


def test_temporary_files_lie_in_a_folder_of_this_process():
    worker = os.environ.get("PYTEST_XDIST_WORKER", "nbkit-tests")
    assert tempfile.gettempdir() == os.environ["TMPDIR"]
    assert Path(tempfile.gettempdir()).name.startswith(f"{worker}-")


def test_a_skip_is_a_failure_in_ci(outcomes: dict[str, str]):
    assert outcomes["test_skipped"].startswith("failure:")
    assert "no reason" in outcomes["test_skipped"]


def test_a_missing_gpu_may_be_skipped_in_ci(outcomes: dict[str, str]):
    assert outcomes["test_gpu"].startswith("skipped:")
