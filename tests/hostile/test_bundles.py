"""Bundles that are meant to fill a disk or to break a list are refused as a whole."""

from __future__ import annotations

import hashlib
import json
import time
import zipfile

import pytest

import nbkit
from nbkit.cli.main import main
from nbkit.config import ExperimentConfig
from nbkit.errors import StoreError
from nbkit.store import bundle_import
from nbkit.store.bundle import MANIFEST
from nbkit.store.paths import runs_folder

RUN = "20260101-000000-evil-aaaa"
RECORD = {"attempt": 0, "state": "finished", "name": "x", "time": {}}
SUBMISSION = {"attempt": 0}


@pytest.fixture
def bundle(tmp_path):
    """Return what writes a bundle of one run, with other files in it."""

    def write(**files):
        contents = {
            "config": ExperimentConfig().to_json(),
            "record": json.dumps(RECORD),
            "submission": json.dumps(SUBMISSION),
            **files,
        }
        listed = {}
        path = tmp_path / "x.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in contents.items():
                place = f"runs/{RUN}/{name}.json"
                archive.writestr(place, text)
                listed[place] = {
                    "bytes": len(text.encode()),
                    "sha256": hashlib.sha256(text.encode()).hexdigest(),
                    "modified_ns": time.time_ns(),
                    "private": False,
                }
            manifest = {
                "schema": "nbkit.bundle/1",
                "nbkit": "1",
                "created": "2026-01-01T00:00:00Z",
                "host": "h",
                "study": None,
                "runs": [RUN],
                "files": listed,
                "left_out": [],
            }
            archive.writestr(MANIFEST, json.dumps(manifest))
        return path

    return write


def test_a_bundle_that_is_as_it_should_be_is_taken(bundle):
    assert nbkit.import_bundle(bundle()).run_ids == (RUN,)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"config": "[" * 300_000}, r"config\.json is damaged"),
        ({"worker": '{"a":' * 500_000}, r"worker\.json is damaged"),
        (
            {"record": json.dumps({**RECORD, "name": float("inf")})},
            r"record\.json is damaged \(name=inf is not text\)",
        ),
        (
            {"submission": '{"attempt":0,"job":{"id":"-x"}}'},
            r"job\.id='-x' is not a Slurm job id",
        ),
    ],
    ids=["deep config", "deep worker", "infinite name", "job"],
)
def test_what_would_break_a_list_is_not_laid_down(bundle, store, files, words):
    with pytest.raises(StoreError, match=words):
        nbkit.import_bundle(bundle(**files))

    assert not store.exists()


def test_a_bomb_is_refused_with_its_numbers_unless_it_is_meant(
    bundle, store, monkeypatch, capsys
):
    monkeypatch.setattr(bundle_import, "ANY_TIMES_BYTES", 1 << 20)
    bomb = bundle(blank=" " * (4 << 20))

    with pytest.raises(StoreError, match=r"unpacks to 4,\d+,\d+ bytes, but the limit"):
        nbkit.import_bundle(bomb)
    assert main(["import", str(bomb)]) == 2
    assert "large=True (nbkit import --large)" in capsys.readouterr().err
    assert not store.exists()

    assert main(["import", "--large", str(bomb)]) == 0
    assert (runs_folder() / RUN / "blank.json").stat().st_size == 4 << 20


@pytest.mark.parametrize(
    ("study", "words"),
    [({}, "study.json lacks arms"), ({"arms": 7}, "arms=7 is not an obj")],
    ids=["empty", "other types"],
)
def test_a_study_that_is_none_is_refused(bundle, store, study, words):
    path, study_id = bundle(), "20260101-000000-evil-bbbb"
    with zipfile.ZipFile(path) as archive:
        contents = {one: archive.read(one) for one in archive.namelist()}
    manifest = json.loads(contents[MANIFEST])
    text = json.dumps(study).encode()
    place = f"studies/{study_id}/study.json"
    manifest["study"] = study_id
    manifest["files"][place] = {
        "bytes": len(text),
        "sha256": hashlib.sha256(text).hexdigest(),
        "modified_ns": time.time_ns(),
        "private": False,
    }
    contents |= {place: text, MANIFEST: json.dumps(manifest).encode()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)

    with pytest.raises(StoreError, match=words):
        nbkit.import_bundle(path)
    assert not store.exists()
