"""What is shown is registered by the import of nbkit, and costs nothing before."""

from __future__ import annotations

import re
import subprocess
import sys

from nbkit.live.browser_part import static_text
from nbkit.widgets.picture import TITLES

# A kernel's shell, without a kernel's process.
SHELL = """
import sys
from types import SimpleNamespace
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
"""


def answer(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", SHELL + program],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.strip()


def test_importing_nbkit_in_a_kernel_registers_names_and_loads_no_widgets():
    said = answer("""
shell.kernel = SimpleNamespace()
import nbkit
heavy = {"anywidget", "ipywidgets", "altair", "pydantic", "torch", "nbkit.launch"}
names = shell.display_formatter.ipython_display_formatter.deferred_printers
print(sorted(heavy & set(sys.modules)), ("nbkit.launch.run", "Run") in names)
""")

    assert said == "[] True"


def test_importing_nbkit_in_a_terminal_registers_nothing():
    said = answer("""
import nbkit
print([name for name in sys.modules if name.startswith("nbkit.")])
""")

    assert said == "[]"


def test_only_a_request_of_a_page_has_widgets():
    said = answer("""
import os
from nbkit.widgets.frontend import has_widgets
found = [has_widgets()]
shell.kernel = SimpleNamespace()
for parent in (
    {"header": {"username": "ann"}, "metadata": {}},
    {"header": {"username": "ann"}, "metadata": {"cellId": "1"}},
    {"header": {"username": ""}, "metadata": {}},
    {},
):
    object.__setattr__(shell, "get_parent", lambda: parent)
    found.append(has_widgets())
os.environ["SERVER_SOFTWARE"] = "voila/0.5"
print(found, has_widgets())
""")

    assert said == "[False, False, True, True, False] True"


def test_pictures_and_views_call_a_curve_the_same():
    (titles,) = re.findall(
        r"const TITLES = {(.*?)};", static_text("view_parts.js"), re.S
    )

    assert dict(re.findall(r"'?([\w:]+)'?: trans\.__\('(.*?)'\)", titles)) == TITLES
