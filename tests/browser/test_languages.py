"""Everything that the panel says can be said in another language, and still fits."""

from __future__ import annotations

import json
import os
import re
import socket
from importlib.resources import files
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.sidebar import EXPOSED, cut_off, open_panel

SOURCES = Path(__file__).parents[2] / "labextension/src"
LITERAL = r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
ONE = re.compile(rf"trans\s*\.__\(\s*{LITERAL}")
SEVERAL = re.compile(rf"trans\s*\._n\(\s*{LITERAL},\s*{LITERAL}")
# Longer than English, as most languages are, and marked at both ends.
TRANSLATED = "[{} äöü]"


def texts() -> dict[str, list[str]]:
    """Return a catalogue of every text that the extension asks to be translated."""
    found: dict[str, list[str]] = {}
    for path in SOURCES.glob("*.ts*"):
        source = path.read_text()
        asked = len(re.findall(r"trans\s*\.(?:__|_n)\(", source))
        groups = [(text,) for text in ONE.findall(source)] + SEVERAL.findall(source)
        assert len(groups) == asked, f"{path}: a text that is no literal"
        for group in groups:
            plain = [re.sub(r"\\(.)", r"\1", text[1:-1]) for text in group]
            found[plain[0]] = [TRANSLATED.format(text) for text in plain]
    return found


def write_language_pack(folder: Path) -> None:
    """Write an installed package that brings nbkit's texts in a language."""
    package = folder / "jupyterlab_language_pack_de_DE"
    catalogue = package / "locale/de_DE/LC_MESSAGES/nbkit.json"
    catalogue.parent.mkdir(parents=True)
    (package / "__init__.py").touch()
    about = {
        "domain": "nbkit",
        "language": "de-DE",
        "plural_forms": "nplurals=2; plural=(n != 1);",
    }
    catalogue.write_text(json.dumps({"": about, **texts()}))
    described = folder / "jupyterlab_language_pack_de_DE-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: jupyterlab-language-pack-de-DE\nVersion: 1.0\n"
    )
    (described / "entry_points.txt").write_text(
        "[jupyterlab.languagepack]\nde_DE = jupyterlab_language_pack_de_DE\n"
    )


SPOKEN = """panel => {
  const said = [];
  const walker = document.createTreeWalker(panel, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) said.push(walker.currentNode.data);
  for (const one of panel.querySelectorAll('[aria-label], [title]'))
    said.push(one.getAttribute('aria-label') ?? '', one.getAttribute('title') ?? '');
  return said;
}"""


def words_of(text: str) -> set[str]:
    """Return the words of a text, without numbers and short ones such as units."""
    return set(re.findall(r"[A-Za-z]{3,}", text))


def named_in(trace: str) -> set[str]:
    """Return the words that are names: of GPUs, users, programs and files."""
    text = files("nbkit.telemetry").joinpath(f"traces/{trace}.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    named = [each for row in rows for each in row.get("devices", [])]
    named += [each for row in rows for each in (row.get("by_pid") or {}).values()]
    keys = ("name", "uuid", "user", "command", "path")
    return words_of(json.dumps([each.get(key) for each in named for key in keys]))


def left_in_english(said: list[str]) -> set[str]:
    """Return the words outside of translated texts."""
    words = set()
    for text in said:
        while (shorter := re.sub(r"\[[^\[\]]*äöü\]", " ", text)) != text:
            text = shorter
        words |= words_of(text)
    return words


def test_the_panel_speaks_the_language_of_the_page(lab, page, run, tmp_path):
    write_language_pack(tmp_path / "packs")
    path = os.pathsep.join(
        filter(None, [str(tmp_path / "packs"), os.environ.get("PYTHONPATH")])
    )
    server = lab("replay:throttling", EXPOSED, PYTHONPATH=path)
    server.set("@jupyterlab/translation-extension:plugin", locale="de_DE")
    server.set("nbkit:plugin", cards="expanded")
    started = run(server)
    visitor = page(server.address())
    panel = open_panel(visitor)
    expect(panel.locator(".nbk-run", has_text="a long run")).to_contain_text("images/s")
    expect(panel).to_contain_text("power cap äöü]")
    expect(panel.locator(".nbk-cores")).to_be_visible()

    names = words_of(f"a long run {started.run_id} {socket.gethostname()}")
    said = panel.evaluate(SPOKEN)
    assert left_in_english(said) <= named_in("throttling") | names
    assert cut_off(panel) == []
