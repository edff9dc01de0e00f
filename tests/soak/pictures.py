"""Take the pages' pictures: ``python -m tests.soak.pictures`` (some minutes).

A real JupyterLab in a real browser: the sidebar over a replayed trace of eight GPUs, a
run on this machine's CPUs, followed by its live view, and the report of a study of the
scaling notebook, made here too. What is replayed or measured on CPUs says so in the
picture itself.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

import nbkit
from tests.browser.conftest import ARGUMENTS, CHROMIUM, Lab
from tests.browser.sidebar import EXPOSED, open_panel, until
from tests.jupyter_process import environment_below
from tests.telemetry.traces import replay
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / ".github/pictures"
LABELS = "labels"
"""Field of a picture's file: the labels that it shows, a line each."""
LIMIT_MILLISECONDS = 120_000

KERNEL_STATUS = (
    "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status"
)
CELL = """\
import nbkit

run = nbkit.launch(
    model="resnet20", data="photos", gpus=2, image_size=32, batch_size_per_gpu=16,
    steps=3000, name="photos on two ranks",
)
run"""


def main() -> None:
    """Take all pictures, or those that are named as arguments."""
    wanted = sys.argv[1:] or list(_TAKERS)
    unknown = sorted(set(wanted) - set(_TAKERS))
    if unknown:
        sys.exit(f"no picture is called {', '.join(unknown)}; use {', '.join(_TAKERS)}")
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which(CHROMIUM), args=ARGUMENTS
        )
        for name in wanted:
            own = Path(folder) / name
            own.mkdir()
            labels = _TAKERS[name](browser, own, PICTURES / f"{name}.png")
            _make_small(PICTURES / f"{name}.png", labels)
            print(f"{name}.png: {(PICTURES / f'{name}.png').stat().st_size:,} bytes")
        browser.close()


def _sidebar(browser: Browser, folder: Path, picture: Path) -> list[str]:
    with (
        _lab(folder, "replay:eight-gpus") as lab,
        _page(browser, 1240, 980) as page,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("NBKIT_HOME", str(lab.store))
        small = nbkit.ExperimentConfig(
            model="resnet20",
            device="cpu",
            gpus=2,
            image_size=32,
            batch_size_per_gpu=16,
            steps=60,
            name="baseline",
        )
        nbkit.launch(small).wait()
        longer = small.replace(steps=1_000_000, name="long training")
        with _ended(nbkit.launch(longer)):
            page.goto(lab.address())
            panel = open_panel(page)
            row = panel.locator(".nbk-run", has_text="long training")
            expect(row).to_contain_text("images/s", timeout=LIMIT_MILLISECONDS)
            _widen(page, 420)
            # The server has sampled for a while: the curves are filled.
            page.wait_for_timeout(60_000)
            bar = page.locator("#jp-left-stack").bounding_box()
            below = panel.get_by_role("region", name="Host").bounding_box()
            assert bar is not None
            assert below is not None
            width = bar["x"] + bar["width"]
            clip = {"x": 0, "y": 0, "width": width, "height": below["y"]}
            page.screenshot(path=picture, clip=clip)
            return _labels(panel)


def _live_run(browser: Browser, folder: Path, picture: Path) -> list[str]:
    with (
        _lab(folder, replay("no-gpu")) as lab,
        _page(browser, 1000, 900) as page,
        pytest.MonkeyPatch.context() as patch,
    ):
        kernel = {"name": "python3", "display_name": "Python 3"}
        cell = nbformat.v4.new_code_cell(CELL)
        notebook = nbformat.v4.new_notebook(metadata={"kernelspec": kernel})
        notebook.cells = [cell]
        nbformat.write(notebook, lab.root / "train.ipynb")
        page.goto(lab.address("lab/tree/train.ipynb"))
        until(page, lambda: page.evaluate(KERNEL_STATUS) == "idle", "the kernel")
        _run(page, "application:toggle-left-area")
        _run(page, "notebook:run-all-cells")
        view = page.locator(".nbkv:visible").first
        expect(view.locator(".nbkv-state")).to_have_text(
            "running", timeout=LIMIT_MILLISECONDS
        )
        patch.setenv("NBKIT_HOME", str(lab.store))
        with _ended(nbkit.runs()[0]) as run:
            wait_until(lambda: len(run.metrics()) > 400, "400 steps", 600)
            page.locator(".jp-Cell").first.screenshot(path=picture)
            return _labels(view)


def _scaling_report(browser: Browser, folder: Path, picture: Path) -> list[str]:
    command = [sys.executable, "-m", "papermill", "--no-progress-bar"]
    command += [ROOT / "notebooks/scaling.ipynb", folder / "out.ipynb"]
    subprocess.run(command, check=True, cwd=folder, env=environment_below(folder))
    (report,) = (folder / "store/studies").glob("*/report.html")
    with _page(browser, 900, 900) as page:
        page.goto(report.as_uri())
        page.wait_for_load_state("networkidle")
        page.screenshot(path=picture)
        return _labels(page.locator("body"))


_TAKERS: dict[str, Callable[[Browser, Path, Path], list[str]]] = {
    "sidebar": _sidebar,
    "live_run": _live_run,
    "scaling_report": _scaling_report,
}


@contextmanager
def _lab(folder: Path, source: str) -> Iterator[Lab]:
    lab = Lab(folder, [EXPOSED], {"NBKIT_GPU_SOURCE": source})
    lab.fetch_no_news()
    try:
        lab.start()
        yield lab
    finally:
        lab.stop()


@contextmanager
def _page(browser: Browser, width: int, height: int) -> Iterator[Page]:
    context = browser.new_context(
        viewport={"width": width, "height": height}, device_scale_factor=1.5
    )
    try:
        page = context.new_page()
        page.set_default_timeout(LIMIT_MILLISECONDS)
        yield page
    finally:
        context.close()


@contextmanager
def _ended(run: nbkit.Run) -> Iterator[nbkit.Run]:
    try:
        yield run
    finally:
        if not run.state.is_final:
            run.stop()


def _widen(page: Page, width: int) -> None:
    handle = page.locator("#jp-main-split-panel > .lm-SplitPanel-handle").first
    place = handle.bounding_box()
    assert place is not None
    page.mouse.move(place["x"] + 1, 400)
    page.mouse.down()
    page.mouse.move(width, 400, steps=3)
    page.mouse.up()
    page.mouse.move(width + 300, 400)


def _run(page: Page, command: str) -> None:
    page.evaluate("name => void jupyterapp.commands.execute(name)", command)


def _labels(part: Locator) -> list[str]:
    """Return the texts of buttons and headings; numbers and the host are data."""
    shown = part.locator("button:visible, h1, h3, th:visible, summary:visible")
    texts = {" ".join(text.split()) for text in shown.all_inner_texts()}
    texts = {text for text in texts if not text.endswith(f" {socket.gethostname()}")}
    return sorted(text for text in texts if re.fullmatch(r"[A-Za-z][A-Za-z /-]+", text))


def _make_small(picture: Path, labels: list[str]) -> None:
    """Keep 256 colours, which flat pictures of pages do not exceed by much."""
    with Image.open(picture) as taken:
        small = taken.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    about = PngInfo()
    about.add_text(LABELS, "\n".join(labels))
    small.save(picture, optimize=True, pnginfo=about)


if __name__ == "__main__":
    main()
