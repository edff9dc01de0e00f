"""What may be asked of Slurm, and what would break the run."""

from __future__ import annotations

import pytest

from nbkit.config import ExperimentConfig, SlurmConfig
from nbkit.errors import ConfigError


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("array", "is not supported by nbkit. Remove it"),
        ("test_only", "is not supported by nbkit. Remove it"),
        ("wait", "is not supported by nbkit. Remove it"),
        ("partition", "is set by slurm_partition. Remove it"),
        ("mem", "is set by mem_gb. Remove it"),
        ("export-file", r"is set by nbkit \(the environment of the launch\)"),
    ],
)
def test_slurm_options_refused(option, advice):
    with pytest.raises(ConfigError, match=f"'{option}' .*{advice}"):
        SlurmConfig(slurm_additional_parameters={option: "1"})


def test_slurm_options_of_old_run():
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
        ({"timeout_min": 3}, "timeout_min=3 is too short.*Set timeout_min=4"),
        ({"slurm_signal_delay_s": 59}, "=59 is less than .* slurm_signal_delay_s=60"),
        (
            {"timeout_min": 4, "slurm_signal_delay_s": 121},
            "timeout_min=4 is too short.*Set timeout_min=5 .*slurm_signal_delay_s=60",
        ),
        ({"timeout_min": 2}, r"Set timeout_min=4 or more\.$"),
    ],
)
def test_slurm_time_limit_refused(fields, advice):
    with pytest.raises(ConfigError, match=advice):
        ExperimentConfig(engine="slurm", stop_grace_seconds=30, slurm=fields)

    ExperimentConfig(engine="local", stop_grace_seconds=30, slurm=fields)


@pytest.mark.parametrize(
    ("grace_seconds", "fields"),
    [
        (30, {"timeout_min": 4}),
        (30, {"timeout_min": 4, "slurm_signal_delay_s": 60}),
        (86_400, {}),
    ],
)
def test_slurm_time_limit_accepted(grace_seconds, fields):
    fields = {"stop_grace_seconds": grace_seconds, "slurm": fields}

    assert ExperimentConfig(engine="slurm", **fields).engine == "slurm"
