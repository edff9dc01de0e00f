"""Image files in class folders, as torchvision's ImageFolder reads them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path

from nbkit.datasets.folders import (
    all_names_in,
    check_links,
    check_splits,
    files_below,
    names_in,
    subfolders,
)
from nbkit.datasets.listing import IMAGE_SUFFIXES, Contents, Listing, is_one_by_link
from nbkit.datasets.passed_over import HIDDEN_FOLDERS, is_archive, kind_of, remedy
from nbkit.datasets.samples import Sample
from nbkit.datasets.splits import (
    TRAINING,
    has_split_word,
    split_of,
    splits_among,
    splits_in,
)
from nbkit.errors import ConfigError
from nbkit.plural import plural

_NAMED_IN_MESSAGE = 3

_FILE_SUFFIXES = (
    *(".md", ".rst", ".txt", ".pdf", ".html", ".doc", ".docx", ".bib", ".cff"),
    *(".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".toml", ".ini"),
    *(".xls", ".xlsx", ".parquet", ".npy", ".npz", ".pkl", ".mat", ".h5", ".db"),
    *(".py", ".ipynb", ".sh", ".log", ".md5", ".sha1", ".sha256", ".gif", ".svg"),
)
_FILE_NAMES = ("license", "licence", "copying", "readme", "makefile", "changelog")
"""Of files beside classes: where a link with such a name leads nowhere, no class is."""


def list_image_folder(root: Path) -> Listing:
    """Return the images in class folders.

    Either ``train/<class>/`` and, for evaluation, ``val/<class>/``; or ``<class>/``
    alone, which has no evaluation images. The splits may have any of their usual names,
    in any case; test is for evaluation where there is no val, and it has no other
    classes than train. Folders inside a class belong to it, and links are followed.
    Names that begin with a dot are skipped, and ``lost+found``; hidden images are
    counted, and so are hidden folders.

    Notes
    -----
    Folders in ``train/`` are classes whatever their names are. Without it, folders that
    are parts of a data set by their names, or that hold no image themselves but folders
    of the same names, are refused: they may be splits, folds or variants.
    """
    if not root.is_dir():
        found = "is a file" if root.exists() else "does not exist"
        message = (
            f"data={str(root)!r} {found}; give the path of a folder of images, or "
            "'synthetic'."
        )
        raise ConfigError(message)
    try:
        contents, passed_over, notes = _list(root)
    except OSError as error:
        message = (
            f"data={str(root)!r}: {error.filename} cannot be read "
            f"({error.strerror}); fix its permissions or copy the data elsewhere."
        )
        raise ConfigError(message) from error
    return Listing(
        "image folder", root, lambda: contents, beside=passed_over, notes=notes
    )


def has_images_in_folders(root: Path) -> bool:
    """Tell whether any subfolder holds an image; stops at the first."""
    return any(_holds_image(root / name) for name in subfolders(root))


def _list(root: Path) -> tuple[Contents, Counter[str], list[str]]:
    broken = check_splits(root, has_validation=_has_validation(root))
    train, evaluation = _splits(root)
    base = root / train if train else root
    for folder in (base, root / evaluation) if evaluation else (base,):
        check_links(root, folder, _may_be_class)
    classes = subfolders(base)
    _check_classes(root, base, classes)
    files = _Files(root)
    training = _samples(root, files, base, classes)
    notes = _check_variants(root, base, classes, training)
    tested: list[Sample] = []
    if evaluation:
        if split_of(evaluation) == "validation":
            _check_known(root, evaluation, train, classes)
        tested = _samples(root, files, root / evaluation, classes, may_be_empty=True)
    passed_over = files.passed_over + _outside(root, train, evaluation, classes)
    return Contents(classes, training, tested), passed_over + broken, notes


def _has_validation(root: Path) -> bool:
    """Tell whether a folder for validation holds one of a class."""
    names = (name for name in subfolders(root) if split_of(name) == "validation")
    return any(subfolders(root / name) for name in names)


def _splits(root: Path) -> tuple[str, str]:
    """Return the folders for training and evaluation; nothing for those not there."""
    found: dict[str | None, list[str]] = {}
    for name in subfolders(root):
        found.setdefault(split_of(name), []).append(name)
    others = found.pop(None, [])
    for split, folders in found.items():
        if len(folders) > 1:
            folders[:] = [one for one in folders if _holds_image(root / one)] or folders
        if len(folders) > 1:
            both = "both" if len(folders) == 2 else "all"
            problem = f"{' and '.join(folders)} {both} name the {split} split"
            raise _unclear(root, problem, "put their images into one folder")
    train, *tested = (
        found.get(split, [""])[0] for split in ("train", "validation", "test")
    )
    evaluation = [name for name in tested if name]
    if train and subfolders(root / train):
        if not evaluation:
            _check_is_split(root, train, others)
        return train, _evaluation(root, train, evaluation)
    if evaluation and (train or not _is_class(root, evaluation, others)):
        name = evaluation[0]
        missing = f"no folder is called {' or '.join(TRAINING)}"
        missing = f"{train}/ has no folder of a class" if train else missing
        problem = f"{name}/ looks like a split, but {missing}"
        how = f"put images into train/<class>/, or rename {name}/ if it is a class"
        raise _unclear(root, problem, how)
    return "", ""  # A class may be called "train": it then holds images, not classes.


def _check_is_split(root: Path, train: str, others: list[str]) -> None:
    """Refuse classes beside a folder that may be one itself, with folders in it."""
    if len(subfolders(root / train)) > 1 and not _images_in(root / train):
        return
    beside = [name for name in others if _holds_image(root / name)]
    if beside:
        problem = (
            f"{train}/ looks like a split, since it has folders, and like a class "
            f"beside others with images ({_few(beside)})"
        )
        how = f"move those elsewhere, or rename {train}/ if it is a class"
        raise _unclear(root, problem, how)


def _is_class(root: Path, names: list[str], others: list[str]) -> bool:
    """Tell whether a folder with the name of a split is a class, beside others."""
    return (
        len(names) == 1
        and bool(_images_in(root / names[0]))
        and not has_images_in_folders(root / names[0])
        and any(_images_in(root / name) for name in others)
    )


def _evaluation(root: Path, train: str, names: list[str]) -> str:
    """Return the first folder that has classes; those of a test may be others."""
    for name in names:
        folders = subfolders(root / name)
        if split_of(name) == "test":
            tested = {one for one in folders if _holds_image(root / name / one)}
            if tested and tested <= set(subfolders(root / train)):
                return name
            continue
        if folders:
            return name
        if _holds_image(root / name):
            problem = f"{name}/ holds images, but no folder of a class"
            raise _unclear(root, problem, f"put them into {name}/<class>/")
    return ""


def _check_classes(root: Path, base: Path, classes: list[str]) -> None:
    if len(classes) < 2:
        there = (base, *(base / name for name in classes))
        counts = Counter(kind_of(name) for here in there for name in names_in(here)[1])
        deeper = [_level(base / name) for name in classes]
        message = (
            f"data={str(root)!r} has {plural(len(classes), 'class folder')} in "
            f"{base}, but a classifier needs 2 or more{remedy(counts)}; "
            f"{_name_one(deeper)}put the images of each class into its own subfolder, "
            "or into train/<class>/ and val/<class>/."
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
        problem = f"the class folders look like splits ({_few(parts)})"
        deeper = [_level(base / name) for name in parts]
        how = "put classes into train/ and, for evaluation, val/"
        raise _unclear(root, problem, f"{_name_one(deeper)}{how}")


def _level(folder: Path) -> Path | None:
    """Return the folder with several folders, here or below single ones; or None."""
    with suppress(OSError):
        while len(folders := subfolders(folder)) == 1 and not _images_in(folder):
            folder /= folders[0]
        if len(folders) > 1:
            return folder
    return None


def _name_one(folders: Iterable[Path | None]) -> str:
    """Return which of these folders to name, as a remedy; nothing if there is none."""
    there = [folder for folder in folders if folder is not None]
    # Of splits, that for training.
    there.sort(key=lambda folder: "train" not in folder.name.lower())
    return f"name data={str(there[0])!r}, or " if there else ""


def _check_variants(
    root: Path, base: Path, classes: list[str], images: list[Sample]
) -> list[str]:
    """Refuse classes that hold only folders of the same names; return what to note.

    These may be folds, sites or variants, of which the folders within are the classes.
    """
    prefix = "" if base == root else f"{base.name}/"
    inside: dict[str, set[str]] = {}
    for label, samples in groupby(images, lambda sample: sample.label):  # by name
        assert isinstance(label, int)
        name = classes[label]
        paths = [sample.name for sample in samples]
        inside[name] = _folders_inside(f"{prefix}{name}/", paths)
    counts = Counter(name for folders in inside.values() for name in folders)
    shared = {name for name, count in counts.items() if count > 1}
    alike = [name for name, folders in inside.items() if len(folders & shared) > 1]
    hold = f"hold no image but folders of the same names ({_few(sorted(shared))})"
    if alike and base == root:
        problem = f"the class folders {_few(alike)} {hold}"
        how = (
            f"{_name_one([_level(base / alike[0])])}put the images of a class into one "
            "folder, or all these folders into train/ if they are classes"
        )
        raise _unclear(root, problem, how)
    if alike:
        return [f"the classes {_few(alike)} {hold}"]
    if all(inside.values()):
        return [
            f"no class folder holds an image itself, but folders do: {_few([*counts])}"
        ]
    return []


def _folders_inside(prefix: str, images: list[str]) -> set[str]:
    """Return the folders that hold the images of a class, which holds none itself.

    A folder that is alone in another is passed through.
    """
    while True:
        if any("/" not in image[len(prefix) :] for image in images):
            return set()
        folders = {image[len(prefix) :].partition("/")[0] for image in images}
        if len(folders) > 1:
            return folders
        prefix += f"{folders.pop()}/"


def _unclear(root: Path, problem: str, how: str) -> ConfigError:
    return ConfigError(
        f"data={str(root)!r}: {problem}, so nbkit cannot know which folders are "
        f"classes; {how}."
    )


def _few(names: list[str]) -> str:
    more = ", ..." if len(names) > _NAMED_IN_MESSAGE else ""
    return ", ".join(names[:_NAMED_IN_MESSAGE]) + more


def _is_image(name: str) -> bool:
    return name.lower().endswith(IMAGE_SUFFIXES)


def _is_data(name: str) -> bool:
    return _is_image(name) or is_archive(name)


def _may_be_class(name: str) -> bool:
    """Tell a folder's name from a file's; classes may have dots in theirs."""
    is_file = name.lower().endswith(_FILE_SUFFIXES) or name.lower() in _FILE_NAMES
    return not (is_file or _is_data(name))


def _images_in(folder: Path) -> list[str]:
    return [name for _, name in files_below(folder, further=False) if _is_image(name)]


def _holds_image(folder: Path) -> bool:
    return any(_is_image(name) for _, name in files_below(folder))


class _Files:
    """Walks the classes of a data set, in which each folder counts once.

    Parameters
    ----------
    root
        What names are relative to.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.passed_over: Counter[str] = Counter()
        self._seen = {_identity(root): str(root)}

    def enter(self, base: Path) -> None:
        """Begin with another folder of classes, which is none itself."""
        if base != self._root:
            self._see(str(base))

    def images(self, folder: Path) -> list[str]:
        """Return the images of a class, also those in folders further down."""
        names: list[str] = []
        # os.walk calls itself for each folder within a folder, which has an end.
        waiting = [str(folder)]
        while waiting:
            here = waiting.pop()
            self._see(here)
            folders, files, hidden_folders, hidden = all_names_in(here)
            waiting += (f"{here}/{name}" for name in folders)
            parts = [*filter(split_of, folders), *splits_among(folders)]
            if len(set().union(*map(splits_in, parts))) > 1:
                problem = f"{here} looks like a class, but holds splits"
                how = "put images into train/<class>/ and val/<class>/"
                raise _unclear(self._root, problem, how)
            relative = os.path.relpath(here, self._root)
            for name in files:
                if _is_image(name):
                    names.append(f"{relative}/{name}")
                else:
                    self.passed_over[kind_of(name)] += 1
            self.passed_over.update(map(kind_of, filter(_is_image, hidden)))
            self.passed_over.update(HIDDEN_FOLDERS for _ in hidden_folders)
        return names

    def _see(self, folder: str) -> None:
        identity = _identity(folder)
        first = self._seen.setdefault(identity, folder)
        # Some file systems number no folder, or several alike.
        if identity[1] and first != folder and is_one_by_link(first, folder):
            message = (
                f"data={str(self._root)!r}: {first} and {folder} are one folder, "
                "by a link, so that its images would count more than once; remove the "
                "link."
            )
            raise ConfigError(message)


def _identity(folder: Path | str) -> tuple[int, int]:
    found = os.stat(folder)  # noqa: PTH116 - of text, as scandir gives it
    return found.st_dev, found.st_ino


def _outside(
    root: Path, train: str, evaluation: str, classes: list[str]
) -> Counter[str]:
    """Count images and archives outside the classes that are used.

    Splits that are not used count all the way down, and so does a folder that holds
    folders of these classes: it may be a split whose name is misspelt.
    """
    counts: Counter[str] = Counter()
    splits = [name for name in (train, evaluation) if name]
    for name in (".", *splits):
        counts.update(_counted(root, name, further=False))
        counts.update(_hidden(root, name))
    for name in subfolders(root) if splits else ():
        is_split = split_of(name) is not None
        if name in splits or (not is_split and (root / name).is_symlink()):
            continue
        inside: list[str] = []
        with suppress(PermissionError, FileNotFoundError):
            inside = subfolders(root / name)
        further = is_split or not set(classes).isdisjoint(inside)
        counts.update(_counted(root, name, further=further))
    return counts


def _counted(root: Path, name: str, *, further: bool) -> Iterator[str]:
    """Yield as what each image or archive in a folder is counted."""
    for _, one in files_below(root / name, further=further):
        if _is_data(one):
            yield f"{kind_of(one)} in {name}/"


def _hidden(root: Path, name: str) -> Iterator[str]:
    """Yield as what each hidden folder or image beside classes is counted."""
    _, _, folders, files = all_names_in(root / name)
    yield from (HIDDEN_FOLDERS for _ in folders)  # which may be as large as .git
    yield from (f"{kind_of(one)} in {name}/" for one in files if _is_image(one))


def _samples(
    root: Path,
    files: _Files,
    base: Path,
    classes: list[str],
    *,
    may_be_empty: bool = False,
) -> list[Sample]:
    """Return the images of every class."""
    samples: list[Sample] = []
    empty: list[str] = []
    files.enter(base)
    for label, name in enumerate(classes):
        images = files.images(base / name) if (base / name).is_dir() else []
        samples += (Sample(path, label, None) for path in images)
        if not images:
            empty.append(name)
    if empty and not may_be_empty:
        message = (
            f"data={str(root)!r} has {plural(len(empty), 'class', 'classes')} without "
            f"images ({_few(empty)}), but each needs 1 or more "
            f"({' '.join(IMAGE_SUFFIXES)}){remedy(files.passed_over)}; add images or "
            "remove them."
        )
        raise ConfigError(message)
    samples.sort(key=lambda sample: sample.name)
    return samples


def _check_known(root: Path, evaluation: str, train: str, classes: list[str]) -> None:
    unknown = sorted(set(subfolders(root / evaluation)) - set(classes))
    if unknown:
        message = (
            f"data={str(root)!r}: {evaluation}/ has "
            f"{plural(len(unknown), 'class', 'classes')} that {train}/ has not "
            f"({_few(unknown)}); use the same class folders in both."
        )
        raise ConfigError(message)
