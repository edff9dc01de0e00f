"""NIH ChestX-ray14 in the layout of its authors.

::

    Data_Entry_2017.csv               (or Data_Entry_2017_v2020.csv)
    images/*.png                      or images_001/images/*.png to images_012/...
    train_val_list.txt, test_list.txt where both are there; else a split by patient

The labels were extracted by software from radiologists' reports, and the images come
from few hospitals: a model trained on them makes no diagnosis.

References
----------
X. Wang, Y. Peng, L. Lu, Z. Lu, M. Bagheri, R. Summers, ChestX-ray8: Hospital-scale
chest X-ray database and benchmarks (CVPR 2017), https://arxiv.org/abs/1705.02315;
https://nihcc.app.box.com/v/ChestXray-NIHCC
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from nbkit.datasets.listing import Contents, Listing, is_image
from nbkit.datasets.multi_label import (
    check_patients,
    missing_in_words,
    read_columns,
)
from nbkit.datasets.patients import BY_PATIENT, SPLIT_RULE, split_by_patient
from nbkit.datasets.samples import ImageSample
from nbkit.errors import ConfigError
from nbkit.plural import plural
from nbkit.reading import LINE_BYTES, open_regular, read_file

NIH_KIND = "NIH ChestX-ray14"

NIH_LABELS = (
    *("Atelectasis", "Cardiomegaly", "Effusion", "Infiltration", "Mass", "Nodule"),
    *("Pneumonia", "Pneumothorax", "Consolidation", "Edema", "Emphysema", "Fibrosis"),
    *("Pleural_Thickening", "Hernia"),
)
"""In the order of the paper's tables."""

_IMAGE, _FINDINGS, _PATIENT = "Image Index", "Finding Labels", "Patient ID"
_NO_FINDING = "No Finding"
_TABLES = "Data_Entry_2017*.csv"
_FOLDERS = re.compile(r"images(_\d{3})?")
_TRAINING_LIST, _TEST_LIST = "train_val_list.txt", "test_list.txt"
_FIX_LISTS = "Fix the lists, or remove both: nbkit then splits by patient."


def nih_table(folder: Path) -> Path | None:
    """Return the table of labels that a folder holds; None if it has none."""
    tables = sorted(folder.glob(_TABLES))
    if len(tables) > 1:
        names = ", ".join(table.name for table in tables)
        message = (
            f"data={str(folder)!r} contains {len(tables)} label tables ({names}). Pass "
            "the path of one of them."
        )
        raise ConfigError(message)
    return tables[0] if tables else None


def is_nih(csv_path: Path) -> bool:
    """Return whether a CSV file has the columns of NIH's table of labels."""
    try:
        with open_regular(csv_path) as file:
            header = file.readline(LINE_BYTES).decode("utf-8-sig", errors="replace")
    except OSError:
        return False  # Reading it later says why it cannot be read.
    return _IMAGE in header and _FINDINGS in header


def list_nih(csv_path: Path) -> Listing:
    """Return the images that NIH's table of labels lists, each with its 14 labels."""
    try:
        columns, rows = read_columns(csv_path)
    except ValueError as error:
        fix = "Make the table a readable CSV file in UTF-8."
        raise _unusable(csv_path, str(error), fix) from error
    required = (_IMAGE, _FINDINGS, _PATIENT)
    if lacking := [name for name in required if name not in columns]:
        raise _unusable(csv_path, f"has no column {' or '.join(map(repr, lacking))}")
    places = [columns.index(name) for name in required]
    where = _images_below(csv_path.parent)
    labels: dict[str, tuple[int, ...]] = {}
    patients: dict[str, str] = {}
    missing: list[str] = []
    for line, row in rows.items():
        if len(row) < len(columns):
            problem = (
                f"has {plural(len(row), 'value')} in line {line}, not {len(columns)}"
            )
            raise _unusable(csv_path, problem)
        image, findings, patient = (row[place].strip() for place in places)
        name = _find_image(csv_path, image, where)
        if name is None:
            missing.append(image)
        elif name in labels:
            raise _unusable(csv_path, f"lists {image!r} more than once")
        elif not patient:
            raise _unusable(csv_path, f"has no {_PATIENT!r} in line {line}")
        else:
            labels[name] = _labels(csv_path, line, findings)
            patients[name] = patient
    if missing:
        problem = missing_in_words(plural(len(rows), "image"), missing)
        fix = (
            "Add the images in images/ or images_001/images/ etc. next to the table, "
            "or remove their rows."
        )
        raise _unusable(csv_path, problem, fix)
    if not rows:
        raise _unusable(csv_path, "lists no image")
    splits, lists = _splits(csv_path, patients)
    check_patients(csv_path, splits, patients)
    samples: dict[str, list[ImageSample]] = {"train": [], "evaluation": []}
    for name in sorted(labels):
        samples[splits[name]].append(ImageSample(name, labels[name], None))
    if not samples["train"]:
        raise _unusable(csv_path, "lists no image for training")
    contents = Contents(
        NIH_LABELS,
        samples["train"],
        samples["evaluation"],
        is_multi_label=True,
        patients=patients,
        split_by=f"NIH's lists {' and '.join(lists)}" if lists else BY_PATIENT,
    )
    return Listing(
        NIH_KIND,
        csv_path.parent,
        lambda: contents,
        described_by=[csv_path.name, *lists],
        rule=SPLIT_RULE,
    )


def _images_below(root: Path) -> dict[str, list[str]]:
    """Return the paths below the root of every image, by its file's name."""
    paths: dict[str, list[str]] = {}
    for folder in sorted(root.glob("images*")):
        if not _FOLDERS.fullmatch(folder.name):
            continue
        for here, _, files in os.walk(folder):
            place = Path(here).relative_to(root).as_posix()
            for name in files:
                if is_image(name):
                    paths.setdefault(name, []).append(f"{place}/{name}")
    return paths


def _find_image(
    csv_path: Path, image: str, where: Mapping[str, Sequence[str]]
) -> str | None:
    """Return the path of an image; None if it is not there."""
    names = where.get(image, [])
    if len(names) > 1:
        problem = f"lists {image!r}, which exists at {' and at '.join(names)}"
        raise _unusable(csv_path, problem)
    return names[0] if names else None


def _labels(csv_path: Path, line: int, findings: str) -> tuple[int, ...]:
    names = {finding.strip() for finding in findings.split("|")}
    if names == {""}:
        problem = f"has an empty finding in line {line}, not {_NO_FINDING!r}"
        raise _unusable(csv_path, problem)
    given = names - {_NO_FINDING}
    if given < names and given:
        problem = f"has the contradictory findings {findings!r} in line {line}"
        raise _unusable(csv_path, problem)
    unknown = given.difference(NIH_LABELS)
    if unknown:
        problem = (
            f"has the finding {min(unknown)!r} in line {line}, not one of the 14 labels"
        )
        raise _unusable(csv_path, problem)
    return tuple(int(label in given) for label in NIH_LABELS)


def _splits(
    csv_path: Path, patients: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Return ``train`` or ``evaluation`` by file, and which lists said so."""
    root = csv_path.parent
    lists = [_TRAINING_LIST, _TEST_LIST]
    there = [name for name in lists if (root / name).exists()]
    if len(there) == 1:
        [missing] = {*lists} - {*there}
        problem = f"has {there[0]} next to it, but not {missing}"
        fix = f"Add {missing}, or remove {there[0]}: nbkit then splits by patient."
        raise _unusable(csv_path, problem, fix)
    if not there:
        return split_by_patient(patients), []
    training, test = (_read_list(csv_path, root / name) for name in lists)
    splits: dict[str, str] = {}
    for name in patients:
        image = name.rpartition("/")[2]
        if (image in training) == (image in test):
            where = "both lists" if image in test else "neither list"
            problem = f"lists {image!r}, which is in {where} ({' and '.join(lists)})"
            raise _unusable(csv_path, problem, _FIX_LISTS)
        splits[name] = "evaluation" if image in test else "train"
    return splits, lists


def _read_list(csv_path: Path, path: Path) -> set[str]:
    try:
        return {*read_file(path, None).decode("utf-8-sig").split()}
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error})"
    except UnicodeDecodeError as error:
        problem = f"is not text in UTF-8 ({error})"
    problem = f"has {path.name} next to it, which {problem}"
    raise _unusable(csv_path, problem, _FIX_LISTS)


def _unusable(
    csv_path: Path, problem: str, fix: str = "Correct the table."
) -> ConfigError:
    return ConfigError(f"data={str(csv_path)!r} {problem}. {fix}")
