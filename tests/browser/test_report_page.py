"""A report's page is readable for eyes and for screen readers, bright and dark."""

from __future__ import annotations

import itertools
import lzma

import pytest

import nbkit
from tests.browser.test_looks import AXE
from tests.golden.studies import FOLDER, STORED


@pytest.fixture
def address(tmp_path, monkeypatch):
    """Return where the page of a study of GPUs is, with tables wider than most."""
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "store"))
    bundle = tmp_path / "study.zip"
    bundle.write_bytes(
        lzma.decompress((FOLDER / "precision/gpu" / STORED).read_bytes())
    )
    nbkit.import_bundle(bundle)
    [folder] = (tmp_path / "store" / "studies").iterdir()
    nbkit.report(folder.name, folder=tmp_path / "report")
    return (tmp_path / "report" / "report.html").as_uri()


def test_axe_finds_nothing_on_a_reports_page(page, address):
    visitor = page(address)
    visitor.evaluate(AXE.read_text())

    for width, ground in itertools.product((600, 1300), ("light", "dark")):
        visitor.set_viewport_size({"width": width, "height": 900})
        visitor.emulate_media(color_scheme=ground)
        found = visitor.evaluate("axe.run()")
        assert [(each["id"], each["help"]) for each in found["violations"]] == []
        assert "region" in {each["id"] for each in found["passes"]}
