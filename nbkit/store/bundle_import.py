"""Import of a bundle: every file is checked before one is written."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nbkit.errors import RunError, StoreError
from nbkit.plural import plural
from nbkit.reading import JSON_BYTES, expanded, open_regular
from nbkit.store.bundle import (
    BUNDLE_SCHEMA,
    MANIFEST,
    BundledFile,
    BundleManifest,
    digest,
    files_of_run,
)
from nbkit.store.metrics import store_error
from nbkit.store.ownership import make_folder, submitted
from nbkit.store.paths import (
    RunPaths,
    StudyPaths,
    runs_folder,
    store_folder,
    studies_folder,
)
from nbkit.store.private import make_store
from nbkit.store.record import RunState, parse_json, utc_now, write_json
from nbkit.visible import visible

_MOST_TIMES = 50
"""Logs and samples are packed to a twentieth of their size; a file of blanks to a
thousandth."""
ANY_TIMES_BYTES = 1 << 30
"""Up to this a bundle may unpack to more than so many times its size."""
_OF_A_STUDY = {"arms", "name", "order", "plan", "repeats", "runs"}
_RUN, _STUDY = RunPaths(Path()), StudyPaths(Path())


@dataclass(frozen=True)
class ImportedBundle:
    """Result of an import."""

    run_ids: tuple[str, ...]
    """All runs of the bundle, new or not; `nbkit.attach` opens one."""
    study_id: str | None
    already_there: tuple[str, ...]
    """Runs that the store already had, with equal files."""

    def __str__(self) -> str:
        new = [run_id for run_id in self.run_ids if run_id not in self.already_there]
        parts = []
        if new:
            parts.append(f"imported {plural(len(new), 'run')}: {', '.join(new)}")
        if self.already_there:
            there = ", ".join(self.already_there)
            count = plural(len(self.already_there), "run")
            parts.append(f"{count} already in the store: {there}")
        if self.study_id is not None:
            parts.append(f"study {self.study_id}")
        return "; ".join(parts)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"


def import_bundle(
    path: str | os.PathLike[str], *, large: bool = False
) -> ImportedBundle:
    """Import the runs and the study of a bundle into the store.

    Parameters
    ----------
    path
        File written by `nbkit.export`.
    large
        Allow content of more than 1 GiB and more than 50 times the file's size.

    Returns
    -------
    ImportedBundle
        ``run_ids``, ``study_id`` and ``already_there``.

    Raises
    ------
    StoreError
        If the file is not a bundle, is damaged, would write outside of its runs, does
        not fit on the disk, or requires ``large=True``; nothing is written then.
    RunError
        If the store has a different run or study of that id.

    Notes
    -----
    Runs keep their ids; ``imported.json`` in each records its origin. Names of hosts,
    folders and processes in them are the other machine's.

    Functions, arguments and return values are pickles, which can execute code: they are
    copied and never loaded. Resuming or reproducing a run, or reading its return
    values, loads them and needs ``trust=True``.

    Examples
    --------
    >>> nbkit.import_bundle("run.zip").run_ids  # doctest: +SKIP
    """
    return unpack_bundle(path, store_folder(), large=large)


def unpack_bundle(
    path: str | os.PathLike[str], store: Path, *, large: bool = False
) -> ImportedBundle:
    """Take a bundle into a store that need not be this user's, as `import_bundle`."""
    source = expanded(path, "path")
    try:
        with open_regular(source) as file, zipfile.ZipFile(file) as archive:
            return _import(archive, source, store, large=large)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise _refused(source, f"it is damaged or not a zip file ({error})") from error
    except StoreError:
        raise
    except OSError as error:
        why = error.strerror or error
        message = f"{source} cannot be read ({why}). Check its path and permissions."
        raise StoreError(message) from error


def _import(
    archive: zipfile.ZipFile, source: Path, store: Path, *, large: bool
) -> ImportedBundle:
    runs, studies = runs_folder(store), studies_folder(store)
    manifest = _checked_manifest(archive, source, runs, large=large)
    new = {}
    for run_id in manifest.runs:
        files = _files_below(manifest, f"runs/{run_id}/")
        if _is_new(RunPaths(runs / run_id).root, files):
            new[f"runs/{run_id}"] = runs / run_id
    there = [run_id for run_id in manifest.runs if f"runs/{run_id}" not in new]
    if manifest.study is not None:
        root = StudyPaths(studies / manifest.study).root
        # Last: a study that can be seen has its runs.
        if _is_new(root, _files_below(manifest, f"studies/{root.name}/")):
            new[f"studies/{root.name}"] = root
    if new:
        _make(store, runs, studies)
        _unpack(archive, manifest, source, new, runs)
    return ImportedBundle(tuple(manifest.runs), manifest.study, tuple(there))


def _is_new(root: Path, files: dict[str, BundledFile]) -> bool:
    """Return whether a run or study is not there yet."""
    if not root.exists():
        return True
    different = _first_difference(root, files)
    if different is None:
        return False
    message = (
        f"{root.name} already exists in the store with different content "
        f"({different}). Move or remove {root}, and import again."
    )
    raise RunError(message)


def _first_difference(root: Path, files: dict[str, BundledFile]) -> str | None:
    """Return a file that differs from the bundle's, but none that was left out."""
    there = {name: path for name, path, why in files_of_run(root) if why is None}
    if "study.json" in files:
        there = {name: path for name, path in there.items() if name in files}
    optional = ("checkpoints/", "code/private.json", "code/entry.pkl")
    left_out = [
        prefix for prefix in optional if not any(n.startswith(prefix) for n in files)
    ]
    there = {n: path for n, path in there.items() if not n.startswith((*left_out,))}
    for name in sorted(files.keys() | there.keys()):
        if name not in files or name not in there:
            return name
        with open_regular(there[name]) as content:
            if digest(content) != (files[name].bytes, files[name].sha256):
                return name
    return None


# Writing


def _make(store: Path, *folders: Path) -> None:
    try:
        make_store(store)
        for folder in folders:
            folder.mkdir(exist_ok=True)
    except OSError as error:
        raise store_error(store, error) from error


def _unpack(
    archive: zipfile.ZipFile,
    manifest: BundleManifest,
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
            for name, file in _files_below(manifest, f"{place}/").items():
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
    make_folder(target.parent)
    mode = 0o600 if file.private else 0o644
    if archive.getinfo(name).external_attr >> 16 & stat.S_IXUSR:
        mode |= (mode & 0o444) >> 2  # who may read it may execute it
    # Less this user's umask.
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(fd, "wb") as written, archive.open(name) as content:
        shutil.copyfileobj(content, written)
    # What is newer than what tells a reader which to trust.
    os.utime(target, ns=(file.modified_ns, file.modified_ns))


def _mark(root: Path, place: str, manifest: BundleManifest, source: Path) -> None:
    left_out = [
        file.model_dump() for file in manifest.left_out if file.path.startswith(place)
    ]
    paths = RunPaths(root)
    write_json(
        paths.imported,
        {
            "time": utc_now(),
            "bundle": str(source),
            "exported": manifest.created,
            "host": manifest.host,
            "nbkit": manifest.nbkit,
            "left_out": left_out,
            "submitted": submitted(paths.submission),
        },
    )


def _files_below(manifest: BundleManifest, prefix: str) -> dict[str, BundledFile]:
    return {
        name.removeprefix(prefix): file
        for name, file in manifest.files.items()
        if name.startswith(prefix)
    }


# Checks


def _checked_manifest(
    archive: zipfile.ZipFile, source: Path, runs: Path, *, large: bool
) -> BundleManifest:
    """Return what a bundle holds, after all of it was looked at."""
    manifest = _manifest(archive, source)
    _check_names(archive, manifest, source)
    _check_room(manifest, source, runs, large=large)
    _check_contents(archive, manifest, source)
    return manifest


def _refused(
    source: Path, what: str, remedy: str = "Ask the sender for a new copy"
) -> StoreError:
    """Return the error that says why a bundle is not imported, and what to do."""
    return StoreError(f"{source} cannot be imported: {what}. {remedy}.")


def _manifest(archive: zipfile.ZipFile, source: Path) -> BundleManifest:
    values = _json(archive, MANIFEST, source)
    if values is None:
        raise _refused(source, f"it has no {MANIFEST}, so it is not an nbkit bundle")
    if (schema := values.get("schema")) != BUNDLE_SCHEMA:
        what = f"schema {schema!r:.60} is not {BUNDLE_SCHEMA!r}"
        remedy = "Import it with the version of nbkit that exported it"
        raise _refused(source, what, remedy)
    try:
        return BundleManifest.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise _refused(source, f"{where} in {MANIFEST}: {first['msg']}") from error


def _check_names(
    archive: zipfile.ZipFile, manifest: BundleManifest, source: Path
) -> None:
    """Raise unless the archive holds the manifest's files and nothing else."""
    for run_id in manifest.runs:
        if f"runs/{run_id}/config.json" not in manifest.files:
            raise _refused(source, f"run {run_id:.80} has no config.json")
    for name in manifest.files:
        if (why := _name_problem(name, manifest)) is not None:
            raise _refused(source, f"{name!r:.200} {why}")
    missing = {*manifest.files, MANIFEST}
    for info in archive.infolist():
        name = info.filename
        if name not in missing or name != info.orig_filename:
            what = f"{name!r:.200} is not in the manifest, or is in the archive twice"
            raise _refused(source, what)
        missing.discard(name)
        if name == MANIFEST:
            continue
        if (why := _entry_problem(info, manifest.files[name])) is not None:
            raise _refused(source, f"{name!r:.200} {why}")
    if missing:
        raise _refused(source, f"{min(missing)!r:.200} is missing")


def _name_problem(name: str, manifest: BundleManifest) -> str | None:
    """Return what is wrong with a name in the manifest, or None."""
    if not _is_in_bundle(name, manifest):
        return "is not a file of its runs or study"
    if visible(name) != name:
        return "has a control character"
    folder = name
    while folder := folder.rpartition("/")[0]:
        if folder in manifest.files:
            return "is below another file"
    return None


def _entry_problem(info: zipfile.ZipInfo, file: BundledFile) -> str | None:
    """Return what is wrong with an entry of the archive, or None."""
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        return "is a link, or not a regular file"
    is_supported = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    if not is_supported:
        return f"is compressed with method {info.compress_type}, not stored or deflated"
    if info.file_size != file.bytes:
        return f"has {info.file_size:,} bytes, but {file.bytes:,} in the manifest"
    return None


def _check_room(
    manifest: BundleManifest, source: Path, runs: Path, *, large: bool
) -> None:
    needed = sum(file.bytes for file in manifest.files.values())
    # The store may not be there yet.
    there = next(path for path in (runs, *runs.parents) if path.is_dir())
    disk = shutil.disk_usage(there)
    unpacked = f"it unpacks to {needed:,} bytes, but"
    if needed > disk.free:
        what = f"{unpacked} only {disk.free:,} are free"
        remedy = "Free some space, or set NBKIT_HOME to a folder on another disk"
        raise _refused(source, what, remedy)
    if large:
        return
    packed = source.stat().st_size
    if needed > (limit := max(ANY_TIMES_BYTES, _MOST_TIMES * packed)):
        mean_it = "Use large=True (nbkit import --large) if this size is expected"
        rule = f"the larger of 1 GiB and {_MOST_TIMES}x the size of the bundle"
        what = f"{unpacked} the limit is {limit:,} ({rule})"
        raise _refused(source, what, mean_it)


def _is_in_bundle(name: str, manifest: BundleManifest) -> bool:
    """Return whether a name leads to a file below one of the bundle's own folders."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        return False
    if parts[0] == "runs" and len(parts) > 2:
        return parts[1] in manifest.runs and parts[2] != "imported.json"
    study = f"studies/{manifest.study}"
    return name in (f"{study}/study.json", f"{study}/change.patch")


def _check_contents(
    archive: zipfile.ZipFile, manifest: BundleManifest, source: Path
) -> None:
    for name, file in manifest.files.items():
        with archive.open(name) as content:
            if digest(content) != (file.bytes, file.sha256):
                raise _refused(source, f"{name!r:.200} does not match its checksum")
    if manifest.study is not None:
        study = _json(archive, f"studies/{manifest.study}/{_STUDY.study.name}", source)
        if lacking := _OF_A_STUDY - (study or {}).keys():
            raise _refused(source, f"study.json lacks {', '.join(sorted(lacking))}")
    for run_id in manifest.runs:
        record, submission, worker, *_ = (
            _json(archive, f"runs/{run_id}/{file.name}", source) or {}
            for file in (_RUN.record, _RUN.submission, _RUN.worker, _RUN.config)
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


def _json(archive: zipfile.ZipFile, name: str, source: Path) -> dict[str, Any] | None:
    """Return the object in a file of the archive; None if there is no such file."""
    try:
        info = archive.getinfo(name)
    except KeyError:
        return None
    if info.file_size > JSON_BYTES:
        limit = f"limit {JSON_BYTES:,}"
        raise _refused(source, f"{name} has {info.file_size:,} bytes ({limit})")
    try:
        return parse_json(archive.read(info), Path(name))
    except StoreError as error:
        # What to do is another thing here.
        raise _refused(source, str(error).partition(". Remove")[0]) from error
