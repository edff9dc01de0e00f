"""What becomes of a node's task: its torchrun, or a refusal that says why."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nbkit.datasets.cache import cache_path
from nbkit.errors import DeviceError, LaunchError
from nbkit.launch.slurm.node import data_folders, node_command
from nbkit.store.paths import RunPaths
from nbkit.store.record import write_json
from nbkit.store.stored_runs import create_run_folder
from nbkit.telemetry.software import software


@pytest.fixture
def make(small, tmp_path, monkeypatch):
    """Return what makes a run of two ranks on each node; this is the second one."""
    variables = {
        "SLURM_NODEID": "1",
        "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1",
        "SLURM_CPUS_ON_NODE": "2",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def making(wanted=None, **slurm):
        paths = create_run_folder(small(engine="slurm", gpus=2, nnodes=2, slurm=slurm))
        here = {"device_type": "cpu", "cpus_per_rank": None, "cwd": str(tmp_path)}
        write_json(paths.submission, {**here, "software": wanted or software()})
        return paths

    return making


def test_node_command(make):
    argv, environment = node_command(make(), 3, "4000")

    expected = {"--nnodes=2", "--nproc-per-node=2", "--node-rank=1"}
    expected |= {"--master-addr=10.0.0.1", "--master-port=4000", "--logs-specs=nbkit"}
    assert expected < set(argv)
    assert argv[-4:-1] == ["-P", "-m", "nbkit.worker"]
    assert environment["OMP_NUM_THREADS"] == "1"


def test_node_command_in_container(make, monkeypatch, tmp_path):
    program = tmp_path / "bin" / "apptainer"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport signal\n"
        "print(*signal.pthread_sigmask(signal.SIG_BLOCK, []))\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))

    paths = make(container="/image.sif")
    argv, environment = node_command(paths, 3, "4000")

    image = argv.index("/image.sif")
    assert argv[:2] == ["apptainer", "exec"]
    assert argv[image + 1 : image + 4] == ["python", "-P", "-m"]
    assert argv[argv.index("--no-python") + 1] == "python"
    assert environment["APPTAINERENV_SLURM_NODEID"] == "1"
    task = [sys.executable, "-m", "nbkit.launch.slurm.node", str(paths.root), "3", "4"]
    told = subprocess.run(task, stdout=subprocess.PIPE, text=True, check=True).stdout
    # SIGTERM waits for the watch of the node.
    assert int(told) == signal.SIGTERM


def test_node_command_refusals(make, monkeypatch, tmp_path):
    with pytest.raises(DeviceError, match="a folder on a shared file system"):
        node_command(RunPaths(tmp_path / "runs" / "absent"), 0, "1")
    with pytest.raises(LaunchError, match=r"^its .* differs .* nbkit .* 0\.0\.1\)\."):
        node_command(make({"nbkit": "0.0.1"}), 3, "4000")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LaunchError, match="neither apptainer nor singularity"):
        node_command(make(container="/image.sif"), 3, "4000")


def test_data_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "scratch"))
    (tmp_path / "own").mkdir()

    (cache,) = data_folders("imagenette")

    assert cache == str(cache_path("imagenette").parent)
    assert cache.startswith(str(tmp_path / "scratch"))
    assert Path(cache).is_dir()
    assert data_folders(str(tmp_path / "own")) == [str(tmp_path / "own")]
    assert data_folders("synthetic") == []
