"""Runs and studies as one file, for transfer to another machine.

::

    bundle.json                  the manifest: what is in it, and what was left out
    runs/<run_id>/...            the files of a run's folder
    studies/<study_id>/study.json, and change.patch of `nbkit try`

Reading a bundle is `nbkit.store.bundle_import`'s.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from nbkit.errors import ConfigError, RunError, StoreError
from nbkit.packages import version
from nbkit.plural import plural
from nbkit.reading import expanded, open_regular
from nbkit.store.paths import (
    ID_PATTERN,
    RunPaths,
    StudyPaths,
    runs_folder,
    study_folders,
    the_study_folder,
)
from nbkit.store.processes import ProcessIdentity, hostname
from nbkit.store.record import RunState, read_json, utc_now
from nbkit.store.redaction import may_hold_secret
from nbkit.store.stored_runs import StoredRun, find_run_folder, list_run_names
from nbkit.visible import encodable, visible

BUNDLE_SCHEMA = "nbkit.bundle/1"
MANIFEST = "bundle.json"
_PIECE_BYTES = 1 << 20
_MOST_SCANNED_BYTES = 1 << 20
"""Of one file: no source is longer, and of a log the beginning has to do."""
_MOST_NAMED = 10
_ODD = "a link or special file, or a name with control characters or invalid UTF-8"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BundledFile(_Part):
    """One file of a bundle."""

    bytes: NonNegativeInt
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    modified_ns: Annotated[int, Field(ge=0, lt=2**63)]
    """Unix time of its last change, in nanoseconds."""
    private: bool
    """Whether only its owner could read it."""


class OmittedFile(_Part):
    """A file of a run's folder that the bundle lacks."""

    path: str
    why: str


class BundleManifest(_Part):
    """Manifest of a bundle."""

    bundle_schema: Literal["nbkit.bundle/1"] = Field(
        default=BUNDLE_SCHEMA, alias="schema"
    )
    nbkit: str
    """The version that exported."""
    created: str
    """UTC, ISO 8601."""
    host: str
    """Where it was exported."""
    study: str | None = Field(pattern=ID_PATTERN)
    runs: list[Annotated[str, Field(pattern=ID_PATTERN)]] = Field(min_length=1)
    files: dict[str, BundledFile]
    """By the name in the bundle."""
    left_out: list[OmittedFile]


class InStore(Protocol):
    """A run or a study."""

    @property
    def paths(self) -> Any:
        """Its files."""


def export(
    run_or_study: InStore | str,
    path: str | os.PathLike[str],
    *,
    checkpoints: bool = False,
    include_arguments: bool = False,
) -> Path:
    """Write a run, or a study with all its runs, into one zip file.

    Parameters
    ----------
    run_or_study
        Run, study, or a unique ending of an id. Every run must have ended.
    path
        Output file, such as ``"x.zip"``; an existing file is replaced atomically.
    checkpoints
        Include checkpoints.
    include_arguments
        Include functions with their arguments, arguments of scripts, and the
        environment given to runs. They may contain secrets; without them,
        `nbkit.reproduce` cannot rerun functions and scripts.

    Returns
    -------
    pathlib.Path
        The file, readable only by its owner: it may contain private data, such as
        return values of functions.

    Raises
    ------
    ConfigError
        If a run and a study end with an ending.
    RunError
        If a run has not ended, or has no final record.
    RunNotFoundError
        If no run or study has that id, or several runs end with it.
    StoreError
        If the file cannot be written, a run cannot be read, or several studies match.

    Warns
    -----
    UserWarning
        If sources, diffs or output may contain secrets (they are exported unchanged).
        If a link, a special file, or a file with an unusual name was omitted.

    Notes
    -----
    Links, temporary files and, by default, checkpoints and arguments are left out; the
    manifest says so. `nbkit.import_bundle` reads the file on another machine.

    Examples
    --------
    >>> nbkit.export(nbkit.runs()[0], "run.zip")  # doctest: +SKIP
    """
    left_out: list[OmittedFile] = []
    study = _study(run_or_study)
    if study is not None:
        folders = _runs_of_study(study, left_out)
    else:
        folders = [_run(run_or_study).paths.root]
    target = expanded(path, "path")
    try:
        fd, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        temporary = Path(name)
        try:
            with (
                os.fdopen(fd, "wb") as file,
                zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
            ):
                kept = _fill(
                    archive,
                    folders,
                    study,
                    left_out,
                    checkpoints=checkpoints,
                    include_arguments=include_arguments,
                )
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except StoreError:
        raise
    except OSError as error:
        message = (
            f"{target} cannot be written ({error.strerror or error}). Use an existing "
            "writable folder on a disk with free space."
        )
        raise StoreError(message) from error
    _warn_of_secrets(kept)
    if odd := [file for file in left_out if file.why == _ODD]:
        message = (
            f"the bundle omits {plural(len(odd), 'file')}: {visible(odd[0].path)}"
            f"{', ...' * (len(odd) > 1)} ({odd[0].why}). Copy them as regular files "
            "with valid names to include them."
        )
        warnings.warn(message, stacklevel=2)
    return target


def digest(file: BinaryIO | Any, target: BinaryIO | None = None) -> tuple[int, str]:
    """Return length and SHA-256 of what a file holds; copy it on the way."""
    sha256, length = hashlib.sha256(), 0
    while piece := file.read(_PIECE_BYTES):
        sha256.update(piece)
        length += len(piece)
        if target is not None:
            target.write(piece)
    return length, sha256.hexdigest()


def _study(what: InStore | str) -> StudyPaths | None:
    if isinstance(what, str):
        if not what or not study_folders(what) or (runs_folder() / what).is_dir():
            return None
        study = the_study_folder(what)
        runs = [name for name in list_run_names() if name.endswith(what)]
        if runs and study.name != what:
            message = (
                f"{what!r} is the end of study {study.name} and of run {runs[0]}. Use "
                "the whole id."
            )
            raise ConfigError(message)
        return StudyPaths(study)
    paths = getattr(what, "paths", None)
    return paths if isinstance(paths, StudyPaths) else None


def _run(what: InStore | str) -> StoredRun:
    if isinstance(what, str):
        run = StoredRun(find_run_folder(what))
    elif isinstance(what, StoredRun):
        run = what
    else:
        message = f"{what!r} is neither a run nor a study. Pass a run, study or id."
        raise ConfigError(message)
    _check_ended(run, run.state)
    return run


def _check_ended(run: StoredRun, state: RunState) -> None:
    if _has_no_end(run, state):
        message = (
            f"run {run.run_id} has no final record (lost, or its Slurm job ended "
            "without one). Call resume(), or launch it again."
        )
        raise RunError(message)
    if not state.is_final:
        message = f"run {run.run_id} is {state}. Call wait() or stop() first."
        raise RunError(message)


def _has_no_end(run: StoredRun, state: RunState) -> bool:
    # Of a job that Slurm ended without a last word, only Slurm here knows so.
    submission, record = run.submission, run.record
    unwritten = bool(submission.get("job")) and (
        record.get("attempt", -1) < submission["attempt"]
        or record.get("state") != state
    )
    return state is RunState.LOST or (state.is_final and unwritten)


def _runs_of_study(study: StudyPaths, left_out: list[OmittedFile]) -> list[Path]:
    content = read_json(study.study) or {}
    executor = content.get("executor")
    if executor and ProcessIdentity.from_dict(executor).is_alive():
        message = (
            f"study {study.root.name} is being executed by process {executor['pid']}. "
            "Wait for it, or interrupt it."
        )
        raise RunError(message)
    folders = []
    for entry in content.get("runs", []):
        folder = runs_folder() / entry["run_id"]
        run = StoredRun(folder)
        if not folder.is_dir():
            why = "its folder was removed"
        elif (state := run.state) is RunState.UNKNOWN:
            why = "no final record and no heartbeat"
        elif _has_no_end(run, state):
            why = "no final record: lost, or its Slurm job ended without one"
        else:
            _check_ended(run, state)
            folders.append(folder)
            continue
        left_out.append(OmittedFile(path=f"runs/{folder.name}", why=why))
    if not folders:
        message = f"study {study.root.name} has no run to export. Call run() first."
        raise RunError(message)
    return folders


def _warn_of_secrets(files: list[Path]) -> None:
    """Warn of exported files that seem to hold secrets."""
    suspects = []
    for path in files:
        if path.suffix != ".pkl":
            with _open_own(path) as file:
                text = file.read(_MOST_SCANNED_BYTES).decode(errors="replace")
            if may_hold_secret(text):
                suspects.append(visible(str(path)))
    if not suspects:
        return
    named = [*suspects[:_MOST_NAMED], *(["and more"] if suspects[_MOST_NAMED:] else [])]
    message = (
        "the bundle may contain secrets in sources, diffs or output: "
        f"{'; '.join(named)}. Check these before you share it."
    )
    warnings.warn(message, stacklevel=3)


def _fill(
    archive: zipfile.ZipFile,
    folders: list[Path],
    study: StudyPaths | None,
    left_out: list[OmittedFile],
    *,
    checkpoints: bool,
    include_arguments: bool,
) -> list[Path]:
    """Write all files and the manifest; return what is kept of code and output."""
    files: dict[str, BundledFile] = {}
    kept: list[Path] = []
    for root in folders:
        paths = RunPaths(root)
        without = None if checkpoints else paths.checkpoints
        if without is not None and without.is_dir():
            path = f"runs/{root.name}/checkpoints"
            left_out.append(OmittedFile(path=path, why="checkpoints=False"))
        for name, path, why in files_of_run(root):
            if without is not None and without in (path, *path.parents):
                continue
            place = f"runs/{root.name}/{name}"
            if not include_arguments and path in (paths.private, paths.entry_pickle):
                why = "include_arguments=False"
            if why is None:
                files[place] = _add(archive, place, path)
                if not {paths.code, paths.logs}.isdisjoint(path.parents):
                    kept.append(path)
            else:
                shown = visible(encodable(place, None))
                left_out.append(OmittedFile(path=shown, why=why))
    if study is not None:
        place = f"studies/{study.root.name}/study.json"
        files[place] = _add(archive, place, study.study)
        if study.change.exists():
            place = f"studies/{study.root.name}/{study.change.name}"
            files[place] = _add(archive, place, study.change)
            kept.append(study.change)
    manifest = BundleManifest(
        schema=BUNDLE_SCHEMA,
        nbkit=version(),
        created=utc_now(),
        host=hostname(),
        study=None if study is None else study.root.name,
        runs=[root.name for root in folders],
        files=files,
        left_out=left_out,
    )
    archive.writestr(MANIFEST, manifest.model_dump_json(by_alias=True, indent=1))
    return kept


def _add(archive: zipfile.ZipFile, place: str, path: Path) -> BundledFile:
    info = zipfile.ZipInfo(place)
    # Checkpoints hardly become smaller, and take long to.
    packed = "/checkpoints/" not in place
    info.compress_type = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with _open_own(path) as file:
        status = os.fstat(file.fileno())
        # Of the mode only whether its owner may execute it, where unzip reads it too.
        mode = stat.S_IFREG | 0o600 | (status.st_mode & stat.S_IXUSR)
        info.external_attr = mode << 16
        with archive.open(info, "w", force_zip64=True) as target:
            length, sha256 = digest(file, target)  # pyright: ignore[reportArgumentType]
    return BundledFile(
        bytes=length,
        sha256=sha256,
        modified_ns=status.st_mtime_ns,
        private=not status.st_mode & 0o077,
    )


def _open_own(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except StoreError as error:
        if error.errno != errno.EACCES:
            raise
        message = (
            f"{path} can only be read by its owner (uid {path.stat().st_uid}; you "
            f"are uid {os.geteuid()}). Ask the owner to export the run."
        )
        raise StoreError(message) from error


def files_of_run(root: Path) -> Iterator[tuple[str, Path, str | None]]:
    """Yield name, path and, if it does not belong into a bundle, why not."""

    def refuse(error: OSError) -> None:
        message = f"{error.filename} cannot be read ({error.strerror}). Check its mode."
        raise StoreError(message) from error  # it is not left out in silence

    for folder, folders, files in os.walk(root, onerror=refuse):
        here = Path(folder)
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = sorted(set(folders) - set(links))
        for path in (here / name for name in sorted([*links, *files])):
            yield path.relative_to(root).as_posix(), path, _exclusion_reason(path, root)


def _exclusion_reason(path: Path, root: Path) -> str | None:
    name = path.relative_to(root).as_posix()
    is_regular = stat.S_ISREG(path.lstat().st_mode)
    if not is_regular or visible(encodable(name, None)) != name:
        return _ODD
    if path == RunPaths(root).imported:
        return "written by an import"
    parts = name.split("/")
    is_temporary = any(part.startswith(".") for part in parts) or path.suffix == ".tmp"
    return "a temporary file" if is_temporary else None
