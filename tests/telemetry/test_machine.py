"""What this machine is, and on what a file lies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nbkit.telemetry import machine as machine_module
from nbkit.telemetry import storage as storage_module
from nbkit.telemetry.machine import describe_machine
from nbkit.telemetry.storage import describe_storage, read_mounts
from tests.telemetry.fake_nvml.fake_driver import FakeGpu


def test_a_machine_is_described_in_json(drive):
    drive(FakeGpu("GPU-a"))

    machine = json.loads(json.dumps(describe_machine(), allow_nan=False))

    assert machine["hostname"] == os.uname().nodename
    assert machine["kernel"] == os.uname().release
    assert machine["num_cpus"] == os.cpu_count()
    assert 0 < machine["usable_cpus"] <= machine["num_cpus"]
    assert machine["num_cores"] is None or machine["num_cores"] <= machine["num_cpus"]
    assert machine["memory_total_bytes"] > 2**28
    assert machine["operating_system"]
    assert [gpu["uuid"] for gpu in machine["devices"]] == ["GPU-a"]
    assert machine["driver_version"] == "570.86.15"


@pytest.mark.parametrize(
    ("granted", "usable"),
    [(None, None), (2**63 - 4096, None), (300 * 2**20, 300 * 2**20), (4096, 4096)],
)
def test_usable_memory_is_the_smaller_of_host_and_job(monkeypatch, granted, usable):
    monkeypatch.setattr(machine_module, "smallest_limit", lambda _: granted)

    machine = describe_machine(gpus=False)

    total = machine["memory_total_bytes"]
    assert machine["usable_memory_bytes"] == (usable or total)
    assert total > 300 * 2**20


def test_cores_and_sockets_agree_with_lscpu():
    text = subprocess.run(
        ["lscpu", "--parse=CORE,SOCKET"], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(",") for line in text.splitlines() if not line.startswith("#")]

    machine = describe_machine(gpus=False)

    assert machine["num_sockets"] == len({socket for _, socket in rows})
    assert machine["num_cores"] == len({(core, socket) for core, socket in rows})


def test_without_gpus_the_driver_is_left_alone(drive):
    driver = drive(FakeGpu("GPU-a"))

    assert "devices" not in describe_machine(gpus=False)
    assert not driver.calls


def test_counting_cpus_imports_nothing_heavy():
    code = (
        "import sys; from nbkit.telemetry.cpus import usable_cpus; usable_cpus(); "
        "print({'psutil', 'pynvml', 'pydantic', 'torch'} & sys.modules.keys())"
    )

    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert printed.stdout == "set()\n"


def test_storage_of_a_folder_is_that_of_its_mount(tmp_path):
    storage = describe_storage(tmp_path)

    shown = subprocess.run(
        ["df", "--output=target,fstype,source,size", "-B1", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()[-1]
    target, file_system, _, size = shown.split()
    assert storage["path"] == str(tmp_path.resolve())
    assert storage["mount_point"] == target
    assert storage["file_system"] == file_system
    assert storage["total_bytes"] == int(size)
    assert 0 <= storage["free_bytes"] <= storage["total_bytes"]
    assert storage["options"].startswith(("rw", "ro"))


def test_storage_of_the_kernels_own_files_is_no_disk():
    storage = describe_storage("/proc/self")

    assert (storage["mount_point"], storage["file_system"]) == ("/proc", "proc")
    assert (storage["device_model"], storage["rotational"]) == (None, None)


def test_a_path_to_come_stands_for_the_folder_above_it(tmp_path):
    to_come = describe_storage(tmp_path / "not" / "yet")

    # Somebody may write between the two looks.
    assert to_come == {
        **describe_storage(tmp_path),
        "free_bytes": to_come["free_bytes"],
    }


def test_mounts_may_have_names_in_any_bytes(tmp_path, monkeypatch):
    folder = tmp_path / os.fsdecode(b"my\xff\rdata\xc2\x85")
    folder.mkdir()
    (tmp_path / "proc/self").mkdir(parents=True)
    line = f"36 35 0:52 / {folder} rw - nfs4 filer:/vol1 rw,vers=4.2\n"
    (tmp_path / "proc/self/mountinfo").write_bytes(os.fsencode(line))
    mounts = read_mounts(tmp_path)
    monkeypatch.setattr(storage_module, "read_mounts", lambda: mounts)

    storage = describe_storage(folder)

    assert [mount.mount_point for mount in mounts] == [folder]
    assert storage["file_system"] == "nfs4"
    assert storage["mount_point"] == f"{tmp_path}/my\ufffd\rdata\x85"


def test_mounts_may_have_blanks_and_no_optional_fields(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(
        "36 35 0:52 /data /mnt/my\\040data rw,noatime - nfs4 filer:/vol1 rw,vers=4.2\n"
        "37 35 259:1 / / rw shared:1 master:2 - xfs /dev/nvme0n1p1 rw,noquota\n"
    )

    network, disk = read_mounts(tmp_path)

    assert network.mount_point == Path("/mnt/my data")
    assert (network.file_system, network.source) == ("nfs4", "filer:/vol1")
    assert network.options == "rw,noatime,vers=4.2"
    assert (disk.device_number, disk.source) == ("259:1", "/dev/nvme0n1p1")
