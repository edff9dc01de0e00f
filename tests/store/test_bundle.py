"""Bundles: their files, and which are refused before a file is written."""

from __future__ import annotations

import json
import os
import shutil
import stat
import zipfile
from pathlib import Path

import pytest

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, RunError, RunNotFoundError, StoreError
from nbkit.store.ownership import was_submitted_elsewhere
from nbkit.store.paths import RunPaths, StudyPaths, runs_folder, studies_folder
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import RunState, read_json, utc_now, write_json
from nbkit.store.run_list import list_runs
from nbkit.store.stored_runs import StoredRun, create_run_folder
from tests.slurm_programs import SlurmPrograms


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "here"))
    return tmp_path / "here"


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Return a switch to the store of another machine."""
    return lambda: monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "elsewhere"))


def _run(state="finished"):
    paths = create_run_folder(ExperimentConfig())
    gone = {**ProcessIdentity.of().to_dict(), "start_ticks": -1}
    submission = {"attempt": 0, "supervisor": gone, "owner": gone}
    # Its supervisor has started it again once.
    record = {"attempt": 1, "state": state, "name": "x", "supervisor": gone, "time": {}}
    write_json(paths.submission, submission)
    write_json(paths.record, {**record, "run_id": paths.run_id})
    paths.code.mkdir()
    paths.entry_pickle.touch(0o600)
    paths.entry_pickle.write_bytes(b"cos\nsystem\n(S'touch loaded'\ntR.")
    (paths.checkpoints / "step_00000005").mkdir(parents=True)
    (paths.checkpoints / "step_00000005" / "complete.json").write_text("{}")
    paths.reserve.write_bytes(b"\0" * 9)
    (paths.root / ".record.json.abc").touch()
    return StoredRun(paths.root)


def _names(root):
    return {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()}


def test_import_run(tmp_path, elsewhere, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = _run()
    (run.paths.root / "out").symlink_to("/etc/passwd")
    before = run.paths.record.stat().st_mtime_ns
    odd = f"omits 1 file: runs/{run.run_id}/out .a link or "
    with pytest.warns(UserWarning, match=odd):
        bundle = nbkit.export(run, tmp_path / "x.zip", include_arguments=True)
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600
    elsewhere()

    done = nbkit.import_bundle(bundle)

    assert (done.run_ids, done.study_id) == ((run.run_id,), None)
    assert str(done) == f"imported 1 run: {run.run_id}"
    new = StoredRun(runs_folder() / run.run_id)
    expected = {"config.json", "submission.json", "record.json", "code/entry.pkl"}
    assert _names(new.paths.root) == {*expected, "imported.json"}
    assert new.state is RunState.FINISHED
    assert new.paths.record.stat().st_mtime_ns == before
    assert stat.S_IMODE(new.paths.entry_pickle.stat().st_mode) == 0o600
    assert [row.state for row in list_runs()] == ["finished"]
    mark = read_json(new.paths.imported) or {}
    assert mark["bundle"] == str(bundle)
    reasons = {one["path"].split("/")[2]: one["why"] for one in mark["left_out"]}
    assert reasons.pop("out").startswith("a link or ")
    assert reasons == {
        "checkpoints": "checkpoints=False",
        ".reserve": "a temporary file",
        ".record.json.abc": "a temporary file",
    }
    assert [path.name for path in runs_folder().iterdir()] == [run.run_id]
    # What the pickle of the entry would make.
    assert not (tmp_path / "loaded").exists()


def test_import_existing_run(tmp_path, elsewhere):
    run = _run()
    bundle = nbkit.export(run.run_id, tmp_path / "x.zip", checkpoints=True)
    assert nbkit.import_bundle(bundle).already_there == (run.run_id,)
    assert not run.paths.imported.exists()
    elsewhere()
    nbkit.import_bundle(bundle)
    again = nbkit.import_bundle(nbkit.export(run.run_id, tmp_path / "y.zip"))
    assert "1 run already in the store: " in str(again)
    new = StoredRun(runs_folder() / run.run_id)
    assert (new.paths.checkpoints / "step_00000005" / "complete.json").is_file()
    new.paths.config.write_text("{}")

    with pytest.raises(RunError, match=r"already exists in the store .* \(config"):
        nbkit.import_bundle(bundle)


def test_import_was_submitted_elsewhere(tmp_path, elsewhere):
    run = _run()
    os.utime(run.paths.submission, (2**32, 2**32))  # a clock that is ahead
    bundle = nbkit.export(run, tmp_path / "x.zip")
    elsewhere()
    nbkit.import_bundle(bundle)
    there = RunPaths(runs_folder() / run.run_id)

    assert was_submitted_elsewhere(there.submission, there.imported)
    write_json(there.submission, {"attempt": 1, "time": utc_now()})
    os.utime(there.submission, (1, 1))
    assert not was_submitted_elsewhere(there.submission, there.imported)


def test_export_study(tmp_path, elsewhere):
    done, failed = _run(), _run("failed")
    study = StudyPaths(studies_folder() / "20200101-000000-study-aaaa")
    study.root.mkdir(parents=True)
    ids = [done.run_id, failed.run_id, "20200101-000000-gone-aaaa"]
    runs = [{"arm": "a", "repeat": n, "run_id": name} for n, name in enumerate(ids)]
    plan = {"name": "s", "arms": {}, "order": [], "plan": {}, "repeats": 1}
    content = {"schema": "nbkit.study/1", **plan, "runs": runs, "executor": None}
    write_json(study.study, content)
    study.change.write_text("--- a\n+++ b\n")
    bundle = nbkit.export(study.root.name, tmp_path / "x.zip")
    elsewhere()

    imported = nbkit.import_bundle(bundle)

    assert imported.study_id == study.root.name
    assert set(imported.run_ids) == {done.run_id, failed.run_id}
    there = StudyPaths(studies_folder() / study.root.name)
    assert read_json(there.study) == content
    assert there.change.read_text() == study.change.read_text()
    assert there.imported.is_file()
    with zipfile.ZipFile(bundle) as archive:
        left_out = json.loads(archive.read("bundle.json"))["left_out"]
    assert {"path": f"runs/{ids[2]}", "why": "its folder was removed"} in left_out


def _study_of(*runs, executor=None, name="study-aaaa"):
    study = StudyPaths(studies_folder() / f"20200101-000000-{name}")
    study.root.mkdir(parents=True)
    entries = [{"run_id": run.run_id} for run in runs]
    write_json(study.study, {"runs": entries, "executor": executor})
    return study


def test_export_study_of_silent_host(tmp_path):
    elsewhere = {"host": "elsewhere", "boot_id": "b", "pid_namespace": "pid:[1]"}
    executor = {**ProcessIdentity.of().to_dict(), **elsewhere}
    done, unheard = _run(), _run("running")
    record = {"attempt": 1, "state": "running", "supervisor": executor, "time": {}}
    submission = {"attempt": 0, "supervisor": executor, "owner": executor}
    write_json(unheard.paths.record, record)
    write_json(unheard.paths.submission, submission)
    study = _study_of(done, unheard, executor=executor)

    for path in (unheard.paths.record, unheard.paths.submission):
        os.utime(path, (1e9, 1e9))

    bundle = nbkit.export(study.root.name, tmp_path / "x.zip")
    with zipfile.ZipFile(bundle) as archive:
        manifest = json.loads(archive.read("bundle.json"))
    assert manifest["runs"] == [done.run_id]
    why = "no final record and no heartbeat"
    assert {"path": f"runs/{unheard.run_id}", "why": why} in manifest["left_out"]


def test_export_study_in_execution(tmp_path):
    study = _study_of(_run(), executor=ProcessIdentity.of().to_dict())

    with pytest.raises(RunError, match=f"being executed by process {os.getpid()}"):
        nbkit.export(study.root.name, tmp_path / "x.zip")


def test_export_refusals(tmp_path):
    running = _run("running")
    with pytest.raises(RunError, match="has no final record"):
        nbkit.export(running, tmp_path / "x.zip")
    me = ProcessIdentity.of().to_dict()
    record = {"attempt": 0, "state": "running", "supervisor": me}
    write_json(running.paths.record, record)
    with pytest.raises(RunError, match=r"is running. Call wait"):
        nbkit.export(running, tmp_path / "x.zip")
    with pytest.raises(RunNotFoundError):
        nbkit.export("nobody", tmp_path / "x.zip")
    _study_of(name="one-aaaa")
    _study_of(name="two-aaaa")
    with pytest.raises(StoreError, match="'aaaa': 2 studies have this ending"):
        nbkit.export("aaaa", tmp_path / "x.zip")
    run = _run()
    _study_of(name=f"three-{run.run_id[-4:]}")
    with pytest.raises(ConfigError, match=f"of study .* and of run {run.run_id}. Use"):
        nbkit.export(run.run_id[-4:], tmp_path / "x.zip")
    with pytest.raises(ConfigError, match="is neither a run nor a study"):
        nbkit.export(5, tmp_path / "x.zip")  # pyright: ignore[reportArgumentType]
    with pytest.raises(StoreError, match="cannot be written"):
        nbkit.export(_run(), tmp_path / "nowhere" / "x.zip")

    assert [path.name for path in tmp_path.iterdir()] == ["here"]


@pytest.mark.parametrize("earlier", [None, "stopped"])
def test_export_job_ended_in_queue(tmp_path, monkeypatch, earlier):
    SlurmPrograms(tmp_path, monkeypatch).tell("squeue", "7|CANCELLED|N/A||None")
    done, cancelled = _run(), _run()
    job = {"id": "7", "cluster": None}
    submission = {"attempt": 1, "supervisor": None, "job": job}
    write_json(cancelled.paths.submission, submission)
    cancelled.paths.record.unlink()
    if earlier:
        write_json(cancelled.paths.record, {"attempt": 0, "state": earlier})
    study = StudyPaths(studies_folder() / "20200101-000000-study-aaaa")
    study.root.mkdir(parents=True)
    write_json(study.study, {"runs": [{"run_id": r.run_id} for r in (done, cancelled)]})

    assert cancelled.state is RunState.STOPPED
    with pytest.raises(RunError, match="has no final record"):
        nbkit.export(cancelled, tmp_path / "x.zip")
    with zipfile.ZipFile(nbkit.export(study.root.name, tmp_path / "y.zip")) as archive:
        manifest = json.loads(archive.read("bundle.json"))
    assert manifest["runs"] == [done.run_id]
    why = "no final record: lost, or its Slurm job ended without one"
    assert {"path": f"runs/{cancelled.run_id}", "why": why} in manifest["left_out"]


def _rewritten(bundle: Path, change) -> Path:
    """Return a bundle with other contents: by name, with the manifest as values."""
    with zipfile.ZipFile(bundle) as archive:
        contents: dict[str, object] = {n: archive.read(n) for n in archive.namelist()}
    manifest = json.loads(contents.pop("bundle.json"))  # pyright: ignore
    run = manifest["runs"][0]
    extra = change(contents, manifest, f"runs/{run}") or []
    target = bundle.with_name("changed.zip")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)  # pyright: ignore
        for info, content in extra:
            archive.writestr(info, content)
        archive.writestr("bundle.json", json.dumps(manifest))
    return target


def _leads(to):
    def change(contents, manifest, run):
        name = to.replace("RUN", run)
        contents[name] = contents[f"{run}/config.json"]
        manifest["files"][name] = manifest["files"][f"{run}/config.json"]

    return change


def _content(content):
    return lambda contents, _, run: contents.update({f"{run}/config.json": content})


def _manifest(**changes):
    return lambda _, manifest, run: manifest["files"][f"{run}/config.json"].update(
        changes
    )


def _link(contents, manifest, run):
    info = zipfile.ZipInfo(f"{run}/config.json")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return [(info, contents.pop(info.filename))]


def _under_way(contents, manifest, run):
    import hashlib

    name = f"{run}/record.json"
    values = json.loads(contents[name])
    data = contents[name] = json.dumps({**values, "state": "running"}).encode()
    manifest["files"][name]["bytes"] = len(data)
    manifest["files"][name]["sha256"] = hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_leads("../../evil"), r"'\.\./\.\./evil' is not a file of its runs or study"),
        (_leads("/etc/evil"), "'/etc/evil' is not a file of its runs or study"),
        (_leads("RUN/../../evil"), r"/\.\./\.\./evil' is not a file of its runs"),
        (_leads("RUN/imported.json"), "imported.json' is not a file of its runs"),
        (_leads("RUN/imported.json/x"), "json/x' is not a file of its runs or study"),
        (_leads("runs/20200101-000000-b/x"), "-b/x' is not a file of its runs"),
        (_leads("studies/20200101-000000-s/study.json"), "/study.json' is not a file"),
        (_leads("RUN/config.json/x"), "json/x' is below another file"),
        (_leads("RUN/code/a\nb"), r"code/a\\nb' has a control character"),
        (
            lambda contents, _, run: contents.update({f"{run}/more.txt": b"more"}),
            "is not in the manifest, or is in the archive twice",
        ),
        (
            lambda contents, _, run: contents.pop(f"{run}/record.json") and None,
            "record.json' is missing",
        ),
        (_content(b" " * 1_000_000), r"has 1,000,000 bytes, but \d,?\d* in the mani"),
        (_manifest(sha256="0" * 64), "does not match its checksum"),
        (
            lambda _, manifest, run: manifest.update(schema="nbkit.bundle/2"),
            r"schema 'nbkit.bundle/2' is not .*\. Import it with the version",
        ),
        (_manifest(sha256=None), "sha256 in bundle.json: Input should be"),
        (_manifest(bytes=1 << 60), "in the manifest"),
        (_link, "is a link, or not a regular file"),
        (_under_way, "has not ended"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_import_changed_bundle(tmp_path, elsewhere, change, message):
    bundle = _rewritten(nbkit.export(_run(), tmp_path / "x.zip"), change)
    elsewhere()

    with pytest.raises(StoreError, match=message):
        nbkit.import_bundle(bundle)

    assert not (tmp_path / "elsewhere").exists()
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("place", [0, -1])
def test_import_duplicate_file(tmp_path, elsewhere, place):
    bundle = nbkit.export(_run(), tmp_path / "x.zip")
    with zipfile.ZipFile(bundle, "a") as archive:
        name = archive.namelist()[place]  # the last is the manifest
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr(name, archive.read(name))
    elsewhere()

    with pytest.raises(StoreError, match="or is in the archive twice"):
        nbkit.import_bundle(bundle)


def test_import_full_disk(tmp_path, elsewhere, monkeypatch):
    bundle = nbkit.export(_run(), tmp_path / "x.zip")
    elsewhere()
    usage = shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)

    with pytest.raises(StoreError, match=r"unpacks to [\d,]+ bytes, but only 10 are"):
        nbkit.import_bundle(bundle)


def test_import_interrupted(tmp_path, elsewhere, monkeypatch):
    bundle = nbkit.export(_run(), tmp_path / "x.zip")
    elsewhere()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(os, "utime", full)
        with pytest.raises(StoreError, match="the disk is full"):
            nbkit.import_bundle(bundle)

    assert list(runs_folder().iterdir()) == []
    assert nbkit.import_bundle(bundle).already_there == ()


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x05\x06" + b"\0" * 18])
def test_what_is_no_bundle_is_said(tmp_path, content):
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(StoreError, match=r"x\.zip cannot be imported"):
        nbkit.import_bundle(tmp_path / "x.zip")
    with pytest.raises(StoreError, match="cannot be read"):
        nbkit.import_bundle(tmp_path / "none.zip")


def test_export_name_not_utf8(tmp_path, elsewhere):
    run = _run()
    Path(os.fsdecode(os.fsencode(run.paths.root) + b"/caf\xe9.txt")).touch()

    with pytest.warns(UserWarning, match=r"caf\\udce9\.txt \(.* invalid UTF-8"):
        bundle = nbkit.export(run, tmp_path / "x.zip")
    elsewhere()

    assert nbkit.import_bundle(bundle).run_ids == (run.run_id,)


def test_import_file_modes(tmp_path, elsewhere):
    run = _run()
    for name, mode in (("tool", 0o4755), ("own", 0o700), ("text", 0o644)):
        (run.paths.code / name).touch()
        (run.paths.code / name).chmod(mode)
    bundle = nbkit.export(run, tmp_path / "x.zip")
    elsewhere()

    before = os.umask(0o022)
    try:
        nbkit.import_bundle(bundle)
    finally:
        os.umask(before)

    code = StoredRun(runs_folder() / run.run_id).paths.code
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in code.iterdir()}
    assert modes == {"tool": 0o755, "own": 0o700, "text": 0o644}
