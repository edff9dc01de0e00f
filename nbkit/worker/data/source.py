"""The data of a training: decided once, and the same for every rank.

Rank 0 lists the data. If they were not looked at yet as they are now, it decodes
every image once and writes a manifest into the store; later runs find it there. The run
gets the manifest into its own folder, where the other ranks wait for it. There is no
collective operation in this: looking at a million images may take longer than one of
these may.
"""

from __future__ import annotations

import functools
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.datasets.enough import check_several_labels
from nbkit.datasets.find import find
from nbkit.datasets.listing import Fingerprint, Listing, alike_classes
from nbkit.datasets.manifest import (
    Manifest,
    known_manifest,
    manifest_name,
    read_manifest,
    write_manifest,
)
from nbkit.datasets.skipped_files import in_words, most_frequent
from nbkit.errors import ConfigError
from nbkit.plural import plural
from nbkit.store.heartbeat import Phase
from nbkit.store.metrics import store_error
from nbkit.store.paths import manifests_folder
from nbkit.store.record import write_json
from nbkit.telemetry.cpus import usable_cpus
from nbkit.worker.data.left_out import by_reason
from nbkit.worker.data.left_out import in_words as reasons_in_words
from nbkit.worker.rank import Rank, say

_POLL_SECONDS = 0.1
_LISTED_IN_RECORD = 100
_LISTED_IN_MESSAGE = 3


def prepare(config: ExperimentConfig, rank: Rank) -> Manifest | None:
    """Return the images of a run, the same on every rank; called by all."""
    if config.data == "synthetic":
        return None
    with rank.ended_by_a_request_to_stop():
        if rank.rank == 0:
            manifest = _decide(config, rank)
        else:
            while not rank.paths.manifest.exists():
                time.sleep(_POLL_SECONDS)
            manifest = read_manifest(rank.paths.manifest)
    if problem := _unusable(config, manifest):
        if rank.rank == 0:
            # No rank gets as far as writing its facts, and the record names them all
            # the same.
            data = describe(config, manifest)
            write_json(rank.paths.worker, {"completed": False, "data": data})
        raise ConfigError(problem)
    if rank.rank == 0:
        for note in _notes(config, manifest):
            say(f"data: {note}")
    if manifest.is_multi_label:
        check_several_labels(config, len(manifest.classes))
    return manifest


def describe(config: ExperimentConfig, manifest: Manifest | None) -> dict[str, Any]:
    """Return facts about the data for the run's record, for any loader."""
    if manifest is None:
        fingerprint = {"source": "synthetic", "seed": config.seed}
        unknown = dict.fromkeys(("kind", "files", "bytes", "sha256"))
        names = ("unreadable", "classes_without_training_images", "high_bit_depth")
        nothing = dict.fromkeys((*names, "skipped_files", "notes"))
        return {"fingerprint": fingerprint | unknown, **nothing}
    # The first image of each reason comes first: no reason is cut off.
    groups = by_reason(manifest.unreadable)
    ordered = [group[0] for group in groups]
    ordered += (image for group in groups for image in group[1:])
    return {
        "fingerprint": manifest.fingerprint,
        "unreadable": {
            "count": len(manifest.unreadable),
            "images": [
                {"name": image.name, "split": image.split, "reason": image.reason}
                for image in ordered[:_LISTED_IN_RECORD]
            ],
        },
        "classes_without_training_images": manifest.classes_without_training_images,
        "notes": list(manifest.notes),
        "high_bit_depth": asdict(manifest.high_bit_depth),
        "skipped_files": {
            "count": sum(manifest.skipped_files.values()),
            "kinds": most_frequent(manifest.skipped_files),
        },
    }


def _decide(config: ExperimentConfig, rank: Rank) -> Manifest:
    """Return the run's manifest, after it has been put into the run's folder."""
    beat = functools.partial(rank.beat, 0, Phase.STARTING)
    listing = find(
        config.data,
        missing_labels=config.missing_labels,
        uncertain_labels=config.uncertain_labels,
        on_wait=beat,
    )
    beat()
    fingerprint = listing.fingerprint()
    beat()
    if rank.paths.manifest.exists():
        manifest = read_manifest(rank.paths.manifest)
        if manifest.fingerprint["sha256"] != fingerprint.sha256:
            raise ConfigError(_data_change(config, manifest, listing, fingerprint))
        return _with_current_notes(manifest, listing)
    stored = manifests_folder() / manifest_name(fingerprint)
    if known_manifest(stored, listing) is None:
        write_manifest(
            listing,
            fingerprint,
            stored,
            threads=max(1, int(usable_cpus())),
            on_progress=_Progress(rank),
        )
    _link_manifest(stored, rank.paths.manifest)
    # Another run may have replaced the store's meanwhile: all ranks read the run's.
    return _with_current_notes(read_manifest(rank.paths.manifest), listing)


def _with_current_notes(manifest: Manifest, listing: Listing) -> Manifest:
    """Return a manifest with what comes and goes: notes, and files beside the data."""
    return replace(
        manifest,
        notes=(*listing.notes, *alike_classes(manifest.classes)),
        skipped_files=listing.skipped_files,
    )


def _link_manifest(stored: Path, target: Path) -> None:
    """Give the run the manifest by a second name of the same file, or by a copy."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        temporary.unlink(missing_ok=True)
        try:
            temporary.hardlink_to(stored)
        except OSError:  # on another file system, or on one that has no links
            shutil.copyfile(stored, temporary)
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise store_error(target, error) from error


class _Progress:
    """Shows the supervisor, and a reader of the log, that looking continues."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._printed_tenth = -1

    def __call__(self, done: int, total: int) -> None:
        self._rank.beat(0, Phase.STARTING)
        tenth = 10 * done // total
        if tenth > self._printed_tenth:
            self._printed_tenth = tenth
            say(f"data: checked {done:,} of {total:,} images")


def _unusable(config: ExperimentConfig, manifest: Manifest) -> str | None:
    """Return why unreadable images end a run; None if they do not."""
    if not manifest.unreadable:
        return None
    count = len(manifest.unreadable)
    have = f"data={config.data!r} has {count:,} unreadable image{'s' * (count != 1)}"
    reasons = reasons_in_words(manifest.unreadable)
    them = "it" if count == 1 else "them"
    remedy = f"Fix {them}"
    if manifest.train.are_packed:  # an image there cannot be fixed
        remedy = "Copy the packed data again, or fix the images and pack them again"
    if config.unreadable_images == "stop":
        return (
            f"{have}, but unreadable_images='stop' allows none: {reasons}. {remedy}. "
            "To skip unreadable images, set unreadable_images='skip'."
        )
    train = manifest.train
    classes = any(train.label(i) != train.label(0) for i in range(len(train)))
    if len(train) and (manifest.is_multi_label or classes):
        return None
    left = "no training image remains"
    if len(train):
        left = "training images of only 1 class remain"
    return f"{have}; without {them}, {left}: {reasons}. {remedy}, or use other data."


def _notes(config: ExperimentConfig, manifest: Manifest) -> Iterator[str]:
    """Yield what is not read, or not shown as it is."""
    if count := len(manifest.unreadable):
        images = plural(count, "unreadable image is", "unreadable images are")
        yield f"{images} skipped: {reasons_in_words(manifest.unreadable)}"
    if count := sum(manifest.skipped_files.values()):
        files = plural(count, "file is", "files are")
        yield f"{files} skipped: {in_words(manifest.skipped_files)}"
    if count := manifest.classes_without_training_images:
        have = "has" if count == 1 else "have"
        noun, nouns = "class", "classes"
        if manifest.is_multi_label:
            noun, nouns = "label", "labels"
        total = plural(len(manifest.classes), noun, nouns)
        yield f"{count:,} of {total} {have} no training image"
    yield from manifest.notes
    if manifest.high_bit_depth.count:
        yield _high_bit_depth(manifest)
    never = config.task == "train" and config.evaluation_period_epochs is None
    if never and (count := len(manifest.evaluation)):
        images = plural(count, "evaluation image is", "evaluation images are")
        yield f"{images} not used: evaluation_period_epochs=None"


def _high_bit_depth(manifest: Manifest) -> str:
    grey = manifest.high_bit_depth
    images = plural(grey.count, "grayscale image")
    are = "is" if grey.count == 1 else "are"
    text = f"{images} with more than 8 bits per pixel {are} reduced to 8 bits"
    if not grey.coarse:
        return text
    shown = ", ".join(grey.first[:_LISTED_IN_MESSAGE])
    more = grey.coarse - _LISTED_IN_MESSAGE
    names = f"{shown} and {more:,} more" if more > 0 else shown
    return f"{text}, {grey.coarse:,} of them to 16 gray levels or fewer: {names}"


def _data_change(
    config: ExperimentConfig,
    manifest: Manifest,
    listing: Listing,
    fingerprint: Fingerprint,
) -> str:
    """Return what to say to a run that would continue with other data."""
    before = {image.name for image in manifest.unreadable}
    for split in (manifest.train, manifest.evaluation):
        before.update(map(split.name, range(len(split))))
    now = {sample.name for _, samples in listing.splits() for sample in samples}
    changes = [
        f"{len(names)} image{'s' * (len(names) > 1)} {what} "
        f"({min(names)}{', ...' * (len(names) > 1)})"
        for what, names in (("gone", before - now), ("new", now - before))
        if names
    ]
    old = manifest.fingerprint
    if old["bytes"] != fingerprint.bytes:
        changes.append(f"{old['bytes']:,} bytes before and {fingerprint.bytes:,} now")
    what = "; ".join(changes) or "the sizes of some files, or the labels"
    return (
        f"data={config.data!r} changed since the run started ({what}). Restore the "
        "images to resume, or launch a new run."
    )
