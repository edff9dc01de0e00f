"""Which rows of steps are an input pipeline."""

import pytest

from nbkit.config import ExperimentConfig, LoaderConfig
from nbkit.config.pipeline import PIPELINES, pipeline_steps
from nbkit.errors import ConfigError


@pytest.mark.parametrize("name", PIPELINES)
def test_a_name_stands_for_its_steps(name):
    assert pipeline_steps(name) == pipeline_steps(PIPELINES[name])
    assert LoaderConfig(pipeline=name).pipeline == name


def test_the_old_pipeline_shares_out_what_is_decoded_and_the_new_one_files():
    old, new = (pipeline_steps(f"chexnet_{name}") for name in ("old", "new"))

    assert old.index("map") < old.index("shard")
    assert new.index("shard") < new.index("interleave") < new.index("map_and_batch")


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        ("chexnet_odl", r"Did you mean 'chexnet_old'"),
        ("list,shard,raed,map,batch", r"'raed' is no pipeline.*Did you mean 'read'"),
        ("shard,list,read,map,batch", "'shard' takes files or records or images"),
        ("list,shard,read,batch", "'batch' takes images, but before it .* records"),
        ("list,shard,prefetch,read,map,batch", "'prefetch' takes records"),
        ("list,shard,read,map", "ends with images, training takes batches"),
        ("list,read,map_and_batch", "0 times, once is needed"),
        ("list,shard,read,shard,map_and_batch", "2 times, once is needed"),
        ("", "is no pipeline"),
    ],
)
def test_a_row_that_does_not_lead_from_files_to_batches_is_refused(pipeline, said):
    with pytest.raises(ConfigError, match=said) as refused:
        ExperimentConfig(loader="tfrecord", loader_config={"pipeline": pipeline})

    assert "loader_config.pipeline" in refused.value.fields
