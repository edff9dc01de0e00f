"""Images with several labels each, listed in a CSV file."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

from nbkit.datasets.listing import Contents, Listing
from nbkit.datasets.samples import Sample
from nbkit.errors import ConfigError

__all__ = ["list_multi_label"]

_FILE, _SPLIT = "file", "split"
_SPLITS = {
    "train": "train",
    "val": "evaluation",
    "valid": "evaluation",
    "validation": "evaluation",
    "test": "evaluation",
}
_STAT_THREADS = 16
"""For disks that answer slowly."""


def list_multi_label(csv_path: Path) -> Listing:
    """Return the images that a CSV file lists.

    Parameters
    ----------
    csv_path
        Its column ``file`` holds paths relative to the CSV file's folder. A column
        ``split`` may hold train, or val, valid, validation or test for evaluation;
        without it everything is for training. Of the other columns those are labels
        that hold nothing but 0 and 1.

    Raises
    ------
    ConfigError
        If the file cannot be read or used so, or if images that it names are missing.
    """
    try:
        with csv_path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            columns = next(reader, [])
            rows = dict(_numbered(reader))
    except OSError as error:
        raise _unusable(csv_path, f"cannot be read ({error.strerror})") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise _unusable(csv_path, f"is no CSV file in UTF-8 ({error})") from error
    _check_table(csv_path, columns, rows)
    labels = [
        number
        for number, column in enumerate(columns)
        if column not in (_FILE, _SPLIT)
        and {row[number] for row in rows.values()} <= {"0", "1"}
    ]
    if not labels:
        problem = "has no column of labels, which holds nothing but 0 and 1"
        raise _unusable(csv_path, problem)
    samples: dict[str, list[Sample]] = {"train": [], "evaluation": []}
    for line, row in rows.items():
        name = _path(csv_path, line, row[columns.index(_FILE)])
        split = row[columns.index(_SPLIT)].strip() if _SPLIT in columns else "train"
        if split.lower() not in _SPLITS:
            problem = f"says split={split!r} in line {line}, not one of {[*_SPLITS]}"
            raise _unusable(csv_path, problem)
        label = tuple(int(row[number]) for number in labels)
        samples[_SPLITS[split.lower()]].append(Sample(name, label, None))
    if not samples["train"]:
        raise _unusable(csv_path, "lists no image for training")
    for part in samples.values():
        part.sort(key=lambda sample: sample.name)
    contents = Contents(
        [columns[number] for number in labels],
        samples["train"],
        samples["evaluation"],
        is_multi_label=True,
    )
    listing = Listing(
        "multi-label",
        csv_path.parent,
        lambda: contents,
        described_by=[csv_path.name],
    )
    _check_files(csv_path, listing.files)
    return listing


def _numbered(reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of a row's last line, and the row."""
    for row in reader:
        if row:
            yield reader.line_num, row


def _check_table(
    csv_path: Path, columns: Sequence[str], rows: Mapping[int, Sequence[str]]
) -> None:
    if _FILE not in columns:
        problem = f"has no column {_FILE!r}, only {', '.join(columns) or 'nothing'}"
        raise _unusable(csv_path, problem)
    repeated = {column for column in columns if columns.count(column) > 1}
    if repeated:
        problem = f"has several columns {', '.join(map(repr, sorted(repeated)))}"
        raise _unusable(csv_path, problem)
    if not rows:
        raise _unusable(csv_path, "lists no image")
    for line, row in rows.items():
        if len(row) != len(columns):
            problem = f"has {len(row)} values in line {line}, not {len(columns)}"
            raise _unusable(csv_path, problem)


def _path(csv_path: Path, line: int, text: str) -> str:
    path = PurePosixPath(text)
    if not path.name or path.is_absolute() or ".." in path.parts:
        problem = f"names the file {text!r} in line {line}, which lies elsewhere"
        raise _unusable(csv_path, problem)
    return str(path)


def _check_files(csv_path: Path, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise _unusable(csv_path, f"lists {name!r} more than once")
        seen.add(name)
    with ThreadPoolExecutor(_STAT_THREADS) as pool:
        paths = (csv_path.parent / name for name in names)
        there = list(pool.map(os.path.isfile, paths, chunksize=256))
    missing = [
        name for name, is_there in zip(names, there, strict=True) if not is_there
    ]
    if missing:
        some = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        problem = (
            f"lists {len(missing)} of {len(names)} files that are missing ({some})"
        )
        raise _unusable(csv_path, problem)


def _unusable(csv_path: Path, problem: str) -> ConfigError:
    return ConfigError(
        f"data={str(csv_path)!r} {problem}; give a CSV file with a column 'file' of "
        "paths below its folder, columns of 0 and 1 for the labels, and, if there are "
        "images for evaluation, a column 'split' of train and val."
    )
