"""A study's report as a page of the server: as of now, and unable to run anything."""

from __future__ import annotations

import asyncio
import json
import lzma
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbkit
from nbkit.questions.study_report import make
from nbkit.server.reports import Reports, StudyFiles
from nbkit.studies.study import Study
from tests.golden.studies import FOLDER, STORED
from tests.server.jupyter import TOKEN, Jupyter, jupyter


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jupyter]:
    """Return a server; each test has its own store there."""
    with jupyter(tmp_path_factory.mktemp("reports")) as started:
        yield started


@pytest.fixture
def study(
    server: Jupyter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Study]:
    """Return a study of GPUs in the store of the server."""
    store = server.folder / "store"
    monkeypatch.setenv("NBKIT_HOME", str(store))
    bundle = tmp_path / "study.zip"
    stored = (FOLDER / "precision/gpu" / STORED).read_bytes()
    bundle.write_bytes(lzma.decompress(stored))
    nbkit.import_bundle(bundle)
    [folder] = (store / "studies").iterdir()
    yield Study.open(folder.name)
    # Not removed: the server knows files by their numbers, which others would get.
    store.rename(server.folder / tmp_path.name)


def fetched(server: Jupyter, study: Study) -> tuple[dict[str, list[str]], str]:
    """Return headers and page."""
    request = urllib.request.Request(
        f"{server.url}nbkit/report/{study.study_id}",
        headers={"Authorization": f"token {TOKEN}"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        names = set(answer.headers)
        headers = {name: answer.headers.get_all(name) for name in names}
        return headers, answer.read().decode()


def test_a_report_is_that_of_the_study_as_of_now_and_runs_nothing(server, study):
    headers, page = fetched(server, study)

    assert page == make(study).to_html()
    policy = "; ".join(headers["Content-Security-Policy"])
    assert "sandbox allow-popups" in policy
    assert "allow-scripts" not in policy
    assert "default-src 'none'" in policy
    assert not (study.paths.root / "report.html").exists()
    # It is kept until a file of the study changes.
    content = json.loads(study.paths.study.read_text())
    study.paths.study.write_text(json.dumps({**content, "name": "<i>renamed</i>"}))
    _, again = fetched(server, study)
    assert again == make(study).to_html()


def test_a_page_that_a_cell_has_made_is_shown_while_it_is_the_newest(server, study):
    study.paths.imported.unlink()
    saved = nbkit.report(study)
    saved.page.write_text("<!doctype html><title>made by a cell</title>")

    _, page = fetched(server, study)
    saved.page.chmod(0o666)
    _, foreign = fetched(server, study)
    saved.page.chmod(0o644)
    record = study.runs_by_arm()[next(iter(study.arms))][0].paths.record
    later = saved.page.stat().st_mtime_ns + 1_000_000_000
    os.utime(record, ns=(later, later))
    _, newer = fetched(server, study)

    os.utime(record, ns=(0, 0))
    moved = record.parent.rename(record.parent.with_name("moved"))
    _, without = fetched(server, study)
    moved.rename(record.parent)

    assert "made by a cell" not in without
    assert page == saved.page.read_text()
    assert foreign == make(study).to_html()  # others could have written it
    assert newer == make(study).to_html()


def test_a_page_that_is_there_does_not_wait_for_one_that_is_being_made():
    async def pages() -> tuple[bool, bytes]:
        reports = Reports(("-c", "import time; time.sleep(600)"))
        slow = asyncio.create_task(reports.page("a", StudyFiles((), None)))
        await asyncio.sleep(0)  # until it waits for its process
        async with asyncio.timeout(30):
            page = await reports.page("b", StudyFiles((), b"saved"))
        is_made = slow.done()
        slow.cancel()
        await asyncio.wait([slow])
        return is_made, page

    assert asyncio.run(pages()) == (False, b"saved")


def test_a_study_without_a_result_or_without_a_file_is_told_in_a_sentence(
    server, study
):
    for run in study.paths.root.parents[1].glob("runs/*/record.json"):
        run.unlink()

    nothing = server.request(f"nbkit/report/{study.study_id}")
    unknown = server.request("nbkit/report/20260101-000000-s-bbbb")
    outside = server.request("nbkit/report/..%2F..")

    assert nothing.status == 409
    with pytest.raises(nbkit.errors.NbkitError) as refused:
        make(study)
    assert nothing.body == str(refused.value)
    assert unknown.status == outside.status == 404
    assert "no study in the store" in unknown.body
    assert "Traceback" not in server.log
