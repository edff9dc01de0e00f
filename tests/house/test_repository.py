"""What may lie in the repository."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

CODE = {".py", ".ts", ".tsx", ".js", ".css", ".sh"}

# Joined, so that this file does not hold what it forbids.
REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("files", "pythonhosted", "org"),
        ("download", "pytorch", "org"),
        ("registry", "npmjs", "org"),
        ("registry", "yarnpkg", "com"),
        ("conda", "anaconda", "org"),
        ("repo", "anaconda", "com"),
        ("docker", "io"),
        ("ghcr", "io"),
        ("quay", "io"),
        ("nvcr", "io"),
    )
]


def files() -> list[Path]:
    """Return what is tracked, or would be."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    paths = [ROOT / name for name in sorted(set(listed.split("\0"))) if name]
    return [path for path in paths if path.is_file()]


def lines() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of every line of every text file."""
    for path in files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            yield f"{path.relative_to(ROOT)}:{number}", line


def test_no_package_registry_is_named():
    found = [
        (place, host)
        for place, line in lines()
        for host in REGISTRY_HOSTS
        if host in line
    ]
    assert found == []


def test_no_path_of_this_machine_is_named():
    # A test's own folder for temporary files lies below the system's.
    shared = {"/", "/tmp", tempfile.gettempdir()}
    own = [f"{path}/" for path in {str(ROOT.parent), str(Path.home())} - shared]

    found = [(place, path) for place, line in lines() for path in own if path in line]
    assert found == []


def test_no_code_file_has_more_than_400_lines():
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in files()
        if path.suffix in CODE
    }
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_what_is_shown_live_has_no_animation():
    # With eight GPUs, meters whose width moved took two thirds of the browser's time.
    sheets = [path for path in files() if path.suffix == ".css"]
    assert sheets
    moving = re.compile(r"\b(transition|animation)\b")
    assert [path for path in sheets if moving.search(path.read_text())] == []
