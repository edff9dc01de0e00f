"""What the scaling notebook will measure is decided, and said, before it starts."""

from __future__ import annotations

from functools import partial

import pytest

from nbkit.errors import ConfigError, DeviceError
from nbkit.questions.scaling.planning import plan
from nbkit.studies.devices import sweep_sizes
from tests.datasets.images import write_folder
from tests.questions.conftest import notebook_parameters
from tests.telemetry.fake_nvml.fake_driver import FakeGpu

parameters = partial(notebook_parameters, "scaling")


@pytest.mark.parametrize(
    ("largest", "sizes"),
    [
        (1, [1]),
        (2, [1, 2]),
        (3, [1, 2, 3]),
        (6, [1, 2, 4, 6]),
        (8, [1, 2, 4, 8]),
    ],
)
def test_a_sweep_doubles_up_to_the_largest(largest, sizes):
    assert sweep_sizes(largest) == sizes


def test_every_count_below_one_is_named_at_once():
    with pytest.raises(ConfigError) as raised:
        plan(parameters(gpus=0, nnodes=-1, repeats=0, data=""))

    said = str(raised.value)
    assert "gpus=0 is below 1. Use 1 or more." in said
    assert "nnodes=-1" in said
    assert "repeats=0" in said
    assert "data='' is empty" in said


def test_with_fewer_gpus_than_asked_what_exists_is_measured_and_it_is_said_first(
    drive, monkeypatch
):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    drive(*(FakeGpu(f"GPU-{index}") for index in range(3)))

    planned = plan(parameters(device="auto"))

    assert [config.world_size for config in planned.arms.values()] == [1, 2, 3]
    assert planned.notes[0].startswith("Requested: 8 GPUs; available: 3.")
    assert "more GPUs are projections" in planned.notes[0]
    assert "3 x NVIDIA H100 80GB HBM3" in planned.notes[1]
    first = planned.arms["fp16, 1 GPU"]
    assert (first.model, first.batch_size_per_gpu) == ("resnet50", 256)
    assert first.has_time_window
    assert planned.environment == {}
    with pytest.raises(DeviceError, match="Use gpus=3"):
        plan(parameters(device="auto", strict_gpus=True))


def test_all_the_gpus_that_were_asked_for_are_measured_without_excuse(
    drive, monkeypatch
):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    drive(*(FakeGpu(f"GPU-{index}") for index in range(8)))

    planned = plan(parameters(device="auto", gpus=6, strict_gpus=True))

    assert [config.world_size for config in planned.arms.values()] == [1, 2, 4, 6]
    assert planned.notes[0].startswith("Sizes: 1, 2, 4, 6 GPUs on 8 x NVIDIA H100")


def test_strict_gpus_refuses_to_measure_anything_else():
    with pytest.raises(DeviceError, match="exceeds the available 0 GPUs"):
        plan(parameters(strict_gpus=True))


def test_bad_parameters_are_refused_with_the_field_that_is_bad():
    with pytest.raises(ConfigError, match="model='resnet5'"):
        plan(parameters(model="resnet5"))
    with pytest.raises(ConfigError, match="precision='fp8'"):
        plan(parameters(precision=["fp8"]))
    with pytest.raises(ConfigError, match="nnodes=2"):
        plan(parameters(gpus=1, nnodes=2))


def test_a_data_folder_that_is_not_there_is_refused_and_a_real_one_is_absolute(
    tmp_path, monkeypatch
):
    write_folder(tmp_path / "images", images_per_class=40)
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError, match="is not a folder or CSV file"):
        plan(parameters(data="nowhere"))
    config = next(iter(plan(parameters(data="images")).arms.values()))
    assert config.data == str(tmp_path / "images")


def test_on_a_cluster_one_node_comes_first_and_then_whole_nodes(cluster):
    cluster("gpu:h100:8")

    planned = plan(
        parameters(engine="slurm", device="auto", nnodes=4, slurm_partition="big")
    )

    assert list(planned.arms) == [
        "fp16, 1 GPU",
        "fp16, 2 GPUs",
        "fp16, 4 GPUs",
        "fp16, 8 GPUs",
        "fp16, 2 x 8 GPUs",
        "fp16, 4 x 8 GPUs",
    ]
    last = planned.arms["fp16, 4 x 8 GPUs"]
    assert (last.engine, last.nnodes, last.gpus, last.device) == ("slurm", 4, 8, "cuda")
    assert last.slurm.slurm_partition == "big"
    [allreduce] = planned.unrepeated.values()
    assert allreduce.world_size == 32
    assert allreduce.slurm.slurm_partition == "big"
    assert planned.notes[0] == (
        "Sizes: 1, 2, 4, 8, 2 x 8, 4 x 8 GPUs (nodes x processes per node)."
    )
    assert "each run is a separate job in partition big" in planned.notes[1]
    assert "slurm_exclusive" in planned.notes[1]
    assert (planned.facts["requested"], planned.facts["measured"]) == (32, 32)


def test_on_a_cluster_without_gpus_processes_stand_in_and_nobody_says_here(cluster):
    cluster("(null)")

    planned = plan(parameters(engine="slurm", device="auto", nnodes=2, gpus=2))

    assert list(planned.arms) == [
        "fp32, 1 process",
        "fp32, 2 processes",
        "fp32, 2 x 2 processes",
    ]
    assert planned.notes[0].startswith("CPU smoke test: there is no GPU on these nodes")
    assert planned.notes[1].startswith("Sizes: 1, 2, 2 x 2 processes (nodes x proc")
    assert all(config.device == "cpu" for config in planned.arms.values())


def test_all_else_of_slurm_is_one_parameter_and_is_checked_like_the_fields(cluster):
    cluster("gpu:8")
    others = {"slurm_qos": "high", "slurm_exclusive": True}

    planned = plan(
        parameters(engine="slurm", device="auto", timeout_min=30, slurm=others)
    )

    slurm = planned.arms["fp16, 8 GPUs"].slurm
    assert (slurm.timeout_min, slurm.slurm_qos) == (30, "high")
    assert "slurm_exclusive" not in " ".join(planned.notes)
    with pytest.raises(ConfigError, match="slurm_qoz"):
        plan(parameters(engine="slurm", slurm={"slurm_qoz": "high"}))
    with pytest.raises(ConfigError, match=r"conflicts with 'a' in slurm\. Omit"):
        plan(
            parameters(engine="slurm", slurm_account="b", slurm={"slurm_account": "a"})
        )


def test_what_is_asked_of_slurm_is_refused_for_another_engine():
    with pytest.raises(ConfigError) as raised:
        plan(parameters(slurm_partition="gpu", slurm={"slurm_qos": "high"}))

    lines = str(raised.value).splitlines()
    assert lines[0].startswith("slurm_partition='gpu' requires engine='slurm'")
    assert "slurm={'slurm_qos': 'high'} requires engine='slurm'" in lines[1]


def test_batch_beyond_the_images_is_refused(tmp_path):
    write_folder(tmp_path / "data")

    with pytest.raises(ConfigError, match=r"has 12 training images, .* needs"):
        plan(parameters(data=str(tmp_path / "data"), batch_size_per_gpu=1_000))
