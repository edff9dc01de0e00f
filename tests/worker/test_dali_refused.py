"""When DALI fails: its own error, unless nvImageCodec refuses images."""

import contextlib

import pytest
from nvidia.dali.pipeline import Pipeline

from nbkit.config import ExperimentConfig
from nbkit.worker import data
from nbkit.worker.data import Placement
from tests.datasets.odd_files import SIZE, stream
from tests.worker.images import CPU, manifest_of, picture


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
