"""Taking a bundle into the store: all of it is checked before a file is written."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nbkit.errors import RunError, StoreError
from nbkit.store.bundle import (
    BUNDLE_SCHEMA,
    MANIFEST,
    BundledFile,
    Manifest,
    digest,
    files_of_run,
)
from nbkit.store.metrics import store_error
from nbkit.store.paths import (
    RunPaths,
    StudyPaths,
    runs_folder,
    store_folder,
    studies_folder,
)
from nbkit.store.record import RunState, utc_now, write_json

__all__ = ["ImportedBundle", "import_bundle", "unpack_bundle"]

_LARGEST_JSON_BYTES = 64 << 20
"""A manifest of 1,000 runs has 10 MB."""


@dataclass(frozen=True)
class ImportedBundle:
    """What became of a bundle."""

    run_ids: tuple[str, ...]
    """All runs of the bundle, whether they are new or not: `nbkit.attach` opens one."""
    study_id: str | None
    already_there: tuple[str, ...]
    """Runs that the store had already, equal in every file."""

    def __str__(self) -> str:
        new = [run_id for run_id in self.run_ids if run_id not in self.already_there]
        parts = []
        if new:
            parts.append(f"imported {_count(new)}: {', '.join(new)}")
        if self.already_there:
            there = ", ".join(self.already_there)
            parts.append(f"nothing to do for {_count(self.already_there)}: {there}")
        if self.study_id is not None:
            parts.append(f"study {self.study_id}")
        return "; ".join(parts)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"


def import_bundle(path: str | os.PathLike[str]) -> ImportedBundle:
    """Take the runs of a bundle, and its study, into the store.

    Parameters
    ----------
    path
        A file that `nbkit.export` has written, as a rule on another machine.

    Returns
    -------
    ImportedBundle
        ``run_ids``, ``study_id``, and which runs were there already.

    Raises
    ------
    StoreError
        If the file is no bundle, is damaged, would write outside of its runs, or does
        not fit on the disk; nothing was written then.
    RunError
        If a run or study with that id is there already and is another.

    Notes
    -----
    Runs keep their ids; a file ``imported.json`` in each says where it came from and
    when. Names of hosts, folders and processes in them are the other machine's.

    Functions, their arguments and what they returned are pickles, and a pickle is a
    program: an import copies them and never loads them. ``run.returns`` and
    `nbkit.reproduce` do: only use these on bundles of people you trust.

    Examples
    --------
    >>> nbkit.import_bundle("run.zip").run_ids  # doctest: +SKIP
    """
    return unpack_bundle(path, store_folder())


def unpack_bundle(path: str | os.PathLike[str], store: Path) -> ImportedBundle:
    """Take a bundle into a store that need not be this user's, as `import_bundle`."""
    source = Path(path).expanduser().absolute()
    try:
        with source.open("rb") as file, zipfile.ZipFile(file) as archive:
            return _take(archive, source, store)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise _refused(source, f"it is damaged, or no zip file ({error})") from error
    except StoreError:
        raise
    except OSError as error:
        message = f"{source} cannot be read ({error.strerror or error}); name a bundle."
        raise StoreError(message) from error


def _take(archive: zipfile.ZipFile, source: Path, store: Path) -> ImportedBundle:
    runs, studies = runs_folder(store), studies_folder(store)
    manifest = _manifest(archive, source)
    _check_names(archive, manifest, source)
    _check_room(manifest, source, runs)
    _check_contents(archive, manifest, source)
    new = {}
    for run_id in manifest.runs:
        files = _below(manifest, f"runs/{run_id}/")
        if _is_new(RunPaths(runs / run_id).root, files):
            new[f"runs/{run_id}"] = runs / run_id
    there = [run_id for run_id in manifest.runs if f"runs/{run_id}" not in new]
    if manifest.study is not None:
        root = StudyPaths(studies / manifest.study).root
        # Last: a study that can be seen has its runs.
        if _is_new(root, _below(manifest, f"studies/{root.name}/")):
            new[f"studies/{root.name}"] = root
    if new:
        for folder in (runs, studies):
            _make(folder)
        _unpack(archive, manifest, source, new, runs)
    return ImportedBundle(tuple(manifest.runs), manifest.study, tuple(there))


# Checks


def _manifest(archive: zipfile.ZipFile, source: Path) -> Manifest:
    values = _json(archive, MANIFEST, source)
    if values is None:
        raise _refused(source, f"it has no {MANIFEST}: it is no bundle of nbkit")
    if (schema := values.get("schema")) != BUNDLE_SCHEMA:
        what = f"its schema {schema!r:.60} is not {BUNDLE_SCHEMA!r}"
        raise _refused(source, what, "import it by the version of nbkit that wrote it")
    try:
        return Manifest.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise _refused(source, f"{where} in {MANIFEST}: {first['msg']}") from error


def _check_names(archive: zipfile.ZipFile, manifest: Manifest, source: Path) -> None:
    """Raise unless the archive holds the manifest's files and nothing else.

    So names that lead elsewhere, links, and more bytes than were announced never
    come to the disk.
    """
    for run_id in manifest.runs:
        if f"runs/{run_id}/config.json" not in manifest.files:
            raise _refused(source, f"run {run_id:.80} has no config.json")
    for name in manifest.files:
        if not _belongs(name, manifest):
            raise _refused(source, f"{name!r:.200} is no file of one of its runs")
    missing = set(manifest.files)
    for info in archive.infolist():
        name = info.filename
        if name == MANIFEST:
            continue
        if name not in missing or name != info.orig_filename:
            what = f"{name!r:.200} is not in its manifest, or there twice"
            raise _refused(source, what)
        missing.discard(name)
        if (why := _why_refused(info, manifest.files[name])) is not None:
            raise _refused(source, f"{name!r:.200} {why}")
    if missing:
        raise _refused(source, f"it lacks {min(missing)!r:.200}")


def _why_refused(info: zipfile.ZipInfo, file: BundledFile) -> str | None:
    """Return what is wrong with an entry of the archive, or None."""
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        return "is a link, or no ordinary file"
    known = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    if info.flag_bits & 0x1 or not known:
        return "is encrypted, or packed in another way"
    if info.file_size != file.bytes:
        return f"has {info.file_size:,} bytes, and {file.bytes:,} in its manifest"
    return None


def _check_room(manifest: Manifest, source: Path, runs: Path) -> None:
    needed = sum(file.bytes for file in manifest.files.values())
    free = shutil.disk_usage(_existing(runs)).free
    if needed > free:
        what = f"it unpacks to {needed:,} bytes, and {free:,} are free"
        raise _refused(source, what, "free some space, or set NBKIT_HOME to another")


def _belongs(name: str, manifest: Manifest) -> bool:
    """Return whether a name leads to a file below one of the bundle's own folders."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        return False
    if parts[0] == "runs" and len(parts) > 2:
        return parts[1] in manifest.runs and parts[2:] != ["imported.json"]
    return name == f"studies/{manifest.study}/study.json"


def _check_contents(archive: zipfile.ZipFile, manifest: Manifest, source: Path) -> None:
    for name, file in manifest.files.items():
        with archive.open(name) as content:
            if digest(content) != (file.bytes, file.sha256):
                raise _refused(source, f"{name!r:.200} is not what was exported")
    for run_id in manifest.runs:
        record, submission, worker = (
            _json(archive, f"runs/{run_id}/{name}.json", source) or {}
            for name in ("record", "submission", "worker")
        )
        if submission:
            states = [state for state in RunState if state.is_final]
            ended = record.get("state") in states
            attempts = record.get("attempt", -1), submission.get("attempt", 0)
            ended = ended and attempts[0] >= attempts[1]
        else:
            ended = bool(worker.get("completed"))
        if not ended:
            raise _refused(source, f"run {run_id} has not ended")


def _is_new(root: Path, files: dict[str, BundledFile]) -> bool:
    """Return whether a run or study is not there yet.

    Raises
    ------
    RunError
        If another is there.
    """
    if not root.exists():
        return True
    different = _first_difference(root, files)
    if different is None:
        return False
    message = (
        f"{root.name} is in the store already and differs ({different}); move or "
        f"remove {root}, then import again."
    )
    raise RunError(message)


def _first_difference(root: Path, files: dict[str, BundledFile]) -> str | None:
    """Return a file in which a folder of the store differs from the bundle's.

    Checkpoints that the bundle left out make no difference, and neither do the reports
    that were made of a study.
    """
    there = {name: path for name, path, why in files_of_run(root) if why is None}
    if "study.json" in files:
        there = {name: path for name, path in there.items() if name in files}
    if not any(name.startswith("checkpoints/") for name in files):
        there = {
            name: path
            for name, path in there.items()
            if not name.startswith("checkpoints/")
        }
    for name in sorted(files.keys() | there.keys()):
        if name not in files or name not in there:
            return name
        with there[name].open("rb") as content:
            if digest(content) != (files[name].bytes, files[name].sha256):
                return name
    return None


# Writing


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store_error(folder, error) from error


def _unpack(
    archive: zipfile.ZipFile,
    manifest: Manifest,
    source: Path,
    new: dict[str, Path],
    runs: Path,
) -> None:
    """Write new folders beside their places, then put each there as a whole."""
    try:
        staging = Path(tempfile.mkdtemp(prefix=".import-", dir=runs))
    except OSError as error:
        raise store_error(runs, error) from error
    try:
        for place in new:
            for name, file in _below(manifest, f"{place}/").items():
                _unpack_file(archive, f"{place}/{name}", file, staging / place / name)
            _mark(staging / place, place, manifest, source)
        for place, target in new.items():
            (staging / place).rename(target)
    except StoreError:
        raise
    except OSError as error:
        raise store_error(runs, error) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _unpack_file(
    archive: zipfile.ZipFile, name: str, file: BundledFile, target: Path
) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(
        target,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL,
        0o600 if file.private else 0o666,  # the second as this user's umask has it
    )
    with os.fdopen(fd, "wb") as written, archive.open(name) as content:
        found = digest(content, written)
    if found != (file.bytes, file.sha256):
        message = f"{name} has changed during the import; import again."
        raise StoreError(message)
    # What is newer than what tells a reader which to trust.
    os.utime(target, ns=(file.modified_ns, file.modified_ns))


def _mark(root: Path, place: str, manifest: Manifest, source: Path) -> None:
    left_out = [
        one.model_dump() for one in manifest.left_out if one.path.startswith(place)
    ]
    write_json(
        RunPaths(root).imported,
        {
            "time": utc_now(),
            "bundle": str(source),
            "exported": manifest.created,
            "host": manifest.host,
            "nbkit": manifest.nbkit,
            "left_out": left_out,
        },
    )


def _below(manifest: Manifest, prefix: str) -> dict[str, BundledFile]:
    return {
        name.removeprefix(prefix): file
        for name, file in manifest.files.items()
        if name.startswith(prefix)
    }


def _json(archive: zipfile.ZipFile, name: str, source: Path) -> dict[str, Any] | None:
    """Return the object in a file of the archive; None if there is no such file."""
    try:
        info = archive.getinfo(name)
    except KeyError:
        return None
    if info.file_size > _LARGEST_JSON_BYTES:
        limit = f"limit {_LARGEST_JSON_BYTES:,}"
        raise _refused(source, f"{name} has {info.file_size:,} bytes ({limit})")
    try:
        values = json.loads(archive.read(info))
    except (ValueError, RuntimeError) as error:
        raise _refused(source, f"{name} cannot be read ({error})") from error
    if not isinstance(values, dict):
        raise _refused(source, f"{name} holds no object")
    return values


def _existing(folder: Path) -> Path:
    """Return the folder, or the first one above it that there is."""
    return next(path for path in (folder, *folder.parents) if path.is_dir())


def _refused(
    source: Path, what: str, remedy: str = "get it anew from whom it came"
) -> StoreError:
    return StoreError(f"{source} cannot be imported: {what}; {remedy}.")


def _count(runs: Sized) -> str:
    return "1 run" if len(runs) == 1 else f"{len(runs)} runs"
