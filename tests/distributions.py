"""The wheel and the sdist of a source tree, built with what is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Literal

__all__ = ["ROOT", "build", "checksums"]

ROOT = Path(__file__).parents[1]


def build(kind: Literal["sdist", "wheel"], source: Path, folder: Path) -> Path:
    """Return the new distribution in a folder; the browser's part is not made anew."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)],
        cwd=source,
        check=True,
        # What was built when this was installed is what is tested.
        env={**os.environ, "HATCH_JUPYTER_BUILDER_SKIP_NPM": "1"},
    )
    (path,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return path


def checksums(wheel: Path) -> dict[str, int]:
    """Return the checksum of every file in a wheel."""
    with zipfile.ZipFile(wheel) as opened:
        return {one.filename: one.CRC for one in opened.infolist()}
