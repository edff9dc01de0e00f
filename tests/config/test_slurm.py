"""What may be asked of Slurm, and what would break the run."""

from __future__ import annotations

import pytest

from nbkit.config import ExperimentConfig, SlurmConfig
from nbkit.errors import ConfigError


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("array", "does not submit a single job; remove it"),
        ("test_only", "does not submit a single job; remove it"),
        ("wait", "does not submit a single job; remove it"),
        ("partition", "follows from slurm_partition; set that"),
        ("mem", "follows from mem_gb; set that"),
        ("export-file", "follows from the environment of the launch"),
    ],
)
def test_options_that_would_break_a_run_are_refused(option, advice):
    with pytest.raises(ConfigError, match=f"'{option}' .*{advice}"):
        SlurmConfig(slurm_additional_parameters={option: "1"})


def test_a_run_that_was_launched_with_them_can_still_be_read():
    text = ExperimentConfig().to_json()
    old = text.replace(
        '"slurm_additional_parameters": {}',
        '"slurm_additional_parameters": {"partition": "gpu"}',
    )
    assert old != text

    config = ExperimentConfig.from_store(old)

    assert config.slurm.slurm_additional_parameters == {"partition": "gpu"}


@pytest.mark.parametrize(
    ("fields", "advice"),
    [
        ({"timeout_min": 3}, "timeout_min=3 is too short.*set timeout_min=4"),
        ({"slurm_signal_delay_s": 59}, "=59 is too short.*set slurm_signal_delay_s=60"),
        (
            {"timeout_min": 4, "slurm_signal_delay_s": 121},
            "timeout_min=4 is too short.*set timeout_min=5 .*slurm_signal_delay_s=60",
        ),
        ({"timeout_min": 2}, "set timeout_min=4 or more, or stop_grace_seconds lower"),
    ],
)
def test_a_time_limit_without_time_to_train_or_to_end_is_refused(fields, advice):
    with pytest.raises(ConfigError, match=advice):
        ExperimentConfig(engine="slurm", stop_grace_seconds=30, slurm=fields)

    ExperimentConfig(engine="local", stop_grace_seconds=30, slurm=fields)


@pytest.mark.parametrize(
    "fields",
    [{}, {"timeout_min": 4}, {"timeout_min": 4, "slurm_signal_delay_s": 60}],
)
def test_a_time_limit_that_leaves_both_is_taken(fields):
    config = ExperimentConfig(engine="slurm", stop_grace_seconds=30, slurm=fields)

    assert config.slurm == SlurmConfig(**fields)


def test_the_longest_grace_needs_no_more_than_slurm_takes():
    ExperimentConfig(engine="slurm", stop_grace_seconds=86_400)
