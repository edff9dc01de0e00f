"""What works here, asked of every package; and packages where something does not."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time

import pytest

from nbkit.cli.doctor import doctor, examine, lines_of
from nbkit.cli.main import main
from nbkit.findings import Finding
from nbkit.launch import health as launch_health
from nbkit.readspeed import health as readspeed_health
from nbkit.server import health as server_health
from nbkit.store import health as store_health
from nbkit.store.paths import store_folder
from nbkit.studies import health as study_health
from nbkit.worker.health import DriverGpus, TorchGpus, judge_gpus
from tests.hostile.strangers import STRANGER, needs_root
from tests.slurm_programs import SlurmPrograms
from tests.telemetry.conftest import drive_child, no_setting
from tests.waiting import wait_until

__all__ = ["drive_child", "no_setting"]

H100 = DriverGpus("12.8", ("9.0", "9.0"), ("GPU-a", "GPU-b"))
BUILD = ("sm_75", "sm_80", "sm_90", "compute_90")


@pytest.fixture
def examined():
    """Return what runs the checks of a module as doctor does, by what they look at."""

    def run(module, hangs_when=None):
        limit_seconds = 60.0
        with examine(module) as examination:
            if hangs_when is not None:
                wait_until(hangs_when, f"{module} hangs")
                limit_seconds = 0.0
            found = list(examination.results(time.monotonic() + limit_seconds))
        return {finding.subject: finding for finding in found}

    return run


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return what makes a module of checks from a program, and gives its name."""

    def make(program, name="some_checks"):
        (tmp_path / f"{name}.py").write_text(
            "from nbkit.findings import Finding\n"
            "from nbkit.health import stream\n"
            "def checks():\n"
            "    yield Finding('First', 'ok', 'here')\n"
            f"    {program}\n"
            "stream(checks())\n"
        )
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        monkeypatch.setenv("PYTHONPATH", path)
        return name

    return make


def test_doctor_this_machine(nbkit_command):
    done = nbkit_command("doctor", "--json", "--limit", 280)

    told = json.loads(done.stdout)
    states = {one["subject"]: one["severity"] for one in told["findings"]}
    assert "Checks" not in states, told
    assert {one["part"] for one in told["findings"]} == {
        "This machine", "Training", "Starting runs", "Store", "Images", "JupyterLab"
    }  # fmt: skip
    # What the tests need themselves works here.
    needed = ["PyTorch", "torchvision", "gloo", "Device pool", "Writing"]
    needed += ["Server extension", "Lab extension", "Widgets", "Notebooks"]
    assert {what: states[what] for what in needed} == dict.fromkeys(needed, "ok")
    assert told["works"] == ("error" not in states.values())
    assert done.returncode == (0 if told["works"] else 1)


def test_doctor_check_that_hangs(examined, module, tmp_path):
    sign = tmp_path / "sign"
    name = module(f"import signal; open({str(sign)!r}, 'w').close(); signal.pause()")

    found = examined(name, hangs_when=sign.exists)

    assert set(found) == {"First", "Checks"}
    assert found["Checks"].severity == "error"
    hung = "some_checks does not respond after the check 'First'"
    assert hung in found["Checks"].evidence


def test_doctor_check_that_raises_or_prints(examined, module):
    found = examined(module("raise ValueError('no such thing')"))

    assert set(found) == {"First", "Checks"}
    assert "exit code 1: ValueError: no such thing" in found["Checks"].evidence
    assert set(examined(module("print('Welcome!')"))) == {"First"}
    crash = module("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert examined(crash)["Checks"].severity == "error"


def test_doctor_lines_width():
    long = "something with a good many words that say what was found here, in full"

    lines = lines_of(Finding("Thing", "warning", long, "mend it; " * 12))

    assert lines[0].startswith("warning  Thing")
    assert max(map(len, lines)) <= 80
    assert sum("-> mend it" in line for line in lines) == 1
    named = lines_of(Finding("Partition of a long name", "ok", long))
    assert named[0] == "ok       Partition of a long name"
    assert max(map(len, named)) <= 80


def test_doctor_gpus(examined, drive_child, monkeypatch):
    lost = {"uuid": "GPU-2", "errors": {"*": 15}}
    drive_child({"uuid": "GPU-0"}, {"uuid": "GPU-1"}, lost)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")

    found = examined("nbkit.telemetry.gpu_health")

    assert found["GPUs"].evidence.startswith("2 x NVIDIA H100 80GB HBM3")
    assert found["GPU 2"].severity == "error"
    assert found["Visible GPUs"].evidence.startswith("1 of 3 GPUs")


def test_doctor_driver_hangs(examined, drive_child, tmp_path):
    calls, last = tmp_path / "calls", "nvmlDeviceGetName"
    calls.touch()
    drive_child({"uuid": "GPU-0", "hangs_in": last}, calls_file=str(calls))

    found = examined(
        "nbkit.telemetry.health", hangs_when=lambda: last in calls.read_text()
    )

    assert found["Memory"].severity == "ok"
    assert "does not respond" in found["Checks"].evidence


@pytest.mark.parametrize(
    ("driver", "torch", "found", "remedy"),
    [
        (H100, TorchGpus("2.15", None), "built without CUDA", "pip uninstall torch"),
        (H100, TorchGpus("2.15", "12.9"), "0 of 2 GPUs", "nvidia-fabricmanager"),
        (H100, TorchGpus("2.15", "13.2"), "0 of 2 GPUs", "supports up to 12.8: pip"),
        (H100, TorchGpus("2.15", "12.8", ("GPU-a",), BUILD), "1 of 2", "nvidia-smi"),
        (
            H100,
            TorchGpus("2.15", "12.8", ("GPU-a", "GPU-c"), BUILD),
            *("torch and the driver detect different GPUs", "CUDA_VISIBLE_DEVICES"),
        ),
        (
            H100,
            TorchGpus("2.15", "12.8", words="Error 802: system not yet initialized"),
            *("(Error 802: system not", "start nvidia-fabricmanager"),
        ),
        (
            DriverGpus("12.8", ("7.0",), ("GPU-a",)),
            TorchGpus("2.15", "12.8", ("GPU-a",), BUILD),
            *("no kernels for compute capability 7.0", 'upgrade "torch<2.11" "torchv'),
        ),
        (
            DriverGpus("11.4", ("8.0",), ("GPU-a",), version="470.57.02"),
            TorchGpus("2.15", "13.2"),
            *("0 of 1 GPUs", "install driver 525 or newer"),
        ),
        (
            DriverGpus("12.8", ("3.5",), ("GPU-a",), version="570.86.15"),
            TorchGpus("2.15", "13.2"),
            *("0 of 1 GPUs", "no torch build on the package index has kernels"),
        ),
    ],
)
def test_judge_gpus_failure(monkeypatch, driver, torch, found, remedy):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")

    [result] = judge_gpus(driver, torch)

    assert result.severity == "error"
    assert found in result.evidence
    assert remedy in result.action


@pytest.mark.parametrize(
    ("cuda", "arches", "found"),
    [
        ("12.8", BUILD, "2 of 2, CUDA 12.8"),
        ("12.8", ("sm_90a",), "2 of 2, CUDA 12.8"),
        ("12.9", ("compute_80",), "the driver (CUDA 12.8, same major version)"),
    ],
)
def test_judge_gpus_ok(cuda, arches, found):
    [result] = judge_gpus(H100, TorchGpus("2.15", cuda, ("GPU-b", "GPU-a"), arches))

    assert result.severity == "ok"
    assert result.evidence.endswith(found)
    assert list(judge_gpus(DriverGpus(), TorchGpus("2.15"))) == []


@pytest.mark.parametrize(
    ("store", "checks", "what", "state", "remedy"),
    [
        ("/proc/nbkit", store_health.checks, "Writing", "error", "set NBKIT_HOME"),
        ("/dev/shm/nbkit", readspeed_health.checks, "Store is on", "warning", ""),
    ],
)
def test_doctor_store(monkeypatch, store, checks, what, state, remedy):
    monkeypatch.setenv("NBKIT_HOME", store)

    [result] = [result for result in checks() if result.subject == what]

    assert result.severity == state
    assert remedy in result.action


def test_doctor_leaves_store(tmp_path, monkeypatch):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "store"))

    assert {one.severity for one in store_health.checks()} <= {"ok", "warning"}
    assert list(tmp_path.iterdir()) == []


def test_doctor_store_open_to_others(tmp_path, monkeypatch):
    monkeypatch.delenv("NBKIT_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    store = store_folder()
    store.mkdir(0o755)

    [open_to_others] = [one for one in store_health.checks() if one.subject == "Store"]
    store.chmod(0o700)
    [closed] = [one for one in store_health.checks() if one.subject == "Store"]

    assert (open_to_others.severity, closed.severity) == ("warning", "ok")
    assert f"chmod 700 {store}" in open_to_others.action


@pytest.mark.parametrize(
    ("python", "state"),
    [
        (f"{sys.base_prefix}/bin/python3", "error"),
        ("/nowhere/bin/python", "error"),
        (sys.executable, "ok"),
        ("python", "ok"),
    ],
)
def test_doctor_kernel(tmp_path, monkeypatch, python, state):
    folder = tmp_path / "data" / "kernels" / "python3"
    folder.mkdir(parents=True)
    argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "Python 3", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "data"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("PYTHONPATH")

    [kernel] = [one for one in study_health.checks() if one.subject == "Kernel"]

    assert kernel.severity == state
    if state == "error":
        assert f"starts {python}, where nbkit was not found" in kernel.evidence
        assert kernel.action == f"{sys.executable} -m ipykernel install --user"


def test_doctor_slurm(tmp_path, monkeypatch):
    slurm = SlurmPrograms(tmp_path, monkeypatch)
    _, none = launch_health.checks()
    assert none.severity == "note"
    slurm.tell("sbatch", "slurm 21.08.8")
    slurm.tell("squeue")
    slurm.tell("sinfo", "gpu*|up|infinite|n1|idle|gpu:a100:4|gpu:a100:1|")

    _, version, partition = launch_health.checks()

    assert version.severity == "warning"
    assert partition.evidence.startswith("1 of 1 node idle, GPUs: 3 of 4 a100 free")
    slurm.tell("sinfo", status=1, words="slurm_load_partitions: no contact")
    *_, silent = launch_health.checks()
    assert silent.severity == "warning"
    assert "no contact" in silent.evidence


def test_doctor_jupyter_failures(tmp_path, monkeypatch):
    folder = tmp_path / "jupyter_server_config.d"
    folder.mkdir()
    off = {"ServerApp": {"jpserver_extensions": {"nbkit.server": False}}}
    (folder / "nbkit.json").write_text(json.dumps(off))
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(tmp_path))
    page = tmp_path / "labextensions" / "nbkit"
    page.mkdir(parents=True)
    (page / "package.json").write_text(json.dumps({"name": "nbkit", "version": "9.9"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))

    found = {one.subject: one for one in server_health.checks()}

    assert found["Server extension"].evidence == "disabled"
    assert "enable nbkit.server" in found["Server extension"].action
    assert found["Lab extension"].severity == "error"
    assert found["Lab extension"].evidence.startswith("9.9 in ")


def test_doctor_runs_checks_in_parallel(module, monkeypatch, tmp_path):
    signs = [tmp_path / "a", tmp_path / "b"]
    names = [
        module(f"import signal; open({str(sign)!r}, 'w').close(); signal.pause()", name)
        for sign, name in zip(signs, ("some_checks", "more_checks"), strict=True)
    ]
    monkeypatch.setattr("nbkit.cli.doctor.ROOMS", {"Both": names})

    told = doctor(limit_seconds=0.1)
    found = [next(told)]
    # The first was given up; both still go on until all have been asked.
    wait_until(lambda: all(sign.exists() for sign in signs), "both have begun")
    found += told

    hung = [one.evidence for heading, one in found if one.subject == "Checks"]
    assert [words.partition(" after ")[0] for words in hung] == (
        ["some_checks does not respond", "more_checks does not respond"]
    )
    assert {heading for heading, _ in found} == {"Both"}


def test_doctor_gpus_option(drive_child, capsys):
    drive_child()

    assert main(["doctor", "--gpus", "--limit", "120"]) == 0

    told = capsys.readouterr().out
    assert told.startswith("GPUs\n")
    assert "0 GPUs visible" in told
    assert "Store" not in told


@needs_root
def test_doctor_without_user_name_or_home(monkeypatch):
    monkeypatch.delenv("HOME")
    user = ["unshare", "--user", f"--map-user={STRANGER}", f"--map-group={STRANGER}"]
    told = {}
    for module in ("nbkit.server.health", "nbkit.studies.health"):
        argv = [*user, sys.executable, "-m", module]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        told |= {one["subject"]: one for one in lines}

    assert told["Home folder"]["evidence"] == "this user has no home folder"
    assert told["JupyterLab"]["severity"] == told["Notebooks"]["severity"] == "ok"
