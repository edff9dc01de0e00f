"""From the word that an experiment has for its data to the images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from nbkit.datasets.cache import NAMED
from nbkit.datasets.downloads import downloaded_folder
from nbkit.datasets.folders import files_below
from nbkit.datasets.image_folder import has_images_in_folders, list_image_folder
from nbkit.datasets.listing import IMAGE_SUFFIXES, Listing
from nbkit.datasets.made_labels import LABELS, made_labels_folder
from nbkit.datasets.multi_label import check_rules, list_multi_label
from nbkit.datasets.nih import is_nih, list_nih, nih_table
from nbkit.datasets.passed_over import in_words, kind_of
from nbkit.datasets.photos import photos_folder
from nbkit.datasets.recordio import is_recordio, list_recordio
from nbkit.datasets.shards import shards_below, unpacked
from nbkit.datasets.tfrecord import is_tfrecord, list_tfrecord
from nbkit.datasets.webdataset import is_webdataset, list_webdataset
from nbkit.errors import ConfigError
from nbkit.plural import plural
from nbkit.reading import expanded

_PACKED = {
    "WebDataset (*.tar)": (is_webdataset, list_webdataset),
    "RecordIO (*.rec)": (is_recordio, list_recordio),
    "TFRecord (*.tfrecord)": (is_tfrecord, list_tfrecord),
}

_POSSIBLE = (
    "a folder of images (<class>/, or train/<class>/ and val/<class>/), a folder of "
    f"{', '.join(list(_PACKED)[:-1])} or {list(_PACKED)[-1]} files, a CSV file of "
    "several labels, NIH ChestX-ray14's table or folder, "
    f"{', '.join(map(repr, NAMED))}, or 'synthetic'"
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
        return _built_in(data, on_wait)
    root = expanded(data, "data")
    if root.is_file() and root.suffix.lower() == ".csv":
        if is_nih(root):
            return list_nih(root)
        return list_multi_label(root, **rules)
    if not root.is_dir():
        found = "is a file" if root.exists() else "does not exist"
        message = f"data={data!r} {found}; give the path of {_POSSIBLE}."
        raise ConfigError(message)
    if (table := nih_table(root)) is not None:
        return list_nih(table)
    try:
        layouts = _layouts(root)
    except OSError as error:
        message = (
            f"data={data!r}: {error.filename} cannot be read ({error.strerror}); fix "
            "its permissions or copy the data elsewhere."
        )
        raise ConfigError(message) from error
    if len(layouts) > 1:
        found = " and ".join(layouts.values())
        message = (
            f"data={data!r} holds {found}, and nbkit cannot choose between them; "
            "move all but one elsewhere."
        )
        raise ConfigError(message)
    for name, (_, list_packed) in _PACKED.items():
        if name in layouts:
            return list_packed(root, on_wait=on_wait)
    return list_image_folder(root)


def _built_in(name: str, on_wait: Callable[[], None] | None) -> Listing:
    if name == "photos":
        return list_image_folder(photos_folder(on_wait=on_wait))
    if name == "made-labels":
        return list_multi_label(made_labels_folder(on_wait=on_wait) / LABELS)
    return list_image_folder(downloaded_folder(name, on_wait=on_wait))


def _layouts(root: Path) -> dict[str, str]:
    """Return what a folder could be read as, and the first file that says so.

    A folder of images in folders alone could be nothing else, and is not named.
    """
    layouts: dict[str, str] = {}
    for name, (is_shard, _) in _PACKED.items():
        if shards := shards_below(root, is_shard):
            layouts[name] = f"{name}: {shards[0]}"
    if not layouts:
        _check_shards(root)
        _check_compressed(root)
    elif has_images_in_folders(root):
        layouts["images"] = "images in folders"
    return layouts


def _check_shards(root: Path) -> None:
    """Name what is called like a shard, but cannot be read, where nothing else is."""
    try:
        for is_shard, _ in _PACKED.values():
            shards_below(root, is_shard, is_pack=True)
    except ConfigError:
        if not has_images_in_folders(root):
            raise


def _check_compressed(root: Path) -> None:
    """Name shards that are compressed where nothing else is: they are not read."""

    def is_compressed(name: str) -> bool:
        inside = unpacked(name) or ""
        return any(is_shard(inside) for is_shard, _ in _PACKED.values())

    def is_image(name: str) -> bool:
        return name.lower().endswith(IMAGE_SUFFIXES)

    shards = shards_below(root, is_compressed)
    if not shards or shards_below(root, is_image) or has_images_in_folders(root):
        return
    suffixes = Image.registered_extensions().items()
    pictures = tuple(suffix for suffix, kind in suffixes if kind in Image.OPEN)
    if any(name.lower().endswith(pictures) for _, name in files_below(root)):
        return  # images that are not read, of which another message speaks
    kinds = in_words(Counter(map(kind_of, shards)))
    first, *others = shards
    have = f"data={str(root)!r} has {plural(len(shards), 'packed file')} that"
    if others:
        are, it, too, they_hold = "are", first, ", and the others too", "they hold"
    else:
        are, it, too, they_hold = "is", "it", "", "it holds"
    message = (
        f"{have} {are} compressed ({kinds}), but only unpacked ones are read; unpack "
        f"{it} to {unpacked(first)}{too}; if {they_hold} class folders, unpack these."
    )
    raise ConfigError(message)
