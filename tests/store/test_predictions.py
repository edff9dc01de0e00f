"""What a model said of every evaluation image, written and read again."""

import math
import struct

import pytest

from nbkit.errors import StoreError
from nbkit.store.predictions import (
    ClassPredictions,
    LabelPredictions,
    read_predictions,
    write_predictions,
)


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def test_class_predictions_round_trip(tmp_path):
    path = tmp_path / "predictions.csv"
    written = ClassPredictions(
        ['val/a,b/"1".jpg', "val/line\nbreak.jpg", "val/\udcff.jpg", "val/a\r.jpg"],
        ["a,b", "c", "c", "\r\n"],
        ["c", "output 7", "c", "c"],
        [float32(1 / 3), float("nan"), 1.0, 0.5],
    )

    write_predictions(path, written)
    found = read_predictions(path)

    assert [*found.files] == written.files
    assert [*found.labels] == written.labels
    assert [*found.predicted] == written.predicted
    assert found.scores[1:] == [None, 1.0, 0.5]
    assert float32(found.scores[0]) == float32(1 / 3)
    assert path.read_bytes().startswith(b"file,label,predicted,score\r\n")
    assert [one.name for one in tmp_path.iterdir()] == ["predictions.csv"]


def test_label_predictions_round_trip(tmp_path):
    path = tmp_path / "predictions.csv"
    scores = [float32(math.pi * 10**power) for power in (-30, 0, 30)]
    # Names as unfortunate as they can be.
    labels = {"label": [0, 1, 0], "label.score": [1, 1, 1], "a\r": [0, 0, 0]}
    logits = {"label": scores, "label.score": [-1.5, math.nan, 2.0], "a\r": [1.0] * 3}

    write_predictions(path, LabelPredictions(["x", "y", "z"], labels, logits))
    found = read_predictions(path)

    assert isinstance(found, LabelPredictions)
    assert found.labels == labels
    assert [float32(score) for score in found.scores["label"]] == scores
    assert found.scores["label.score"] == [-1.5, None, 2.0]


def test_read_predictions_refusals(tmp_path):
    path = tmp_path / "predictions.csv"
    assert read_predictions(path) is None

    path.write_text("file,width,height\na.jpg,3,4\n")
    with pytest.raises(StoreError, match="its columns are file, width, height"):
        read_predictions(path)

    path.write_text("file,label,predicted,score\na.jpg,x\n")
    with pytest.raises(StoreError, match="does not contain valid"):
        read_predictions(path)
