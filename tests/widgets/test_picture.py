"""The static picture of a run, as other programs show it."""

from __future__ import annotations

import nbformat
from nbconvert.exporters import HTMLExporter

from nbkit.live.run import LiveRun
from nbkit.widgets.picture import picture
from tests.widgets.stored_run import WrittenRun, step


def test_picture_has_alt_texts_in_exported_html(tmp_path):
    written = WrittenRun(tmp_path)
    written.append(*map(step, range(1, 5)))
    live = LiveRun(written.run)
    live.read()
    output = nbformat.v4.new_output("display_data", data=picture(live))
    cell = nbformat.v4.new_code_cell(outputs=[output])
    notebook = nbformat.v4.new_notebook(cells=[cell])

    for template in ("lab", "classic", "basic"):
        exporter = HTMLExporter(template_name=template, embed_images=True)
        page, _ = exporter.from_notebook_node(notebook)
        assert 'alt="Loss: 0.25 to 1"' in page
        assert page.count('<img alt="') == page.count("<img ") > 1
