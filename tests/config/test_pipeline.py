"""Which rows of steps are an input pipeline."""

import pytest

from nbkit.config import ExperimentConfig, LoaderConfig
from nbkit.config.pipeline import PIPELINES, images_of_every_rank, pipeline_steps
from nbkit.errors import ConfigError


@pytest.mark.parametrize("name", PIPELINES)
def test_a_name_stands_for_its_steps(name):
    assert pipeline_steps(name) == pipeline_steps(PIPELINES[name])
    assert LoaderConfig(pipeline=name).pipeline == name


def test_pipelines_old_and_new():
    old, new = (pipeline_steps(f"chexnet_{name}") for name in ("old", "new"))

    assert old.index("map") < old.index("shard")
    assert new.index("shard") < new.index("interleave") < new.index("map_and_batch")


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        ("chexnet_odl", r"Did you mean 'chexnet_old'"),
        ("list,shard,raed,map,batch", r"'raed' is not a .*Did you mean 'read'"),
        ("shard,list,read,map,batch", "must have 'list' as its first step"),
        ("list,shard,read,batch", "'batch' requires images, but its input is records"),
        ("list,shard,prefetch,read,map,batch", "'prefetch' requires records"),
        ("list", "Append 'shard,read,map,batch'"),
        ("list,shard,read,map", "outputs images, but training requires batches"),
        ("list,read,map_and_batch", "0 'shard' steps"),
        ("list,shard,read,shard,map_and_batch", "2 'shard' steps"),
        ("", "'' is not a step"),
    ],
)
def test_pipeline_steps_refusals(pipeline, said):
    with pytest.raises(ConfigError, match=said) as refused:
        ExperimentConfig(loader="tfrecord", loader_config={"pipeline": pipeline})

    assert "loader_config.pipeline" in refused.value.fields


@pytest.mark.parametrize(
    ("pipeline", "images"),
    [
        ("chexnet_old", 39),
        ("chexnet_new", 38),
        ("list,interleave,shard,map_and_batch", 39),
    ],
)
def test_images_of_every_rank(pipeline, images):
    files = [10, 9, 10, 10, 10, 9, 10, 10]

    steps = pipeline_steps(pipeline)

    assert images_of_every_rank(steps, files, 2, "a-set") == images


def test_images_of_every_rank_shuffled():
    steps = pipeline_steps("list,shuffle,shard,interleave,map_and_batch")

    assert images_of_every_rank(steps, [10] * 8, 4, "a-set") == 20
    with pytest.raises(ConfigError, match=r"25.0% of all images are skipped"):
        images_of_every_rank(steps, [10, 10, 10, 10, 10, 10, 5, 15], 4, "a-set")
