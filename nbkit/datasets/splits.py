"""The usual names of splits, alike for folders, packed files and tables."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

TRAINING = ("train", "training")
_VALIDATION = ("val", "valid", "validation", "validate", "dev", "eval", "evaluation")
_TEST = ("test", "testing")
EVALUATION = (*_VALIDATION, *_TEST)

_SPLITS = {
    **dict.fromkeys(TRAINING, "train"),
    **dict.fromkeys(_VALIDATION, "validation"),
    **dict.fromkeys(_TEST, "test"),
}

_HELD_OUT = {"holdout", "heldout", "unlabeled", "unlabelled"}
_NO_CLASS = (*_HELD_OUT, "labeled", "labelled", "trainval")
_KINDS = {**_SPLITS, **{word: word for word in _NO_CLASS}}
_BESIDE_SPLITS = {"pred", "prediction", "predictions", "background", "query", "gallery"}
"""Of what is no split by itself: beside one, in a name that is otherwise the same."""
_CONTAINERS = {
    *("data", "dataset", "set", "subset", "split", "fold", "folds", "folder", "files"),
    *("image", "images", "img", "imgs", "annotations", "masks", "labels", "trimaps"),
}


def split_of(name: str) -> str | None:
    """Return ``train``, ``validation`` or ``test`` for its name, in any case."""
    return _SPLITS.get(name.lower())


def splits_in(path: str) -> set[str]:
    """Return the splits named by the words of a path, such as ``val-00000.tar``."""
    words = re.split(r"[\W_\d]+", path.lower())
    return {_SPLITS[word] for word in words if word in _SPLITS}


def splits_among(names: Sequence[str]) -> list[str]:
    """Return the folders whose names are those of splits, not of classes."""
    # A single word does not tell: ``bullet_train``, ``test_tube`` and even ``train``
    # may be classes. These are parts: names that are equal but for the split
    # (``seg_train``, ``seg_pred``), of words for splits and containers alone
    # (``train_data``, ``unlabeled``), and all folders if all have such a word, or are
    # numbered containers (``fold_0``, ``x_images_part_1``).
    words = {name: _words(name) for name in names}
    word_lists = [*words.values()]
    is_contained = all(of and _CONTAINERS.issuperset(of) for of in word_lists)
    is_numbered = len({*word_lists}) == 1 and not _CONTAINERS.isdisjoint(word_lists[0])
    kinds = set().union(*map(_kinds, word_lists))
    if is_contained or is_numbered or (all(map(_kinds, word_lists)) and len(kinds) > 1):
        return list(names)
    stems: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for of in word_lists:
        for stem, kind in _stems(of):
            stems[stem].add(kind)
    several = {
        stem
        for stem, kinds in stems.items()
        if len(kinds) > 1 and kinds - _BESIDE_SPLITS
    }
    return [
        name
        for name, of in words.items()
        if _is_part(of) or not several.isdisjoint(stem for stem, _ in _stems(of))
    ]


def has_split_word(name: str) -> bool:
    """Return whether a folder's name contains the word of a split."""
    return bool(_kinds(_words(name)))


def is_held_out(path: str) -> bool:
    """Return whether a packed file's name is for neither training nor evaluation."""
    return not _HELD_OUT.isdisjoint(_words(path)) and not splits_in(path)


def _words(name: str) -> tuple[str, ...]:
    """Return the words of a name, also of one such as ``trainA``."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return tuple(word for word in re.split(r"[\W_\d]+", spaced.lower()) if word)


def _kinds(words: Sequence[str]) -> set[str]:
    return {_KINDS[word] for word in words if word in _KINDS}


def _is_part(words: Sequence[str]) -> bool:
    """Tell whether all words are for splits and containers, and not a single split."""
    named = {word for word in words if word not in _CONTAINERS and len(word) > 1}
    is_alone = len(words) == 1 and words[0] in _SPLITS
    return bool(named) and named <= _KINDS.keys() and not is_alone


def _stems(words: Sequence[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the words without each for a split, and its kind; nothing of one word."""
    for place, word in enumerate(words if len(words) > 1 else ()):
        if word in _KINDS or word in _BESIDE_SPLITS:
            yield (*words[:place], "", *words[place + 1 :]), _KINDS.get(word, word)
