"""Checks of a bundle before a file of it is written."""

from __future__ import annotations

import os
import shutil
import stat
import zipfile
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nbkit.errors import StoreError
from nbkit.reading import JSON_BYTES
from nbkit.store.bundle import (
    BUNDLE_SCHEMA,
    MANIFEST,
    BundledFile,
    BundleManifest,
    digest,
)
from nbkit.store.paths import RunPaths, StudyPaths
from nbkit.store.record import RunState, parse_json
from nbkit.visible import visible

_GIB = 1 << 30
_LONGEST_NAME = 255
"""Bytes, by Linux."""
_LONGEST_PATH = 1024
_MOST_BYTES = 20 * _GIB
"""More than this is taken only from who says so."""
_MOST_TIMES = 50
"""Logs and samples are packed to a twentieth of their size; a file of blanks to a
thousandth."""
_ANY_TIMES_BYTES = _GIB
"""Up to this a bundle may unpack to more than so many times its size."""
_OF_A_STUDY = {"arms", "name", "order", "plan", "repeats", "runs"}
_RUN, _STUDY = RunPaths(Path()), StudyPaths(Path())


def checked_manifest(
    archive: zipfile.ZipFile, source: Path, runs: Path, *, large: bool
) -> BundleManifest:
    """Return what a bundle holds, after all of it was looked at."""
    manifest = _manifest(archive, source)
    _check_names(archive, manifest, source)
    _check_room(manifest, source, runs, large=large)
    _check_contents(archive, manifest, source)
    return manifest


def refused(
    source: Path, what: str, remedy: str = "Ask the sender for a new copy"
) -> StoreError:
    """Return the error that says why a bundle is not imported, and what to do."""
    return StoreError(f"{source} cannot be imported: {what}. {remedy}.")


def _manifest(archive: zipfile.ZipFile, source: Path) -> BundleManifest:
    values = _json(archive, MANIFEST, source)
    if values is None:
        raise refused(source, f"no {MANIFEST}: not an nbkit bundle")
    if (schema := values.get("schema")) != BUNDLE_SCHEMA:
        what = f"schema {schema!r:.60} is not {BUNDLE_SCHEMA!r}"
        raise refused(source, what, "Import it with the version of nbkit that wrote it")
    try:
        return BundleManifest.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise refused(source, f"{where} in {MANIFEST}: {first['msg']}") from error


def _check_names(
    archive: zipfile.ZipFile, manifest: BundleManifest, source: Path
) -> None:
    """Raise unless the archive holds the manifest's files and nothing else.

    So names that lead elsewhere, links, and more bytes than were announced never
    come to the disk.
    """
    for run_id in manifest.runs:
        if f"runs/{run_id}/config.json" not in manifest.files:
            raise refused(source, f"run {run_id:.80} has no config.json")
    for name in manifest.files:
        if (why := _why_no_name(name, manifest)) is not None:
            raise refused(source, f"{name!r:.200} {why}")
    missing = {*manifest.files, MANIFEST}
    for info in archive.infolist():
        name = info.filename
        if name not in missing or name != info.orig_filename:
            what = f"{name!r:.200} is not in the manifest, or present twice"
            raise refused(source, what)
        missing.discard(name)
        if name == MANIFEST:
            continue
        if (why := _why_refused(info, manifest.files[name])) is not None:
            raise refused(source, f"{name!r:.200} {why}")
    if missing:
        raise refused(source, f"{min(missing)!r:.200} is missing")


def _why_no_name(name: str, manifest: BundleManifest) -> str | None:
    """Return what is wrong with a name in the manifest, or None."""
    if not _belongs(name, manifest):
        return "is not a file of one of its runs"
    if visible(name) != name:
        return "has a control character"
    folder = name
    while folder := folder.rpartition("/")[0]:
        if folder in manifest.files:
            return "is below another file"
    return None


def _why_refused(info: zipfile.ZipInfo, file: BundledFile) -> str | None:
    """Return what is wrong with an entry of the archive, or None."""
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        return "is a link, or not a regular file"
    is_supported = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    if info.flag_bits & 0x1 or not is_supported:
        return "is encrypted, or compressed with an unsupported method"
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
    unpacked = f"it unpacks to {needed:,} bytes, and"
    if needed > disk.free:
        what = f"{unpacked} {disk.free:,} are free"
        raise refused(source, what, ("Free some space, or set NBKIT_HOME to another"))
    if large:
        return
    mean_it = "If you expect that size, use large=True (nbkit import --large)"
    packed = source.stat().st_size
    if needed > _MOST_BYTES:
        raise refused(source, f"{unpacked} the limit is {_MOST_BYTES:,}", mean_it)
    if needed > max(_ANY_TIMES_BYTES, _MOST_TIMES * packed):
        what = f"{unpacked} the limit is {_MOST_TIMES}x its packed size ({packed:,})"
        raise refused(source, what, mean_it)


def _belongs(name: str, manifest: BundleManifest) -> bool:
    """Return whether a name leads to a file below one of the bundle's own folders."""
    if len(name) > _LONGEST_PATH:
        return False
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        return False
    if any(len(os.fsencode(part)) > _LONGEST_NAME for part in parts):
        return False
    if parts[0] == "runs" and len(parts) > 2:
        return parts[1] in manifest.runs and parts[2] != "imported.json"
    return name == f"studies/{manifest.study}/study.json"


def _check_contents(
    archive: zipfile.ZipFile, manifest: BundleManifest, source: Path
) -> None:
    for name, file in manifest.files.items():
        with archive.open(name) as content:
            if digest(content) != (file.bytes, file.sha256):
                raise refused(source, f"{name!r:.200} does not match its checksum")
    if manifest.study is not None:
        study = _json(archive, f"studies/{manifest.study}/{_STUDY.study.name}", source)
        if lacking := _OF_A_STUDY - (study or {}).keys():
            raise refused(source, f"study.json lacks {', '.join(sorted(lacking))}")
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
            raise refused(source, f"run {run_id} has not ended")


def _json(archive: zipfile.ZipFile, name: str, source: Path) -> dict[str, Any] | None:
    """Return the object in a file of the archive; None if there is no such file."""
    try:
        info = archive.getinfo(name)
    except KeyError:
        return None
    if info.file_size > JSON_BYTES:
        limit = f"limit {JSON_BYTES:,}"
        raise refused(source, f"{name} has {info.file_size:,} bytes ({limit})")
    try:
        return parse_json(archive.read(info), Path(name))
    except StoreError as error:
        # What to do is another thing here.
        raise refused(source, str(error).partition(". Remove")[0]) from error
    except RuntimeError as error:
        raise refused(source, f"{name} cannot be read ({error})") from error
