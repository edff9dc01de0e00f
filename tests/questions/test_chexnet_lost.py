"""What a chexnet study says if trainings were ended as not finite."""

from __future__ import annotations

import lzma

import pytest

import nbkit
from nbkit.questions import chexnet
from nbkit.questions.study_report import make
from nbkit.store.bundle_import import unpack_bundle
from nbkit.store.nonfinite import NonFinite
from nbkit.store.record import read_json, write_json
from tests.golden.studies import FOLDER, STORED

LOST = NonFinite("loss", 3)
CAUSE = {"kind": "nonfinite", "rank": 0, "message": str(LOST), "log": None}
BOTH = ("1 device", "2 devices")


@pytest.fixture
def study(store, tmp_path):
    """Return a finished study of two pairs of trainings."""
    bundle = tmp_path / "study.zip"
    bundle.write_bytes(lzma.decompress((FOLDER / "chexnet/cpu" / STORED).read_bytes()))
    study_id = unpack_bundle(bundle, store).study_id
    assert study_id is not None
    return nbkit.Study.open(study_id)


def end(runs):
    """Let runs have been ended where they stopped being finite."""
    for run in runs:
        worker = read_json(run.paths.worker) or {}
        worker |= {"nonfinite": LOST.to_dict(), "completed": False}
        write_json(run.paths.worker, worker)
        ended = {"state": "failed", "cause": CAUSE, "worker": worker}
        write_json(run.paths.record, {**run.record, **ended})


def test_one_lost_training_on_several_devices_leaves_the_answer_of_one(study):
    end(study.runs_by_arm()[BOTH[1]][:1])

    report = make(study)

    assert report.answer.startswith(f"No verdict on {BOTH[1]}: {LOST}. ")
    assert "Mean AUROC 0." in report.answer
    assert "Nothing is compared" not in report.answer
    assert "devices minus 1" not in report.answer
    assert report.result["verdict"] is None


def test_a_lost_training_on_one_device_leaves_nothing_to_compare_with(study):
    end(study.runs_by_arm()[BOTH[0]][:1])

    assert "Nothing is compared: the baseline is not finite" in make(study).answer


@pytest.mark.parametrize("arms", [BOTH[:1], BOTH])
def test_a_notebook_without_a_finite_training_arrives_at_its_report(study, arms):
    for arm in arms:
        end(study.runs_by_arm()[arm])

    found = chexnet.result(study)
    report = nbkit.report(study).report

    shown = (found.table, found.curves, found.same, found.trainings, found.speed)
    for one in (*shown, found.published_table):
        assert str(LOST) in one.to_text()
        assert "Lower learning_rate" in one.to_text()
    assert "loss" in {one.code for one in nbkit.audit(study)}
    assert report.answer.startswith("No verdict on 1 device")
    assert "lower learning_rate" in str(report.next_step)


def test_without_a_finite_training_on_several_devices_the_report_says_so(study):
    end(study.runs_by_arm()[BOTH[1]])

    found = chexnet.result(study)

    [said] = found.same.sentences
    assert said.startswith("0 pairs of trainings have finished on 1 and on 2 devices")
    assert "use gpus=2 or more" not in said
    assert make(study).answer.startswith(f"No verdict on {BOTH[1]}: {LOST}. ")
