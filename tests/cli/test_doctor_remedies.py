"""What doctor advises: for each cause what mends it, and nothing else."""

from __future__ import annotations

import os
import platform
import pwd
import re
import sys
import time
from pathlib import Path

import pynvml
import pytest

import nbkit
from nbkit.cli.doctor import examine
from nbkit.datasets import health as datasets_health
from nbkit.launch import health as launch_health
from nbkit.packages import packages_of, pip_install
from nbkit.readspeed import health as readspeed_health
from nbkit.server import health as server_health
from nbkit.store import health as store_health
from nbkit.telemetry import gpu_health
from nbkit.telemetry import health as telemetry_health
from nbkit.telemetry import machine as telemetry_machine
from nbkit.worker import health as worker_health
from nbkit.worker.health import judge_compiler
from tests.house.documents import section
from tests.telemetry.conftest import drive, no_setting, pci
from tests.telemetry.fake_nvml.fake_driver import FakeDriver, FakeGpu

__all__ = ["drive", "no_setting", "pci"]

ROOT = Path(__file__).parents[2]
MANAGER = "@jupyter-widgets/jupyterlab-manager"


@pytest.fixture
def no_home(monkeypatch):
    """Take the user's home folder away."""

    def unknown(uid):
        raise KeyError(uid)

    for name in ("HOME", "NBKIT_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)


def by_name(findings):
    return {one.subject: one for one in findings}


def test_doctor_page_lines():
    page = (ROOT / "nbkit/cli/README.md").read_text()
    text = section(page, "## Lines of `nbkit doctor`")
    rows = re.findall(r"^\| (`.+?) \| ", text, re.M)
    named = {name for row in rows for name in re.findall(r"`(.+?)`", row)}
    code = "".join(path.read_text() for path in (ROOT / "nbkit").rglob("*.py"))

    unknown = {name for name in named if f'"{name}"' not in code}

    assert {"torch.compile", "Fabric manager", "All-reduce"} <= named
    assert {name for name in unknown if not name.startswith("GPU ")} == set()


def test_remedy_torch_compile(tmp_path, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    assert "python3" in judge_compiler(tmp_path).action
    assert "no Python.h" in judge_compiler(tmp_path).evidence
    (tmp_path / "Python.h").write_text("#error no such thing\n")
    assert "no such thing" in judge_compiler(tmp_path).evidence
    (tmp_path / "Python.h").write_text("int answer(void);\n")
    assert judge_compiler(tmp_path).severity == "ok"

    monkeypatch.setenv("PATH", str(tmp_path))
    finding = judge_compiler(tmp_path)

    assert finding.severity == "warning"
    assert finding.action.startswith("sudo apt-get install -y gcc g++")


def play_driver(drive, monkeypatch, cuda, version):
    """Let one GPU have a driver of these versions."""
    monkeypatch.setattr(FakeDriver, "nvmlSystemGetCudaDriverVersion", lambda _: cuda)
    monkeypatch.setattr(FakeDriver, "nvmlSystemGetDriverVersion", lambda _: version)
    drive(FakeGpu("GPU-a"))


def test_remedy_nvimagecodec(drive, monkeypatch):
    packages = {"cykooz.resizer": "4.0"}
    play_driver(drive, monkeypatch, 13000, "580.65.06")
    monkeypatch.setattr(worker_health, "installed", packages.get)
    monkeypatch.setitem(sys.modules, "torch", None)

    found = by_name(worker_health.checks())

    assert found["nvImageCodec"].evidence.startswith("nvImageCodec not installed")
    command = pip_install(*packages_of("dali13"))
    assert '"nvidia-dali-cuda130<3,>=' in command
    assert found["nvImageCodec"].action == found["DALI"].action == command


def test_remedy_import_errors(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.12 is missing')")
    dali = tmp_path / "nvidia" / "dali"
    dali.mkdir(parents=True)
    (dali.parent / "__init__.py").touch()
    (dali / "__init__.py").write_text("raise ImportError('undefined symbol')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)

    with examine("nbkit.worker.health") as examination:
        found = by_name(examination.results(time.monotonic() + 60))

    again = "pip install --force-reinstall"
    assert found["PyTorch"].action.startswith(f'{again} "torch>=')
    assert '"torchvision>=' in found["PyTorch"].action
    assert found["DALI"].action.startswith(f'{again} "nvidia-dali-cuda120<3,>=')


@pytest.mark.parametrize(
    ("driver", "cuda", "remedy"),
    [
        ((12080, "570.86.15"), 13, "pip uninstall nvidia-dali-cuda130; pip install "),
        ((11040, "470.42.01"), 12, "update the driver, or use another loader"),
    ],
)
def test_remedy_dali_of_driver(drive, monkeypatch, driver, cuda, remedy):
    packages = {f"nvidia-dali-cuda{cuda}0": "2.2"}
    play_driver(drive, monkeypatch, *driver)
    monkeypatch.setattr(worker_health, "installed", packages.get)
    monkeypatch.setitem(sys.modules, "torch", None)

    found = by_name(worker_health.checks())

    assert found["DALI"].action.startswith(remedy)
    assert "nbkit" not in found["DALI"].action


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "warning"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "error"),
    ],
)
def test_remedy_no_driver_in_container(drive, pci, code, state):
    drive(init_error=code)

    finding = by_name(gpu_health.checks())["GPUs"]

    assert finding.severity == state
    assert finding.action.endswith("; until then, runs use CPUs")


def test_remedy_other_system(monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: "Darwin")

    [finding] = telemetry_health.checks()

    assert (finding.severity, finding.evidence) == ("error", "Darwin")
    assert "only show and compare" in finding.action


def test_control_group_limits(drive, monkeypatch):
    drive()
    granted = {"memory": 2**30, "pids": 100}
    for module in (telemetry_health, telemetry_machine):
        monkeypatch.setattr(module, "smallest_limit", granted.get)

    found = by_name(telemetry_health.checks())

    assert found["Memory"].evidence.startswith("1.0 GiB (control group) of ")
    assert found["Processes"].evidence == "100 (control group)"
    assert found["Processes"].severity == "warning"


@pytest.mark.parametrize("below", [".", "runs/of/mine"])
def test_remedy_store_below_file(tmp_path, monkeypatch, below):
    (tmp_path / "file").touch()
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "file" / below))

    [finding] = store_health.checks()

    assert (finding.subject, finding.severity) == ("Store", "error")
    assert finding.evidence == f"{tmp_path / 'file'} is not a folder"


def test_remedy_no_home(no_home):
    [store] = store_health.checks()
    images = by_name(datasets_health.checks())["Built-in images"]

    assert store.severity == "error"
    assert "Set NBKIT_HOME" in store.action
    assert "Store is on" not in by_name(readspeed_health.checks())
    assert images.severity == "warning"
    assert "set XDG_CACHE_HOME" in images.action


def test_remedy_pool_on_network(tmp_path, monkeypatch):
    monkeypatch.setenv("NBKIT_POOL", str(tmp_path / "pool"))
    storage = {"file_system": "nfs4"}
    monkeypatch.setattr("nbkit.launch.local.describe_storage", lambda path: storage)

    finding = by_name(launch_health.checks())["Device pool"]

    assert finding.severity == "error"
    assert "shared file system (nfs4)" in finding.evidence


def test_remedy_widgets(tmp_path, monkeypatch):
    pages = {MANAGER: {"version": "5.0"}}
    told = "jupyterlab_server.config"
    monkeypatch.setattr(f"{told}.get_federated_extensions", lambda paths: pages)
    off = {"disabledExtensions": {MANAGER: True}}
    monkeypatch.setattr(f"{told}.get_page_config", lambda paths: off)

    remedies = [
        one.action for one in server_health.checks() if one.subject == "Widgets"
    ]

    assert remedies == [
        f"{pip_install('anywidget')}, then reload the page",
        f"jupyter labextension enable {MANAGER}, then reload the page",
    ]


def test_remedy_other_nbkit(tmp_path, monkeypatch):
    def here():
        return next(one for one in telemetry_health.checks() if one.subject == "nbkit")

    assert here().severity == "ok"
    other = tmp_path / "nbkit-0.0.10.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Name: nbkit\nVersion: 0.0.10\n")
    monkeypatch.syspath_prepend(tmp_path)

    finding = here()

    assert finding.severity == "error"
    assert finding.evidence.startswith(f"{nbkit.__version__}; ")
    assert "nbkit (0.0.10), an unrelated" in finding.evidence
    # What both have written goes with it, so nbkit comes again, from its wheel.
    first, second = finding.action.split("; ")
    assert first == "pip uninstall -y nbkit"
    assert second.endswith("jupyterlab_nbkit-*.whl")
