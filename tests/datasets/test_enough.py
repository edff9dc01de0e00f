"""Data that are too few for a run are refused before it starts."""

import pytest

from nbkit.config import ExperimentConfig
from nbkit.datasets.enough import check_enough_images
from nbkit.errors import ConfigError
from tests.datasets.images import write_table


def config_of(data, **fields):
    return ExperimentConfig(data=str(data), device="cpu", **fields)


@pytest.mark.parametrize("format", [None, "webdataset", "recordio"])
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"batch_size_per_gpu": 13}, r"12 training images, .* needs 13 .*_gpu=12 or l"),
        ({"batch_size_per_gpu": 7, "gpus": 2}, r"12 training images, .* needs 14 \("),
        (
            {"batch_size_per_gpu": 4, "gradient_accumulation_steps": 13},
            r"needs 52 \(4 .*13 accumulation steps\)\. Use .*=1 with ranks x acc",
        ),
    ],
)
def test_batch_beyond_the_images_is_refused(folder, packed, format, fields, said):
    data = packed(folder, format) if format else folder
    check_enough_images([config_of(data, batch_size_per_gpu=12)])

    with pytest.raises(ConfigError, match=said):
        check_enough_images([config_of(data, **fields)])


def test_evaluation_without_images_is_refused(folder, tmp_path):
    table = write_table(tmp_path / "t", ["1.png,1", "2.png,0"], "file,sick")
    fields = {"batch_size_per_gpu": 2, "evaluation_period_epochs": 1}
    check_enough_images([config_of(folder, **fields)])

    for data in (folder / "train", table):
        with pytest.raises(ConfigError, match=r"no evaluation images\. Use folders"):
            check_enough_images([config_of(data, **fields)])


@pytest.mark.parametrize(("name", "images"), [("photos", 400), ("cifar10", 50_000)])
def test_built_in_sets_are_neither_made_nor_downloaded(cache, name, images):
    check_enough_images([config_of(name), config_of("synthetic")])

    with pytest.raises(ConfigError, match=f"data='{name}' has {images:,} training"):
        check_enough_images([config_of(name, batch_size_per_gpu=60_000)])
    assert not cache.exists()
