"""What `nbkit doctor` reports on JupyterLab: the extension's two parts, and widgets.

Jupyter is asked as ``jupyter server extension list`` and ``jupyter labextension list``
ask it: by its folders of settings and of extensions, without a server. What they ask
is imported in each check: in a release that has it no more, the others still hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_config_path, jupyter_path

from nbkit.health import Finding, installed, tell
from nbkit.packages import DISTRIBUTION, REINSTALL, pip_install

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
    yield from _as_told("Server extension", "server extension list", _server_extension)
    yield from _as_told("Lab extension", "labextension list", _pages)


def _as_told(
    what: str, command: str, check: Callable[[], Iterable[Finding]]
) -> Iterator[Finding]:
    """Yield what a check finds, or that this Jupyter cannot be asked so."""
    try:
        yield from check()
    except (ImportError, AttributeError, TypeError, KeyError) as error:
        found = f"unknown: Jupyter does not tell as before ({error!r})"
        remedy = f"see what `jupyter {command}` says of nbkit, and update nbkit"
        yield Finding(what, "warning", found, remedy)


def _jupyterlab() -> Iterator[Finding]:
    version, remedy = installed("jupyterlab"), pip_install("jupyterlab")
    if version is None:
        yield Finding("JupyterLab", "failure", "not installed", remedy)
    elif not version.startswith("4."):
        yield Finding("JupyterLab", "failure", f"{version}, not version 4", remedy)
    else:
        yield Finding("JupyterLab", "ok", version)
    notebook = installed("notebook")
    if notebook is not None and int(notebook.partition(".")[0]) < 7:
        remedy = "update it to Notebook 7, or use JupyterLab"
        yield Finding("Notebook", "warning", f"{notebook} shows no sidebar", remedy)
    elif notebook is not None:
        yield Finding("Notebook", "ok", notebook)


def _server_extension() -> Iterator[Finding]:
    """Check whether a Jupyter server would load the extension, and can."""
    from jupyter_server.extension.config import ExtensionConfigManager
    from jupyter_server.extension.manager import ExtensionPackage

    what = "Server extension"
    manager = ExtensionConfigManager(read_config_path=jupyter_config_path())
    enabled: Mapping[str, bool] = manager.get_jpserver_extensions()
    if not enabled.get(_EXTENSION):
        found = "disabled" if _EXTENSION in enabled else "not registered with Jupyter"
        remedy = f"jupyter server extension enable {_EXTENSION}"
        yield Finding(what, "failure", found, remedy)
        return
    try:
        valid = ExtensionPackage(name=_EXTENSION, enabled=True).validate()
    except ImportError as error:
        found = f"enabled, but cannot be imported: {error}"
        yield Finding(what, "failure", found, _AGAIN)
        return
    if valid:
        yield Finding(what, "ok", "enabled")
    else:
        yield Finding(what, "failure", "enabled, but not valid", _AGAIN)


def _pages() -> Iterator[Finding]:
    from jupyterlab_server.config import get_federated_extensions, get_page_config

    labextensions = jupyter_path("labextensions")
    pages = get_federated_extensions(labextensions)
    disabled = get_page_config(labextensions).get("disabledExtensions") or {}
    yield _page(pages, disabled)
    yield from _widgets(pages, disabled)


def _page(pages: Mapping[str, Any], disabled: Mapping[str, bool]) -> Finding:
    """Check whether the browser gets the part that belongs to this nbkit."""
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
        found = f"JupyterLab has no {' and '.join(missing)}"
        remedy = f"{pip_install(*missing)}, then reload the page"
        yield Finding(what, "failure", found, remedy)
    off = [page for page in _WIDGETS if page in pages and disabled.get(page)]
    for page in off:
        remedy = f"jupyter labextension enable {page}, then reload the page"
        yield Finding(what, "failure", f"{page} is disabled", remedy)
    if not missing and not off:
        found = f"anywidget {installed('anywidget')}: in JupyterLab 4 and Notebook 7, "
        found += "tested in Chromium only; VS Code and others are untested"
        yield Finding(what, "ok", found)


if __name__ == "__main__":
    tell(findings())
