"""Image files as people have them, the whole product: files, loaders, formats, crops.

``pytest -s`` prints the two tables. What is right is in tests/datasets/odd_files.py.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.datasets import pack
from nbkit.worker import data
from nbkit.worker.data import Placement
from tests.datasets.odd_files import odd_files
from tests.worker.images import CPU, DEVIATION, manifest_of, picture

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning:PIL"),
    pytest.mark.timeout(3600),
]

BATCH = 16
LOADERS = ("naive", "torch", "dali")
FORMATS = (None, "webdataset", "recordio", "tfrecord")
SIDES = (33, 48, 96, 224)
SEEDS = (0, 1, 2)
# Of the dali loader; the others pass these over.
ROI_DECODE = (True, False)
LARGEST_ERROR_LEVELS = 2
MOST_MORE_BYTES = 2**30
ODD = odd_files()
UNREADABLE = [name for name, odd in ODD.items() if odd.reason]


def write(folder: Path, files: dict[str, bytes]) -> Path:
    """Write files among the images of two classes, for training and evaluation."""
    for split in ("train", "val"):
        for label in ("a", "b"):
            (folder / split / label).mkdir(parents=True)
            for number in range(BATCH):
                picture(number).save(folder / split / label / f"{number}.png")
        for name, content in files.items():
            (folder / split / "a" / name).write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def odd_folder(tmp_path_factory):
    files = {
        f"odd{number:03}{odd.suffix}": odd.data
        for number, odd in enumerate(ODD.values())
    }
    return write(tmp_path_factory.mktemp("odd") / "files", files)


@pytest.mark.parametrize("format", FORMATS)
def test_every_loader_shows_the_crops_of_the_naive_one(odd_folder, tmp_path, format):
    source = odd_folder
    if format is not None:
        source = tmp_path / "packed"
        pack(odd_folder, source, format, on_progress=lambda *_: None)
    manifest = manifest_of(source, tmp_path)

    for side, seed in itertools.product(SIDES, SEEDS):
        expected = crops(manifest, "naive", side, seed)
        for loader, roi_decode in (
            ("torch", None),
            *(("dali", it) for it in ROI_DECODE),
        ):
            found = crops(manifest, loader, side, seed, roi_decode)
            error = (found - expected).abs()
            if loader == "dali":  # counts the border more, see its documentation
                error = error[:, :, 1:-1, 1:-1]
            of_image = error.amax((1, 2, 3))
            above = int((of_image > LARGEST_ERROR_LEVELS + 0.5).sum())
            print(
                f"{format or 'folder'}, {side} px, seed {seed}, {loader}"
                f"{'' if roi_decode is None else f', roi_decode={roi_decode}'}: "
                f"{len(of_image)} images, largest {of_image.max():.1f} levels, "
                f"{above} above {LARGEST_ERROR_LEVELS}"
            )
            assert above == 0


def crops(manifest, loader, side, seed, roi_decode=None) -> torch.Tensor:
    """Return what an epoch shows, in levels: the random crops of the training."""
    settings = {} if roi_decode is None else {"dali": {"roi_decode": roi_decode}}
    config = ExperimentConfig(
        data=str(manifest.root),
        image_size=side,
        loader=loader,
        seed=seed,
        loader_config={"num_workers": 2, **settings},
    )
    one = data.load(config, manifest, Placement(CPU, 0, 1), BATCH)
    with contextlib.closing(one):
        images = [images.clone() for images, _ in one.train_batches(0)]
    return torch.cat(images) * DEVIATION * 255


@pytest.mark.parametrize("loader", LOADERS)
def test_a_run_over_odd_files_reads_or_names_each_in_the_memory_of_a_clean_one(
    odd_folder, tmp_path, monkeypatch, loader
):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "store"))
    whole = (odd_folder / "train" / "b" / "0.png").read_bytes()
    clean_folder = write(
        tmp_path / "clean",
        {f"more{number:03}.png": whole for number in range(len(ODD))},
    )

    clean, clean_bytes = trained(clean_folder, loader, "stop")
    skipping, skipping_bytes = trained(odd_folder, loader, "skip")
    stopping, _ = trained(odd_folder, loader, "stop")

    more = skipping_bytes - clean_bytes
    read = skipping.worker["data"]["fingerprint"]["files"]
    named = skipping.worker["data"]["unreadable"]["count"]
    print(
        f"{loader}: clean {clean.state}; skip {skipping.state}, {read} files, "
        f"{named} named; stop {stopping.state}; "
        f"memory {clean_bytes / 2**20:.0f} and {skipping_bytes / 2**20:.0f} MiB"
    )
    assert (clean.state, skipping.state) == ("finished", "finished")
    assert stopping.state == "failed"
    assert named == 2 * len(UNREADABLE)
    assert stopping.cause is not None
    assert f"{named} unreadable images" in stopping.cause["message"]
    assert more <= MOST_MORE_BYTES


def trained(folder, loader, unreadable_images):
    """Return a run of one epoch, and the most memory that its processes had."""
    run = nbkit.launch(
        model="resnet20",
        data=folder,
        image_size=32,
        gpus=1,
        device="cpu",
        batch_size_per_gpu=BATCH,
        epochs=1,
        warmup_steps=1,
        loader=loader,
        loader_config={"num_workers": 1},
        unreadable_images=unreadable_images,
        evaluation_period_epochs=1,
    )
    with watched(run) as most:
        run.wait(raise_on_failure=False)
    return run, most[0]


@contextlib.contextmanager
def watched(run) -> Iterator[list[int]]:
    """Note the most memory of a run's processes; shared pages count once."""
    most, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            with contextlib.suppress(psutil.Error, KeyError, TypeError):
                top = psutil.Process(run.record["supervisor"]["pid"])
                all_of_it = [top, *top.children(recursive=True)]
                most[0] = max(most[0], sum(map(_proportional_bytes, all_of_it)))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


def _proportional_bytes(process: psutil.Process) -> int:
    try:
        return process.memory_full_info().pss
    except psutil.Error:  # it has ended
        return 0
