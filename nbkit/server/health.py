"""What `nbkit doctor` says of JupyterLab: the extension's two parts, and widgets.

Jupyter is asked as ``jupyter server extension list`` and ``jupyter labextension list``
ask it: by its folders of settings and of extensions, without a server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_config_path, jupyter_path
from jupyter_server.extension.config import ExtensionConfigManager
from jupyter_server.extension.manager import ExtensionPackage
from jupyterlab_server.config import get_federated_extensions, get_page_config

from nbkit.health import Finding, installed, tell
from nbkit.packages import DISTRIBUTION, REINSTALL, pip_install

__all__ = ["findings"]

_EXTENSION = "nbkit.server"
_PAGE = "nbkit"
_WIDGETS = {
    "@jupyter-widgets/jupyterlab-manager": "ipywidgets",
    "anywidget": "anywidget",
}
"""What shows widgets in a page, and the package that brings it."""
_AGAIN = f"{REINSTALL}, then reload the page"


def findings() -> Iterator[Finding]:
    """Yield what is found in the environment of this Python."""
    yield from _jupyterlab()
    try:
        Path.home()
    except RuntimeError:
        # A container may give its processes a user that the system does not know.
        found, remedy = "this user has no home folder", "set HOME to one"
        yield Finding("Home folder", "failure", found, remedy)
        return
    yield _server_extension()
    labextensions = jupyter_path("labextensions")
    pages = get_federated_extensions(labextensions)
    disabled = get_page_config(labextensions).get("disabledExtensions") or {}
    yield _page(pages, disabled)
    yield from _widgets(pages, disabled)


def _jupyterlab() -> Iterator[Finding]:
    version, remedy = installed("jupyterlab"), pip_install("jupyterlab")
    if version is None:
        yield Finding("JupyterLab", "failure", "not installed", remedy)
    elif not version.startswith("4."):
        yield Finding("JupyterLab", "failure", f"{version} is none of 4", remedy)
    else:
        yield Finding("JupyterLab", "ok", version)
    notebook = installed("notebook")
    if notebook is not None and int(notebook.partition(".")[0]) < 7:
        remedy = "update it to Notebook 7, or use jupyter lab"
        yield Finding("Notebook", "warning", f"{notebook} shows no sidebar", remedy)
    elif notebook is not None:
        yield Finding("Notebook", "ok", notebook)


def _server_extension() -> Finding:
    """Look whether a Jupyter server would load the extension, and could."""
    what = "Server extension"
    manager = ExtensionConfigManager(read_config_path=jupyter_config_path())
    enabled: Mapping[str, bool] = manager.get_jpserver_extensions()
    if not enabled.get(_EXTENSION):
        found = "disabled" if _EXTENSION in enabled else "not known to Jupyter"
        remedy = f"jupyter server extension enable {_EXTENSION}"
        return Finding(what, "failure", found, remedy)
    try:
        valid = ExtensionPackage(name=_EXTENSION, enabled=True).validate()
    except ImportError as error:
        found = f"enabled, and cannot be imported: {error}"
        return Finding(what, "failure", found, _AGAIN)
    if not valid:
        return Finding(what, "failure", "enabled, and not valid", _AGAIN)
    return Finding(what, "ok", "enabled")


def _page(pages: Mapping[str, Any], disabled: Mapping[str, bool]) -> Finding:
    """Look whether the browser gets the part that belongs to this nbkit."""
    what, version = "Lab extension", installed(DISTRIBUTION)
    if _PAGE not in pages:
        return Finding(what, "failure", "not installed", _AGAIN)
    if disabled.get(_PAGE):
        remedy = f"jupyter labextension enable {_PAGE}"
        return Finding(what, "failure", "disabled", remedy)
    own = pages[_PAGE]
    if own["version"] != version:
        found = f"{own['version']} in {own['ext_dir']}, but nbkit is {version}"
        return Finding(what, "failure", found, _AGAIN)
    return Finding(what, "ok", f"{own['version']}, enabled")


def _widgets(
    pages: Mapping[str, Any], disabled: Mapping[str, bool]
) -> Iterator[Finding]:
    what = "Widgets"
    missing = [package for page, package in _WIDGETS.items() if page not in pages]
    if missing:
        found = f"JupyterLab lacks {' and '.join(missing)}"
        remedy = f"{pip_install(*missing)}, then reload the page"
        yield Finding(what, "failure", found, remedy)
    off = [page for page in _WIDGETS if page in pages and disabled.get(page)]
    for page in off:
        remedy = f"jupyter labextension enable {page}, then reload the page"
        yield Finding(what, "failure", f"{page} is disabled", remedy)
    if not missing and not off:
        found = f"anywidget {installed('anywidget')}: in JupyterLab 4 and Notebook 7, "
        found += "tested in Chromium alone; VS Code and others are untested"
        yield Finding(what, "ok", found)


if __name__ == "__main__":
    tell(findings())
