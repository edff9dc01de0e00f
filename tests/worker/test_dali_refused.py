"""When DALI fails: its own error, unless nvImageCodec refuses images."""

import contextlib
import functools

import pytest
import torch
from nvidia.dali.pipeline import Pipeline

from nbkit.config import ExperimentConfig
from nbkit.worker import data
from nbkit.worker.data import Placement, dali
from tests.datasets.odd_files import SIZE, stream
from tests.worker.images import CPU, DEVIATION, manifest_of, picture


@pytest.mark.parametrize(
    ("said", "is_refused"),
    [
        ("CUDA error", True),
        ("std::bad_alloc", True),
        ("out of memory", True),
        ("something else", False),
    ],
)
def test_an_error_that_is_not_the_files_is_raised_as_it_is(
    flat, tmp_path, monkeypatch, said, is_refused
):
    if is_refused:
        refused = stream(picture(2, SIZE), b"")
        (flat / "class 02" / "0.JPEG").write_bytes(refused)
    run = Pipeline.run

    def fail(self, *args, **kwargs):
        with contextlib.suppress(RuntimeError):
            run(self, *args, **kwargs)
        raise RuntimeError(said)

    config = ExperimentConfig(
        data=str(flat), image_size=32, loader="dali", loader_config={"num_workers": 2}
    )
    one = data.load(config, manifest_of(flat, tmp_path), Placement(CPU, 0, 1), 2)
    monkeypatch.setattr(Pipeline, "run", fail)

    with contextlib.closing(one), pytest.raises(RuntimeError, match=said):
        next(iter(one.train_batches(0)))
    assert one.describe()["refused_images"] == 0


def test_where_only_the_gpus_decoder_refuses_an_image_pillow_decodes_its_batches(
    flat, tmp_path, opened, monkeypatch, capsys
):
    run, has_failed = Pipeline.run, []

    def refuse_once(self, *args, **kwargs):
        output = run(self, *args, **kwargs)
        if not has_failed:
            has_failed.append(True)
            message = "encountered:\nnvjpeg error (3): JPEG not supported"
            raise RuntimeError(message)
        return output

    images = functools.partial(dali.Images, on_gpu=True)
    monkeypatch.setattr(dali, "Images", lambda *args, **_: images(*args))
    monkeypatch.setattr(Pipeline, "run", refuse_once)
    config = ExperimentConfig(
        data=str(flat), image_size=32, loader="dali", loader_config={"num_workers": 2}
    )
    manifest = manifest_of(flat, tmp_path)
    one = data.load(config, manifest, Placement(CPU, 0, 1), 2)

    with contextlib.closing(one):
        found = [images for images, _ in one.train_batches(0)]
    theirs = [images for images, _ in opened(flat, loader="naive").train_batches(0)]

    error = (torch.cat(found) - torch.cat(theirs)).abs() * DEVIATION * 255
    assert error.mean((1, 2, 3)).max() < 0.5
    refused = one.describe()["refused_images"]
    assert refused % 2 == 0
    assert 0 < refused <= len(manifest.train)
    said = capsys.readouterr().out
    assert f"not supported) cannot decode at least one of {refused} images" in said
