"""Images of a data set, from the ``data`` field of an experiment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nbkit.datasets.cache import NAMED
from nbkit.datasets.downloads import downloaded_folder
from nbkit.datasets.folders import readable
from nbkit.datasets.image_folder import has_images_in_folders, list_image_folder
from nbkit.datasets.listing import Listing
from nbkit.datasets.made_labels import LABELS, made_labels_folder
from nbkit.datasets.multi_label import check_rules, list_multi_label
from nbkit.datasets.nih import is_nih, list_nih, nih_table
from nbkit.datasets.photos import photos_folder
from nbkit.datasets.recordio import is_recordio, list_recordio
from nbkit.datasets.shards import shards_below
from nbkit.datasets.tfrecord import is_tfrecord, list_tfrecord
from nbkit.datasets.webdataset import is_webdataset, list_webdataset
from nbkit.errors import ConfigError
from nbkit.reading import expanded

_PACKED = {
    "WebDataset (*.tar)": (is_webdataset, list_webdataset),
    "RecordIO (*.rec)": (is_recordio, list_recordio),
    "TFRecord (*.tfrecord)": (is_tfrecord, list_tfrecord),
}

_POSSIBLE = (
    "a folder of images (<class>/, or train/<class>/ and val/<class>/), a folder of "
    f"{', '.join(list(_PACKED)[:-1])} or {list(_PACKED)[-1]} files, a CSV file of "
    "labels or NIH ChestX-ray14's table or folder, or one of the names "
    f"{', '.join(map(repr, NAMED))} and (for a run) 'synthetic'"
)


def find(
    data: str,
    *,
    missing_labels: str = "refuse",
    uncertain_labels: str = "refuse",
    on_wait: Callable[[], None] | None = None,
) -> Listing:
    """Return the images that an experiment's ``data`` names."""
    rules = {"missing_labels": missing_labels, "uncertain_labels": uncertain_labels}
    check_rules(rules)
    if data in NAMED:
        if data == "synthetic-multilabel":
            return list_multi_label(made_labels_folder(on_wait=on_wait) / LABELS)
        if data == "photos":
            return list_image_folder(photos_folder(on_wait=on_wait))
        return list_image_folder(downloaded_folder(data, on_wait=on_wait))
    root = expanded(data, "data")
    if root.is_file() and root.suffix.lower() == ".csv":
        if is_nih(root):
            return list_nih(root)
        return list_multi_label(root, **rules)
    if not root.is_dir():
        problem = "is a file" if root.exists() else "does not exist"
        message = f"data={data!r} {problem}. Pass the path of {_POSSIBLE}."
        raise ConfigError(message)
    if (table := nih_table(root)) is not None:
        return list_nih(table)
    with readable(root):
        layouts = _layouts(root)
    if len(layouts) > 1:
        problem = " and ".join(layouts.values())
        message = (
            f"data={data!r} is ambiguous: it contains {problem}. Keep only one kind of "
            "data in this folder."
        )
        raise ConfigError(message)
    for name, (_, list_packed) in _PACKED.items():
        if name in layouts:
            return list_packed(root, on_wait=on_wait)
    return list_image_folder(root)


def _layouts(root: Path) -> dict[str, str]:
    """Return what a folder could be read as, and the first file that says so."""
    layouts: dict[str, str] = {}
    for name, (is_shard, _) in _PACKED.items():
        if shards := shards_below(root, is_shard):
            layouts[name] = f"{name}: {shards[0]}"
    if layouts and has_images_in_folders(root):
        layouts["images"] = "images in folders"
    return layouts
