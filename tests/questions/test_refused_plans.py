"""What a plan itself tells is refused before a study starts its first run."""

from __future__ import annotations

import json

import pytest

import nbkit
from nbkit.errors import ConfigError
from nbkit.store.record import write_json
from tests.telemetry.fake_nvml.fake_driver import FakeGpu


def refused(study, said):
    """Check that a study is refused because of its second arm, with no run started."""
    with pytest.raises(ConfigError, match=said) as caught:
        study.run(progress=False)

    assert caught.value.__notes__ == ["Requested by arm 'bad' of the study."]
    assert nbkit.runs() == []


@pytest.mark.parametrize("data", ["synthetic", "photos", "cifar10"])
def test_labels_of_one_class_are_not_weighted_and_no_arm_starts(small, data):
    arms = {"good": small(), "bad": small(data=data, label_weighting="balanced")}

    refused(nbkit.Study.create("demo", arms), f"'{data}' has one class per image")
    with pytest.raises(ConfigError, match="has one class per image"):
        nbkit.launch(arms["bad"])


def test_tf32_on_cpus_starts_no_arm(small, drive):
    drive()
    arms = {"good": small(), "bad": small(device="auto", precision="tf32")}

    refused(nbkit.Study.create("demo", arms), "this run uses cpu. Use 'fp32'")


def test_tf32_that_the_environment_turns_off_starts_no_arm(small, drive):
    drive(FakeGpu("GPU-a"))
    arms = {"good": small(), "bad": small(device="auto", precision="tf32")}
    environment = {"NVIDIA_TF32_OVERRIDE": "0"}

    study = nbkit.Study.create("demo", arms, environment=environment)

    refused(study, "NVIDIA_TF32_OVERRIDE=0 disables .* Unset .*, or use 'fp32'")


def test_a_stored_plan_is_checked_as_a_new_one(small):
    study = nbkit.Study.create("demo", {"good": small(), "bad": small()})
    content = json.loads(study.paths.study.read_text())
    content["arms"]["bad"] |= {"model": "inception_v3", "image_size": 32}
    write_json(study.paths.study, content)

    refused(nbkit.Study.open(study.study_id), "image_size=32: is below 75")
