"""What the chexnet notebook plans: pairs, global batches, and what is refused."""

from __future__ import annotations

import json

import pytest

from nbkit.errors import ConfigError
from nbkit.questions.chexnet.baseline import prepare
from nbkit.questions.chexnet.planning import plan
from tests.datasets.images import write_folder, write_table
from tests.questions.conftest import notebook_parameters


@pytest.fixture
def planned(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def make(**changes):
        return plan(notebook_parameters("chexnet", **changes))

    return make


def test_both_arms_have_the_same_global_batch_and_a_seed_a_repeat(planned):
    made = planned(repeats=3, seed=4)

    assert list(made.arms) == ["1 device", "2 devices"]
    assert made.repeats == 3
    assert made.facts["seed_per_repeat"] is True
    for config in made.arms.values():
        assert config.gpus * config.batch_size_per_gpu == 32
        assert config.seed == 4
        assert config.stop_on_nonfinite
        assert config.label_weighting == "balanced"
        assert config.evaluation_period_epochs == 1
    alone, shared = made.arms.values()
    assert alone.replace(gpus=2, batch_size_per_gpu=16, name="") == shared.replace(
        name=""
    )
    assert json.loads(json.dumps(made.facts)) == made.facts
    # Numbers, and not the names that the table has.
    assert {*made.facts["patients"].values()} == {*range(1, 25)}
    assert len(made.facts["patients"]) == 96


def test_what_the_images_are_and_what_cannot_be_judged_is_said_first(planned):
    made = planned()

    assert "Time limit: 2 min" in made._repr_mimebundle_()["text/plain"]
    said = "\n".join(made.notes)
    assert "Generated patterns, not X-rays" in said
    assert "96 for training, 24 for evaluation, no overlap" in said
    assert "Train/evaluation split: about 20% of the patients" in said
    assert made.labels.notes[0].startswith("rare: no evaluation image has this label")
    assert made.labels.rows[3] == ["rare", "2", "0"]


def test_what_the_images_cannot_teach_or_show_is_said(planned, tmp_path):
    rows = [
        f"{n}.png,{'val' if n % 4 == 0 else 'train'},p{n},{n % 2},{int(n == 4)},old"
        for n in range(40)
    ]
    table = write_table(tmp_path, rows, "file,split,patient_id,odd,one,age")

    made = planned(data=str(table), global_batch_size=4, gpus=1, repeats=1)

    said = "\n".join(made.notes)
    assert "split: its column 'split'." in said
    assert "Columns that are not labels: age." in said
    assert made.labels.notes == [
        "odd: no evaluation image has this label, so it has no AUROC.",
        "one: no training image has this label, so it cannot be learned.",
        "one: 1 evaluation patient with this label; the mean excludes labels with "
        "fewer than 10.",
    ]


def test_images_that_cannot_be_read_end_it_or_are_counted(planned, tmp_path):
    rows = [
        f"{n}.png,{'val' if n % 4 == 0 else 'train'},{n % 3 // 2}" for n in range(40)
    ]
    table = write_table(tmp_path, rows, "file,split,sick")
    (tmp_path / "7.png").write_bytes(b"no image")
    few = {"data": str(table), "global_batch_size": 4, "gpus": 1}

    with pytest.raises(ConfigError, match=r"1 unreadable image \(7.png\)"):
        prepare(planned(**few))

    found = prepare(planned(**few, unreadable_images="skip"))
    assert found.facts["baseline"]["unreadable"] == 1


def test_rules_for_unknown_labels_reach_the_runs(planned, tmp_path):
    rows = [f"{n}.png,{'val' if n % 4 == 0 else 'train'},{n % 2}" for n in range(40)]
    rows[3], rows[5] = "3.png,train,", "5.png,train,-1.0"
    table = write_table(tmp_path / "data", rows, "file,split,sick")
    values = {"data": str(table), "global_batch_size": 4, "gpus": 1}

    with pytest.raises(ConfigError, match="sick='' in line 5; missing values: 1 of 40"):
        planned(**values)
    rules = {"missing_labels": "zero", "uncertain_labels": "ignore"}
    made = planned(**values, **rules)

    assert made.facts["patients"] == {}
    assert "CIs are too narrow" in "\n".join(made.notes)

    (config,) = made.arms.values()
    assert (config.missing_labels, config.uncertain_labels) == ("zero", "ignore")
    assert len(made.listing.contents.train) == 29
    assert "Missing labels (1 of 40 in sick) are read as 0" in "\n".join(made.notes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"global_batch_size": 33}, "not divisible by 2 devices. Use 32 or 34"),
        ({"repeats": 0}, "repeats=0 is below 1"),
        ({"auroc_margin": 0.7}, "auroc_margin=0.7 is not between 0 and 0.5"),
        ({"data": "synthetic"}, "has one class per image, not multiple"),
        ({"global_batch_size": 4000}, "has 384 training images, fewer than"),
        ({"label_weighting": "heavy"}, "label_weighting"),
        ({"loader": "tfrecord"}, "shuffles per device"),
    ],
)
def test_what_cannot_be_used_says_why_before_anything_starts(planned, changes, said):
    with pytest.raises(ConfigError, match=said):
        planned(**changes)


def test_images_without_labels_or_evaluation_are_refused(planned, tmp_path):
    table = write_table(tmp_path / "table", ["1.png,1", "2.png,0"], "file,sick")

    with pytest.raises(ConfigError, match="has no evaluation images"):
        planned(data=str(table))
    with pytest.raises(ConfigError, match=r"\(image folder\) has one class per image"):
        planned(data=str(write_folder(tmp_path / "data")))
