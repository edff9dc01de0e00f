"""Images with several labels each, listed in a CSV file."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from nbkit.datasets.listing import Contents, Listing
from nbkit.datasets.patients import BY_PATIENT, SPLIT_RULE, split_by_patient
from nbkit.datasets.samples import ImageSample
from nbkit.datasets.splits import EVALUATION, TRAINING, split_of
from nbkit.errors import ConfigError
from nbkit.plural import few, plural
from nbkit.reading import open_regular

_FILE, _SPLIT, _PATIENT = "file", "split", "patient_id"
_STAT_THREADS = 16
"""For disks that answer slowly."""
_VALUES = {"0": 0, "1": 1, "0.0": 0, "1.0": 1}
"""Of a label; programs that know blanks write numbers with a point."""
_UNKNOWN = {
    "missing": {"", "nan", "na", "n/a", "<na>", "null", "none"},
    "uncertain": {
        *("-1", "-1.0", "?", "u", "unsure", "uncertain", "unclear", "unknown"),
        *("maybe", "possible", "equivocal", "indeterminate"),
    },
}
"""Values that a label may have besides, by what they say."""
_KINDS = {**{kind: kind for kind in _UNKNOWN}, "other": "invalid"}
_READ_AS = {"zero": 0, "one": 1, "ignore": None}


def list_multi_label(
    csv_path: Path, *, missing_labels: str = "refuse", uncertain_labels: str = "refuse"
) -> Listing:
    """Return the images that a CSV file lists."""
    try:
        columns, rows = read_columns(csv_path)
    except ValueError as error:
        raise _unusable(csv_path, str(error)) from error
    _check_table(csv_path, columns, rows)
    candidates = [
        number
        for number, column in enumerate(columns)
        if column not in (_FILE, _SPLIT, _PATIENT)
    ]
    labels = [number for number in candidates if _is_label(rows.values(), number)]
    if not labels:
        problem = "has no label column (a column of mostly 0 and 1)"
        raise _unusable(csv_path, problem)
    rules = {"missing": missing_labels, "uncertain": uncertain_labels}
    notes = _check_values(csv_path, columns, rows, labels, rules)
    unused = [columns[number] for number in candidates if number not in labels]
    if unused:
        notes.append(f"columns that are not labels: {', '.join(unused)}")
    values: dict[str, int | None] = {
        text: _READ_AS.get(rules[kind])
        for kind, texts in _UNKNOWN.items()
        for text in texts
    } | _VALUES
    listed: dict[str, list[str]] = {}
    for line, row in rows.items():
        name = _path(csv_path, line, row[columns.index(_FILE)])
        if name in listed:
            raise _unusable(csv_path, f"lists {name!r} more than once")
        listed[name] = row
    patients = _patients(csv_path, columns, rows, listed)
    splits = _splits(csv_path, columns, rows, listed, patients)
    samples: dict[str, list[ImageSample]] = {"train": [], "evaluation": []}
    if skipped := len(listed) - len(splits):
        images = plural(skipped, "test image")
        notes.append(f"{images} skipped: evaluation uses the validation images")
    for name in sorted(splits):
        label = [values[listed[name][number].strip().lower()] for number in labels]
        present = tuple(value for value in label if value is not None)
        if len(present) == len(label):
            samples[splits[name]].append(ImageSample(name, present, None))
    of = {sample.name: split for split, part in samples.items() for sample in part}
    check_patients(csv_path, of, patients)
    if not samples["train"]:
        raise _unusable(csv_path, "lists no image for training")
    split_by = BY_PATIENT if _PATIENT in columns else None
    if _SPLIT in columns:
        split_by = f"its column {_SPLIT!r}"
    contents = Contents(
        [columns[number] for number in labels],
        samples["train"],
        samples["evaluation"],
        is_multi_label=True,
        patients=patients,
        split_by=split_by,
    )
    listing = Listing(
        "multi-label",
        csv_path.parent,
        lambda: contents,
        described_by=[csv_path.name],
        # Other rules make other labels of the same file.
        rule=SPLIT_RULE + "".join(f" {rule}" for rule in rules.values()),
        notes=notes,
    )
    if problem := missing_files(csv_path.parent, listing.files):
        message = (
            f"data={str(csv_path)!r} {problem}. Add the files, or correct their paths, "
            "which are relative to the folder of the CSV file."
        )
        raise ConfigError(message)
    return listing


def check_rules(rules: Mapping[str, str]) -> None:
    """Raise for unknown label rules, given by field."""
    for field, rule in rules.items():
        if rule not in (known := ["refuse", *_READ_AS]):
            message = f"{field}={rule!r} is unknown. Use one of {', '.join(known)}."
            raise ConfigError(message)


def read_columns(csv_path: Path) -> tuple[list[str], dict[int, list[str]]]:
    """Return a CSV file's columns, and its rows by the number of their last line."""
    try:
        with io.TextIOWrapper(
            open_regular(csv_path), encoding="utf-8-sig", newline=""
        ) as file:
            reader = csv.reader(file, strict=True)
            columns = next(reader, [])
            filled = (row for row in reader if any(map(str.strip, row)))
            return columns, {reader.line_num: row for row in filled}  # noqa: B035
    except OSError as error:
        message = f"cannot be read ({error.strerror or error})"
    except (csv.Error, UnicodeDecodeError) as error:
        message = f"is not a CSV file in UTF-8 ({error})"
    raise ValueError(message)


def missing_files(root: Path, names: Sequence[str]) -> str | None:
    """Return the problem of a list with missing images, or None."""
    with ThreadPoolExecutor(_STAT_THREADS) as pool:
        paths = (root / name for name in names)
        there = list(pool.map(os.path.isfile, paths, chunksize=256))
    missing = [
        name for name, is_there in zip(names, there, strict=True) if not is_there
    ]
    if not missing:
        return None
    return missing_in_words(plural(len(names), "file"), missing)


def missing_in_words(listed: str, missing: Sequence[str]) -> str:
    """Return the problem of a list of which some images are missing."""
    are = "is" if len(missing) == 1 else "are"
    return f"lists {listed}, of which {len(missing):,} {are} missing ({few(missing)})"


def check_patients(
    csv_path: Path, splits: Mapping[str, str], patients: Mapping[str, str]
) -> None:
    """Raise if a patient is in both training and evaluation."""
    splits_of: dict[str, set[str]] = {}
    for name in patients.keys() & splits.keys():
        splits_of.setdefault(patients[name], set()).add(splits[name])
    both = sorted(patient for patient, where in splits_of.items() if len(where) > 1)
    if both:
        message = (
            f"data={str(csv_path)!r} has {plural(len(both), 'patient')} in both "
            f"training and evaluation (leakage: {few(both)}). Assign each patient to "
            "one split, or remove the column 'split' (NIH: train_val_list.txt and "
            "test_list.txt): nbkit then splits by patient."
        )
        raise ConfigError(message)


def _is_label(rows: Iterable[Sequence[str]], place: int) -> bool:
    """Return whether most values of a column that say something are 0 or 1."""
    counts = Counter(_kind(row[place]) for row in rows)
    return counts["value"] > counts["other"]


def _kind(text: str) -> str:
    text = text.strip().lower()
    if text in _VALUES:
        return "value"
    kinds = (kind for kind, texts in _UNKNOWN.items() if text in texts)
    return next(kinds, "other")


def _check_values(
    csv_path: Path,
    columns: Sequence[str],
    rows: Mapping[int, Sequence[str]],
    labels: Sequence[int],
    rules: Mapping[str, str],
) -> list[str]:
    """Refuse values of labels that no rule is for; say what the others are read as."""
    lines: dict[str, dict[str, list[int]]] = {}
    for number in labels:
        for line, row in rows.items():
            kind = _kind(row[number])
            if kind != "value":
                lines.setdefault(kind, {}).setdefault(columns[number], []).append(line)
    problems, notes = [], []
    for kind, by_column in lines.items():
        counts = [
            f"{len(where):,} of {len(rows):,} in {name}"
            for name, where in by_column.items()
        ]
        rule = rules.get(kind, "refuse")
        if rule != "refuse":
            what = f"images with {kind} labels ({few(counts)}) are omitted"
            if (value := _READ_AS[rule]) is not None:
                what = f"{kind} labels ({few(counts)}) are read as {value}"
            notes.append(f"{what}: {kind}_labels={rule!r}")
            continue
        name, where = next(iter(by_column.items()))
        text = rows[where[0]][columns.index(name)]
        remedy = "write 0 or 1, or remove the column if it is not a label"
        if kind in rules:
            remedy = (
                f"set {kind}_labels='zero' or 'one' to read them as 0 or 1, or "
                "'ignore' to omit their images (in nbkit.launch, a notebook or "
                f"nbkit.datasets.pack), or {remedy}"
            )
        problems.append(
            f"data={str(csv_path)!r} has {name}={text!r} in line {where[0]}; "
            f"{_KINDS[kind]} values: {few(counts)}. {remedy[:1].upper()}{remedy[1:]}."
        )
    if problems:
        raise ConfigError("\n".join(problems))
    return notes


def _patients(
    csv_path: Path,
    columns: Sequence[str],
    rows: Mapping[int, Sequence[str]],
    listed: Mapping[str, Sequence[str]],
) -> dict[str, str]:
    """Return the patient of every file; nothing without the column."""
    if _PATIENT not in columns:
        return {}
    place = columns.index(_PATIENT)
    for line, row in rows.items():
        if not row[place].strip():
            problem = f"has no {_PATIENT} in line {line}"
            raise _unusable(csv_path, problem)
    return {name: row[place].strip() for name, row in listed.items()}


def _splits(
    csv_path: Path,
    columns: Sequence[str],
    rows: Mapping[int, Sequence[str]],
    listed: Mapping[str, Sequence[str]],
    patients: Mapping[str, str],
) -> dict[str, str]:
    """Return ``train`` or ``evaluation`` for every file that is used."""
    if _SPLIT not in columns:
        return dict.fromkeys(listed, "train") | split_by_patient(patients)
    place = columns.index(_SPLIT)
    for line, row in rows.items():
        if split_of(split := row[place].strip()) is None:
            known = [*TRAINING, *EVALUATION]
            problem = f"has split={split!r} in line {line}, not one of {known}"
            raise _unusable(csv_path, problem)
    named = {name: split_of(row[place].strip()) for name, row in listed.items()}
    unused = "test" if "validation" in named.values() else None
    return {
        name: "train" if split == "train" else "evaluation"
        for name, split in named.items()
        if split != unused
    }


def _check_table(
    csv_path: Path, columns: Sequence[str], rows: Mapping[int, Sequence[str]]
) -> None:
    if _FILE not in columns:
        problem = f"has no column {_FILE!r} (columns: {', '.join(columns) or 'none'})"
        raise _unusable(csv_path, problem)
    repeated = {column for column in columns if columns.count(column) > 1}
    if repeated:
        problem = f"has duplicate columns ({', '.join(map(repr, sorted(repeated)))})"
        raise _unusable(csv_path, problem)
    if not rows:
        raise _unusable(csv_path, "lists no image")
    for line, row in rows.items():
        if len(row) != len(columns):
            problem = (
                f"has {plural(len(row), 'value')} in line {line}, not {len(columns)}"
            )
            raise _unusable(csv_path, problem)


def _path(csv_path: Path, line: int, text: str) -> str:
    path = PurePosixPath(text)
    if not path.name or path.is_absolute() or ".." in path.parts:
        problem = f"lists {text!r} in line {line}, not a relative path below its folder"
        raise _unusable(csv_path, problem)
    return str(path)


def _unusable(csv_path: Path, problem: str) -> ConfigError:
    return ConfigError(
        f"data={str(csv_path)!r} {problem}. Pass a CSV file with a column 'file' "
        "(paths below its folder), label columns of 0 and 1 and, for evaluation, a "
        "column 'split' (train or val) or 'patient_id'."
    )
