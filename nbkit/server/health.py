"""The checks of `nbkit doctor` for JupyterLab: extension and widgets.

Jupyter is asked as ``jupyter server extension list`` and ``jupyter labextension list``
ask it: by its folders of settings and of extensions, without a server. What they ask
is imported in each check: in a release that has it no more, the others still hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_config_path, jupyter_path

from nbkit.findings import Finding
from nbkit.health import check, installed, stream
from nbkit.packages import DISTRIBUTION, REINSTALL, pip_install

_EXTENSION = "nbkit.server"
_PAGE = "nbkit"
_WIDGETS = {
    "@jupyter-widgets/jupyterlab-manager": "ipywidgets",
    "anywidget": "anywidget",
}
"""What shows widgets in a page, and the package that brings it."""
_AGAIN = f"{REINSTALL}, then restart Jupyter and reload the page"


def checks() -> Iterator[Finding]:
    """Yield the results of the environment of this Python."""
    version = installed("jupyterlab")
    is_usable = version is not None and version.startswith("4.")
    evidence = version or "not installed"
    evidence += ", not version 4" if version and not is_usable else ""
    command = pip_install("jupyterlab")
    yield check("JupyterLab", is_usable, evidence, command, "error")
    notebook = installed("notebook")
    if notebook is not None:
        shows_sidebar = int(notebook.partition(".")[0]) >= 7
        evidence = notebook if shows_sidebar else f"{notebook} shows no sidebar"
        action = "update to Notebook 7, or use JupyterLab"
        yield check("Notebook", shows_sidebar, evidence, action)
    try:
        Path.home()
    except RuntimeError:
        # A container may give its processes a user that the system does not know.
        evidence, action = "this user has no home folder", "set HOME to a folder"
        yield Finding("Home folder", "error", evidence, action)
        return
    parts = {
        "Server extension": ("server extension list", _server_extension),
        "Lab extension": ("labextension list", _pages),
    }
    for what, (command, results) in parts.items():
        try:
            yield from results(what)
        except (ImportError, AttributeError, TypeError, KeyError) as error:
            evidence = f"unknown: Jupyter's interface has changed ({error!r})"
            action = f"check nbkit with `jupyter {command}`, and update nbkit"
            yield Finding(what, "warning", evidence, action)


def _server_extension(what: str) -> Iterator[Finding]:
    """Check whether a Jupyter server would load the extension, and can."""
    from jupyter_server.extension.config import ExtensionConfigManager
    from jupyter_server.extension.manager import ExtensionPackage

    manager = ExtensionConfigManager(read_config_path=jupyter_config_path())
    enabled: Mapping[str, bool] = manager.get_jpserver_extensions()
    if not enabled.get(_EXTENSION):
        evidence = (
            "disabled" if _EXTENSION in enabled else "not registered with Jupyter"
        )
        action = f"jupyter server extension enable {_EXTENSION}, then restart Jupyter"
        yield Finding(what, "error", evidence, action)
        return
    try:
        valid = ExtensionPackage(name=_EXTENSION, enabled=True).validate()
        evidence = "enabled" if valid else "enabled, but not valid"
    except ImportError as error:
        valid, evidence = False, f"enabled, but cannot be imported: {error}"
    yield check(what, valid, evidence, _AGAIN, "error")


def _pages(what: str) -> Iterator[Finding]:
    """Check whether the browser gets the part that belongs to nbkit, and widgets."""
    from jupyterlab_server.config import get_federated_extensions, get_page_config

    labextensions = jupyter_path("labextensions")
    pages: Mapping[str, Any] = get_federated_extensions(labextensions)
    disabled = get_page_config(labextensions).get("disabledExtensions") or {}
    version, own = installed(DISTRIBUTION), pages.get(_PAGE)
    if own is None:
        yield Finding(what, "error", "not installed", _AGAIN)
    elif disabled.get(_PAGE):
        action = f"jupyter labextension enable {_PAGE}, then reload the page"
        yield Finding(what, "error", "disabled", action)
    elif own["version"] != version:
        evidence = f"{own['version']} in {own['ext_dir']}, but nbkit is {version}"
        yield Finding(what, "error", evidence, _AGAIN)
    else:
        yield Finding(what, "ok", f"{own['version']}, enabled")
    missing = [package for page, package in _WIDGETS.items() if page not in pages]
    if missing:
        evidence = f"JupyterLab has no {' and '.join(missing)}"
        action = f"{pip_install(*missing)}, then reload the page"
        yield Finding("Widgets", "error", evidence, action)
    off = [page for page in _WIDGETS if page in pages and disabled.get(page)]
    for page in off:
        action = f"jupyter labextension enable {page}, then reload the page"
        yield Finding("Widgets", "error", f"{page} is disabled", action)
    if not missing and not off:
        evidence = (
            f"anywidget {installed('anywidget')}: in JupyterLab 4 and Notebook 7, "
        )
        evidence += "tested in Chromium only; VS Code and other browsers are untested"
        yield Finding("Widgets", "ok", evidence)


if __name__ == "__main__":
    stream(checks())
