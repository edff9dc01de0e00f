"""The panel is readable in both themes, for eyes and for screen readers, and small."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.sidebar import card, cut_off, open_panel, shortened, until
from tests.server.stored_runs import store_run

ROOT = Path(__file__).parents[2]
AXE = ROOT / "labextension/node_modules/axe-core/axe.min.js"
BUILT = ROOT / "nbkit/labextension/static"
MOST_BYTES = 60_000


THEMES = ("JupyterLab Light", "JupyterLab Dark")


def change_theme(visitor, theme):
    visitor.evaluate(
        "theme => jupyterapp.commands.execute('apputils:change-theme', {theme})", theme
    )
    body = visitor.locator("body")
    expect(body).to_have_attribute("data-jp-theme-name", theme)
    # Until the theme's style is there, Lab covers the page.
    expect(visitor.locator("#jupyterlab-splash")).to_have_count(0)


def look(visitor, scope=".nbk-panel, .nbk-status", themes=THEMES):
    """Look for faults, in both themes, and for parts that are cut off."""
    visitor.evaluate(AXE.read_text())
    # Lab's body has no height of its own, so that axe believes that nobody sees it.
    visitor.evaluate("document.body.style.height = '100vh'")
    for theme in themes:
        if theme is not None:
            change_theme(visitor, theme)
        found = visitor.evaluate("scope => axe.run(scope)", scope)
        assert [(each["id"], each["help"]) for each in found["violations"]] == []
        assert "color-contrast" in {each["id"] for each in found["passes"]}
    assert cut_off(visitor.locator("#nbkit-panel")) == []


def look_at_eight_gpus(server, visitor, width):
    """Read eight GPUs in a sidebar of a width in pixels; return the panel."""
    store_run(server.store, "20200101-000000-old")  # its marks are in the legend
    visitor.goto(server.address())
    panel = open_panel(visitor)
    # Of the eight, one that nobody uses takes a line.
    expect(panel.locator(".nbk-card")).to_have_count(7)
    expect(panel.locator(".nbk-idle-gpus")).to_have_text("GPU 7idle")
    bar = visitor.locator("#jp-left-stack").bounding_box()
    handle = visitor.locator("#jp-main-split-panel > .lm-SplitPanel-handle").first
    place = handle.bounding_box()
    visitor.mouse.move(place["x"] + 1, 400)
    visitor.mouse.down()
    visitor.mouse.move(bar["x"] + width, 400, steps=3)
    visitor.mouse.up()

    def has_width():
        return abs(panel.bounding_box()["width"] - width) <= 5

    until(visitor, has_width, f"a sidebar of {width} px")
    expect(card(panel, 6).get_by_role("meter").first).to_contain_text("%")
    places = [card(panel, place).bounding_box() for place in range(2)]
    assert (places[0]["y"] == places[1]["y"]) == (width > 420)
    # The newest run is above the fold.
    newest = panel.locator(".nbk-run").bounding_box()
    assert newest["y"] + newest["height"] < 870
    panel.locator(".nbk-idle-gpus").click()
    expect(panel.locator(".nbk-card")).to_have_count(8)
    look(visitor)
    assert shortened(panel) == []
    legend = panel.locator(".nbk-legend").first
    expect(legend.locator(".nbk-mod-run")).to_be_visible()
    parts = legend.locator("span").evaluate_all(
        "spans => spans.map(it => [it.offsetTop, it.scrollWidth <= it.clientWidth + 1])"
    )
    assert len({top for top, _ in parts}) == 1
    assert all(is_whole for _, is_whole in parts)
    # At the newest values: what came before may be unknown.
    plot = card(panel, 0).locator(".nbk-plot")
    plot.hover(position={"x": plot.bounding_box()["width"] - 1, "y": 5})
    expect(panel.locator(".nbk-tip")).to_contain_text("memory")
    assert cut_off(panel) == []
    return panel


def test_every_rule_is_nbkits_own_and_every_colour_the_themes():
    files = list((ROOT / "labextension/style").glob("*.css"))
    texts = [re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S) for path in files]
    text = re.sub(r"@import[^;]*;|@(media|container)[^{]*\{", "", "\n".join(texts))
    selectors = [
        selector.strip()
        for group in re.findall(r"([^{}]+)\{", text)
        for selector in group.split(",")
    ]

    assert len(selectors) > 50
    own = (".nbk-", ".jp-LauncherCard[data-category='nbkit']")
    assert [each for each in selectors if not each.startswith(own)] == []
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b|\brgba?\(|\bhsla?\(", text) == []


def test_languages_written_from_the_right_have_the_sides_of_a_row_exchanged():
    files = (ROOT / "labextension/style").glob("*.css")
    files = [*files, *(ROOT / "nbkit").glob("*/static/*.css")]
    text = "\n".join(path.read_text() for path in files)

    assert {"view.css", "table.css", "form.css"} <= {path.name for path in files}
    side = r"(?:margin|padding|border|align)[-: ]+(?:left|right)"
    unequal = r"(?:margin|padding): \S+ (\S+) \S+ (?!\1;)\S+;"
    assert re.findall(f"{side}|{unequal}", text) == []


def test_all_that_a_browser_loads_is_small_and_from_the_server():
    files = [path for path in BUILT.iterdir() if path.suffix in (".js", ".css")]
    text = "".join(path.read_text() for path in files)

    assert sum(len(gzip.compress(path.read_bytes())) for path in files) <= MOST_BYTES
    hosts = set(re.findall(r"https?://([\w.-]+)", text))
    assert hosts <= {"www.w3.org"}
