"""Predictions of a run's model for every evaluation image: ``predictions.csv``.

Rank 0 writes it again at every evaluation, one row an image in the manifest's order.
Where an image has one class the columns are ``file``, ``label``, ``predicted`` and
``score``; where it can have several labels, ``file`` and, for each label,
``<label>`` (0 or 1) and ``<label>.score``. An empty score is one that is not a number.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from nbkit.errors import StoreError
from nbkit.reading import lines_of, open_regular
from nbkit.store.metrics import store_error
from nbkit.store.record import replace_file

_ONE_CLASS = ["file", "label", "predicted", "score"]
_SCORE = ".score"


@dataclass(frozen=True)
class ClassPredictions:
    """Predictions for images that have one class each."""

    files: Sequence[str]
    """Paths of the images below the data's folder, in the manifest's order."""
    labels: Sequence[str]
    """True class of each image."""
    predicted: Sequence[str]
    """Predicted class; ``output 7`` if output 7 is not a class, or if the outputs of a
    model with 7 outputs are NaN."""
    scores: Sequence[float | None]
    """Softmax probability of the predicted class; None if it is not a number."""


@dataclass(frozen=True)
class LabelPredictions:
    """Predictions for images that can have several labels."""

    files: Sequence[str]
    """Paths of the images below the data's folder, in the manifest's order."""
    labels: Mapping[str, Sequence[int]]
    """For each label, 1 for images that have it, else 0."""
    scores: Mapping[str, Sequence[float | None]]
    """Logits of each label in float32 precision; None for NaN."""


Predictions = ClassPredictions | LabelPredictions


def read_predictions(path: Path) -> Predictions | None:
    """Return the predictions for all evaluation images."""
    try:
        with open_regular(path) as file:
            lines = (
                line.decode(errors="surrogateescape") for line in lines_of(file, path)
            )
            reader = csv.reader(lines, strict=True)
            header = next(reader, [])
            return _parse(header, list(zip(*reader, strict=True)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, csv.Error) as error:
        message = (
            f"{path} does not contain valid predictions ({error}). Remove it, and "
            "evaluate the model again."
        )
        raise StoreError(message) from error


def write_predictions(path: Path, predictions: Predictions) -> None:
    """Replace the file of predictions; readers never see half of it."""
    header, columns = _to_columns(predictions)
    text = io.StringIO(newline="")
    rows = chain([header], zip(*columns, strict=True))
    csv.writer(text).writerows(rows)  # with "\\r\\n" it quotes each of both
    try:
        replace_file(path, text.getvalue().encode(errors="surrogateescape"))
    except OSError as error:
        raise store_error(path, error) from error


def _to_columns(
    predictions: Predictions,
) -> tuple[list[str], list[Iterable[str | int]]]:
    if isinstance(predictions, ClassPredictions):
        return _ONE_CLASS, [
            predictions.files,
            predictions.labels,
            predictions.predicted,
            _texts(predictions.scores),
        ]
    header: list[str] = ["file"]
    columns: list[Iterable[str | int]] = [predictions.files]
    for label, given in predictions.labels.items():
        header += [label, label + _SCORE]
        columns += [given, _texts(predictions.scores[label])]
    return header, columns


def _texts(scores: Iterable[float | None]) -> list[str]:
    """Return scores with the 9 digits that tell any two float32 apart."""
    return [
        "" if score is None or math.isnan(score) else f"{score:.9g}" for score in scores
    ]


def _parse(header: Sequence[str], columns: Sequence[Sequence[str]]) -> Predictions:
    # A file of no rows has no columns either.
    columns = columns or [()] * len(header)
    names, scores = header[1::2], header[2::2]
    if header == _ONE_CLASS:
        files, labels, predicted, given = columns
        return ClassPredictions(files, labels, predicted, _numbers(given))
    if (
        header[:1] != ["file"]
        or len(header) != len(columns)
        or list(scores) != [name + _SCORE for name in names]
    ):
        message = f"its columns are {', '.join(header) or 'none'}"
        raise ValueError(message)
    return LabelPredictions(
        columns[0],
        {
            name: [int(text) for text in column]
            for name, column in zip(names, columns[1::2], strict=True)
        },
        {
            name: _numbers(column)
            for name, column in zip(names, columns[2::2], strict=True)
        },
    )


def _numbers(texts: Iterable[str]) -> list[float | None]:
    return [float(text) if text else None for text in texts]
