"""Image files in class folders, as torchvision's ImageFolder reads them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from itertools import groupby
from pathlib import Path

from nbkit.datasets.folders import (
    check_links,
    is_hidden,
    names_in,
    readable,
    subfolders,
)
from nbkit.datasets.listing import IMAGE_SUFFIXES, Contents, Listing, is_image
from nbkit.datasets.samples import ImageSample
from nbkit.datasets.skipped_files import is_archive, remedy, suffix_kind
from nbkit.datasets.splits import (
    TRAINING,
    has_split_word,
    split_of,
    splits_among,
    splits_in,
)
from nbkit.errors import ConfigError
from nbkit.plural import few, plural


def list_image_folder(root: Path) -> Listing:
    """Return the images in class folders."""
    # Either ``train/<class>/`` and, for evaluation, ``val/<class>/``; or ``<class>/``
    # alone, which has no evaluation images. The splits may have any of their usual
    # names, in any case; test is for evaluation where there is no val, and it has no
    # other classes than train. Folders inside a class belong to it, and links are
    # followed. Names that begin with a dot are skipped, and ``lost+found``.
    # Folders in ``train/`` are classes whatever their names are. Without it, folders
    # that are parts of a data set by their names, or that hold no image themselves but
    # folders of the same names, are refused: they may be splits, folds or variants.
    with readable(root):
        contents, skipped_files, notes = _list(root)
    return Listing(
        "image folder", root, lambda: contents, skipped_files=skipped_files, notes=notes
    )


def has_images_in_folders(root: Path) -> bool:
    """Return whether any subfolder contains an image; stops at the first."""
    return any(_holds_image(root / name) for name in subfolders(root))


def _list(root: Path) -> tuple[Contents, Counter[str], list[str]]:
    check_links(root, root, split_of)
    train, evaluation = _splits(root)
    base = root / train if train else root
    read = [base, root / evaluation] if evaluation else [base]
    for folder in read:
        check_links(root, folder)
    classes = subfolders(base)
    _check_classes(root, base, classes)
    files = _Files(root)
    training = files.samples(base, classes)
    if base == root:
        _check_variants(root, classes, training)
    notes: list[str] = []
    tested: list[ImageSample] = []
    if evaluation:
        if split_of(evaluation) == "validation":
            _check_known(root, evaluation, train, classes)
        tested = files.samples(root / evaluation, classes, may_be_empty=True)
    for folder in dict.fromkeys((root, *read)):
        names = names_in(folder)[1]
        beside = (name for name in names if is_image(name) or is_archive(name))
        files.skipped_files.update(map(suffix_kind, beside))
    unread = [
        name
        for name in (subfolders(root) if train else ())
        if name not in (train, evaluation)
        and not (root / name).is_symlink()  # which may lead anywhere
        and _holds_image(root / name)
    ]
    if unread:
        notes.append(f"skipped folders with images: {few(unread)}")
    return Contents(classes, training, tested), files.skipped_files, notes


def _splits(root: Path) -> tuple[str, str]:
    """Return the folders for training and evaluation; nothing for those not there."""
    folders: dict[str | None, list[str]] = {}
    for name in subfolders(root):
        folders.setdefault(split_of(name), []).append(name)
    siblings = folders.pop(None, [])
    for split, names in folders.items():
        if len(names) > 1:
            problem = f"{' and '.join(names)} are folders of the same split ({split})"
            raise _unclear(root, problem, "merge them into one folder")
    train, *tested = (
        folders.get(split, [""])[0] for split in ("train", "validation", "test")
    )
    evaluation = [name for name in tested if name]
    if train and subfolders(root / train):
        return train, _evaluation(root, train, evaluation)
    if evaluation and (train or not _is_class(root, evaluation, siblings)):
        name = evaluation[0]
        missing = f"no folder is called {' or '.join(TRAINING)}"
        missing = f"{train}/ has no class folder" if train else missing
        where = train or "train"
        how = f"put images into {where}/<class>/, or rename {name}/ if it is a class"
        raise _unclear(root, f"{name}/ looks like a split, but {missing}", how)
    return "", ""  # A class may be called "train": it then holds images, not classes.


def _is_class(root: Path, names: list[str], siblings: list[str]) -> bool:
    """Tell whether a folder with the name of a split is a class, beside others."""
    return (
        len(names) == 1
        and bool(_images_in(root / names[0]))
        and not has_images_in_folders(root / names[0])
        and any(_images_in(root / name) for name in siblings)
    )


def _evaluation(root: Path, train: str, names: list[str]) -> str:
    """Return the first folder that has classes; those of a test may be others."""
    for name in names:
        folders = subfolders(root / name)
        if split_of(name) == "test":
            tested = set(
                filter(lambda inside: _holds_image(root / name / inside), folders)
            )
            if tested and tested <= set(subfolders(root / train)):
                return name
            continue
        if folders:
            return name
        if _holds_image(root / name):
            problem = f"{name}/ contains images, but no class folder"
            raise _unclear(root, problem, f"put the images into {name}/<class>/")
    return ""


def _check_classes(root: Path, base: Path, classes: list[str]) -> None:
    if len(classes) < 2:
        there = (base, *(base / name for name in classes))
        counts = Counter(
            suffix_kind(name) for here in there for name in names_in(here)[1]
        )
        deeper = [_class_root(base / name) for name in classes]
        how = f"{_data_hint(deeper)}put the images of each class into a separate "
        message = (
            f"data={str(root)!r} has {plural(len(classes), 'class folder')} in "
            f"{base}, but a classifier needs 2 or more{remedy(counts)}. "
            f"{_capital(how)}subfolder, or into train/<class>/ and val/<class>/."
        )
        raise ConfigError(message)
    if base != root:  # There, a class may have such a word in its name.
        parts = classes if all(map(split_of, classes)) else []
    else:
        parts = splits_among(classes) or [
            name
            for name in classes
            if has_split_word(name)
            and subfolders(root / name)
            and not _images_in(root / name)
        ]
    if parts:
        problem = f"the class folders look like splits ({few(parts)})"
        deeper = [_class_root(base / name) for name in parts]
        how = "put class folders into train/ and, for evaluation, val/"
        raise _unclear(root, problem, f"{_data_hint(deeper)}{how}")


def _class_root(folder: Path) -> Path | None:
    """Return the folder with several folders, here or below single ones; or None."""
    with suppress(OSError):
        while len(folders := subfolders(folder)) == 1 and not _images_in(folder):
            folder /= folders[0]
        if len(folders) > 1:
            return folder
    return None


def _data_hint(folders: Iterable[Path | None]) -> str:
    """Return which of these folders to name, as a remedy; nothing if there is none."""
    there = [folder for folder in folders if folder is not None]
    # Of splits, that for training.
    there.sort(key=lambda folder: "train" not in folder.name.lower())
    return f"use data={str(there[0])!r}, or " if there else ""


def _check_variants(root: Path, classes: list[str], images: list[ImageSample]) -> None:
    """Refuse classes that hold only folders of the same names."""
    # These may be folds, sites or variants, of which the folders within are the
    # classes.
    inside: dict[str, set[str]] = {}
    for label, samples in groupby(images, lambda sample: sample.label):  # by name
        assert isinstance(label, int)
        name = classes[label]
        paths = [sample.name for sample in samples]
        inside[name] = _folders_inside(f"{name}/", paths)
    counts = Counter(name for folders in inside.values() for name in folders)
    shared = {name for name, count in counts.items() if count > 1}
    alike = [name for name, folders in inside.items() if len(folders & shared) > 1]
    if alike:
        names = few(sorted(shared))
        hold = f"contain no images, only subfolders with the same names ({names})"
        problem = f"the class folders {few(alike)} {hold}"
        # Images beside their masks are no classes either.
        deeper = [] if splits_among(sorted(shared)) else [_class_root(root / alike[0])]
        how = (
            f"{_data_hint(deeper)}put the images of each class into one folder, or, if "
            "these folders are classes, move them into train/"
        )
        raise _unclear(root, problem, how)


def _folders_inside(prefix: str, images: list[str]) -> set[str]:
    """Return the folders that hold the images of a class, which holds none itself."""
    while True:
        if any("/" not in image[len(prefix) :] for image in images):
            return set()
        folders = {image[len(prefix) :].partition("/")[0] for image in images}
        if len(folders) > 1:
            return folders
        prefix += f"{folders.pop()}/"


def _unclear(root: Path, problem: str, how: str) -> ConfigError:
    return ConfigError(
        f"data={str(root)!r}: {problem}, so the classes are unclear. {_capital(how)}."
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _images_in(folder: Path) -> list[str]:
    return [name for name in names_in(folder)[1] if is_image(name)]


def _holds_image(folder: Path) -> bool:
    """Tell whether an image is in a folder or further down, but not by a link."""
    return any(
        is_image(name) and not is_hidden(name)
        for _, _, names in os.walk(folder)
        for name in names
    )


class _Files:
    """Walks the classes of a data set, in which each folder counts once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.skipped_files: Counter[str] = Counter()
        self._seen: dict[str, str] = {}
        self._refuse_repeated(str(root))

    def samples(
        self, base: Path, classes: list[str], *, may_be_empty: bool = False
    ) -> list[ImageSample]:
        """Return the images of every class."""
        samples: list[ImageSample] = []
        empty: list[str] = []
        self._refuse_repeated(str(base))
        for label, name in enumerate(classes):
            images = self._images(base / name) if (base / name).is_dir() else []
            samples += (ImageSample(path, label, None) for path in images)
            if not images:
                empty.append(name)
        if empty and not may_be_empty:
            message = (
                f"data={str(self._root)!r} has "
                f"{plural(len(empty), 'class', 'classes')} without images "
                f"({few(empty)}; image suffixes: "
                f"{' '.join(IMAGE_SUFFIXES)}){remedy(self.skipped_files)}. Add images "
                "or remove the folders."
            )
            raise ConfigError(message)
        samples.sort(key=lambda sample: sample.name)
        return samples

    def _images(self, folder: Path) -> list[str]:
        """Return the images of a class, also those in folders further down."""
        names: list[str] = []
        waiting = [str(folder)]
        while waiting:
            here = waiting.pop()
            self._refuse_repeated(here)
            folders, files = names_in(here)
            waiting += (f"{here}/{name}" for name in folders)
            parts = [*filter(split_of, folders), *splits_among(folders)]
            if len(set().union(*map(splits_in, parts))) > 1:
                problem = f"{here} looks like a class folder, but contains splits"
                how = "put images into train/<class>/ and val/<class>/"
                raise _unclear(self._root, problem, how)
            relative = os.path.relpath(here, self._root)
            for name in files:
                if is_image(name):
                    names.append(f"{relative}/{name}")
                else:
                    self.skipped_files[suffix_kind(name)] += 1
        return names

    def _refuse_repeated(self, folder: str) -> None:
        first = self._seen.setdefault(os.path.realpath(folder), folder)
        if first != folder:
            message = (
                f"data={str(self._root)!r}: {first} and {folder} are the same "
                "folder, through a link, so images would be read twice. Remove the "
                "link."
            )
            raise ConfigError(message)


def _check_known(root: Path, evaluation: str, train: str, classes: list[str]) -> None:
    unknown = sorted(set(subfolders(root / evaluation)) - set(classes))
    if unknown:
        message = (
            f"data={str(root)!r}: {evaluation}/ has "
            f"{plural(len(unknown), 'class', 'classes')} that {train}/ lacks "
            f"({few(unknown)}). Use the same class folders in both."
        )
        raise ConfigError(message)
