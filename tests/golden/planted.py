"""A machine to plan on that does not exist, and the images that lie there.

What a plan asks of the machine is answered here, by name, so that it comes out alike
wherever the tests run: the NVML driver, CPUs, memory, and on what a folder lies.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pynvml
import pytest

import nbkit
from nbkit.datasets import pack, packing
from nbkit.studies.parameters import Parameters, check_parameters
from nbkit.telemetry.topology import Cpu
from tests.golden.hosts import Host
from tests.telemetry.fake_nvml.fake_driver import FakeDriver, FakeGpu

__all__ = ["DATA", "LABELS", "Planted", "planted"]

DATA = "/data"
"""What the folder with the images is called wherever a text names it."""

LABELS = ("Cardiomegaly", "Effusion", "Pneumonia", "Hernia")
PATIENTS, TRAIN_IMAGES = 60, 256
_PACKED, _SHARDS = 800, 40
_USUAL_BYTES, _SMALL_BYTES = 110_000, 800
"""Of an image; the first is the mean of ImageNet."""


class Planted:
    """The machine, while it stands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def parameters(self, question: str, chosen: Mapping[str, Any]) -> Parameters:
        """Return the parameters of a notebook of today, some of them chosen."""
        content = json.loads(nbkit.notebook(question).read_text())
        tagged = [cell for cell in content["cells"] if cell["metadata"].get("tags")]
        there = json.loads(self.there(json.dumps(dict(chosen))))
        injected = [f"{name} = {value!r}" for name, value in there.items()]
        cells = ["".join(tagged[0]["source"]), "\n".join(["# Parameters", *injected])]
        return check_parameters(cells, there, question)

    def there(self, text: str) -> str:
        """Return a text that names the folder as it is called here."""
        return text.replace(f"{DATA}/", f"{self.folder}/")

    def back(self, text: str) -> str:
        """Return a text that names the folder as it is called everywhere."""
        return text.replace(str(self.folder), DATA)


@contextmanager
def planted(host: Host, folder: Path) -> Iterator[Planted]:
    """Let plans see a host, and images below a folder."""
    _fill(folder)
    cpus = range(host.cpus)
    each = tuple(Cpu(number, f"{number}", 0, 0, is_usable=True) for number in cpus)
    disk = {
        "path": DATA,
        "mount_point": DATA,
        "file_system": "ext4",
        "source": "/dev/nvme0n1p1",
        "options": None,
        "total_bytes": 1 << 42,
        "free_bytes": 1 << 41,
        "device_model": "Written NVMe",
        "rotational": False,
        "kind": "local",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CUDA_VISIBLE_DEVICES", "NBKIT_GPU_SOURCE", "OMP_NUM_THREADS"):
            patch.delenv(name, raising=False)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        gpus = (
            FakeGpu(host.uuid(n), name=host.gpu or "", memory_bytes=host.gpu_bytes)
            for n in range(host.gpus)
        )
        FakeDriver(gpus).install(pynvml, patch.setattr)
        capability = "pynvml.nvmlDeviceGetCudaComputeCapability"
        patch.setattr(capability, lambda _: host.capability)
        patch.setattr("os.sched_getaffinity", lambda _: set(cpus))
        patch.setattr("nbkit.telemetry.cpus.cpu_quota", lambda _: None)
        patch.setattr(
            "nbkit.questions.concurrent_jobs.planning.read_cpus", lambda: each
        )
        patch.setattr(
            "nbkit.questions.storage.planning.describe_machine",
            lambda **_: host.machine,
        )
        patch.setattr("nbkit.questions.storage.places.describe_place", lambda _: disk)
        yield Planted(folder)


def _fill(folder: Path) -> None:
    """Make the images, unless that has been done."""
    if (folder / "labels.csv").exists():
        return
    usual, first = folder / "usual.jpg", folder / "small.jpg"
    # Nobody decodes them, and what an encoder writes depends on its version.
    usual.write_bytes(bytes(_USUAL_BYTES))
    first.write_bytes(bytes(_SMALL_BYTES))
    for place, count, image in (
        ("nas", 1_600, usual),
        ("local", 1_600, usual),
        ("flat", _PACKED, first),
    ):
        for split, of_split in (("train", count), ("val", 200)):
            for name in ("one", "two"):
                images = folder / place / split / name
                images.mkdir(parents=True)
                for number in range(of_split // 2):
                    (images / f"{number:04}.jpg").hardlink_to(image)
    with pytest.MonkeyPatch.context() as patch:
        # Sizes count in millions of bytes, far above these.
        bound = _SMALL_BYTES * _PACKED / _SHARDS / 1e6
        patch.setattr(packing, "SHARD_MEGABYTES", bound)
        pack(
            folder / "flat", folder / "shards", "tfrecord", on_progress=lambda *_: None
        )
    _write_labels(folder, first)


def _write_labels(folder: Path, first: Path) -> None:
    """Write a table of labels; two evaluation images a patient."""
    rows = [",".join(("file", "split", "patient_id", *LABELS))]
    (folder / "xray").mkdir()
    for number in range(TRAIN_IMAGES + 2 * PATIENTS):
        name = f"xray/{number:03}.jpg"
        (folder / name).hardlink_to(first)
        is_train = number < TRAIN_IMAGES
        split, patient = ("train", number) if is_train else ("val", 1000 + number // 2)
        given = ((number // 2) % 3 == 0, number % 3 == 0, number % 5 == 0, is_train)
        labels = ",".join(str(int(one)) for one in given)
        rows.append(f"{name},{split},p{patient},{labels}")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
