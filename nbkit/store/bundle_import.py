"""Import of a bundle: every file is checked before one is written."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Sized
from dataclasses import dataclass
from pathlib import Path

from nbkit.errors import RunError, StoreError
from nbkit.reading import expanded, open_regular
from nbkit.store.bundle import (
    BundledFile,
    BundleManifest,
    digest,
)
from nbkit.store.bundle_checks import checked_manifest, refused
from nbkit.store.bundle_files import files_of_run
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
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import read_json, utc_now, write_json

_STAGING = ".import-"
_WRITER = "process.json"
"""Which process writes into a folder of that name."""


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
            parts.append(f"imported {_count(new)}: {', '.join(new)}")
        if self.already_there:
            there = ", ".join(self.already_there)
            parts.append(f"already in the store: {_count(self.already_there)}: {there}")
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
        Allow more than 20 GiB unpacked, or more than 50 times its size if above 1 GiB.

    Returns
    -------
    ImportedBundle
        ``run_ids``, ``study_id`` and ``already_there``.

    Raises
    ------
    StoreError
        If the file is not a bundle, is damaged, would write outside of its runs, does
        not fit on the disk, or is large; nothing was written then.
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
            return _take(archive, source, store, large=large)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise refused(source, f"damaged, or not a zip file ({error})") from error
    except StoreError:
        raise
    except OSError as error:
        message = f"{source} cannot be read ({error.strerror or error}). Pass a bundle."
        raise StoreError(message) from error


def _take(
    archive: zipfile.ZipFile, source: Path, store: Path, *, large: bool
) -> ImportedBundle:
    runs, studies = runs_folder(store), studies_folder(store)
    manifest = checked_manifest(archive, source, runs, large=large)
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
        f"{root.name} is already in the store and differs ({different}). Move or "
        f"remove {root}, then import again."
    )
    raise RunError(message)


def _first_difference(root: Path, files: dict[str, BundledFile]) -> str | None:
    """Return a file in which a folder of the store differs from the bundle's.

    Checkpoints and arguments that the bundle left out make no difference, and neither
    do the reports that were made of a study.
    """
    there = {name: path for name, path, why in files_of_run(root) if why is None}
    if "study.json" in files:
        there = {name: path for name, path in there.items() if name in files}
    optional = ("checkpoints/", "code/private.json", "code/entry.pkl")
    left_out = [it for it in optional if not any(n.startswith(it) for n in files)]
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
    _remove_broken_off(runs)
    try:
        staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=runs))
    except OSError as error:
        raise store_error(runs, error) from error
    try:
        write_json(staging / _WRITER, ProcessIdentity.of().to_dict())
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


def _remove_broken_off(runs: Path) -> None:
    """Remove what imports on this host have left whose process was killed."""
    for staging in runs.glob(f"{_STAGING}*"):
        try:
            writer = ProcessIdentity.from_dict(read_json(staging / _WRITER) or {})
        except (StoreError, KeyError, TypeError, ValueError):
            continue  # whose it is, is unknown
        if writer.is_alive() is False:
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
        unpacked = digest(content, written)
    if unpacked != (file.bytes, file.sha256):
        message = f"{name} has changed during the import. Import it again."
        raise StoreError(message)
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


def _below(manifest: BundleManifest, prefix: str) -> dict[str, BundledFile]:
    return {
        name.removeprefix(prefix): file
        for name, file in manifest.files.items()
        if name.startswith(prefix)
    }


def _count(runs: Sized) -> str:
    return "1 run" if len(runs) == 1 else f"{len(runs)} runs"
