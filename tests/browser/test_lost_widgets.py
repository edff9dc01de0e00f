"""A reopened notebook shows what was saved of a widget, and no error above it."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.test_live_view import EXPOSED, command, open_notebook, write

SHOWS = """
import ipywidgets
from IPython.display import HTML, display
from nbkit.widgets.picture import NO_LOST_WIDGET

view = {"version_major": 2, "version_minor": 0, "model_id": 32 * "0"}
lost = {"application/vnd.jupyter.widget-view+json": view, "text/plain": "lost"}
picture = HTML(NO_LOST_WIDGET + '<div class="nbkit-picture">a picture</div>')
for shown in (lost, picture, ipywidgets.Label("alive"), picture, lost, HTML("other")):
    display(shown, raw=shown is lost)
"""


def test_a_lost_widget_says_nothing_above_its_picture_and_others_stay(lab, page):
    server = lab("replay:no-gpu", EXPOSED)
    write(server, "a.ipynb", SHOWS, "import time\ntime.sleep(1e6)")
    visitor = page(server.address("lab/tree/a.ipynb"))
    open_notebook(visitor, "a.ipynb")
    run_and_select_next = "notebook:run-cell-and-select-next"
    command(visitor, run_and_select_next)

    outputs = visitor.locator(".jp-Notebook:visible .jp-OutputArea-child")
    error = "Error displaying widget: model not found"
    shown = [error, "a picture", "alive", "a picture", error, "other"]
    expect(outputs).to_contain_text(shown)
    seen = [output.is_visible() for output in outputs.all()]
    assert seen == [False, True, True, True, True, True]

    # While a cell works, a page that is loaded again cannot ask for the widgets.
    command(visitor, run_and_select_next)
    expect(visitor.locator(".jp-InputPrompt", has_text="[*]")).to_have_count(1)
    visitor.evaluate("jupyterapp.commands.execute('docmanager:save')")
    visitor.reload()
    waiting = visitor.get_by_text("Loading widget")
    expect(waiting).to_have_count(3)
    assert [it.is_visible() for it in waiting.all()] == [False, False, True]
    expect(visitor.locator(".nbkit-picture").filter(visible=True)).to_have_count(2)
