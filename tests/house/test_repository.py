"""What may lie in the repository."""

from __future__ import annotations

import subprocess
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

LINES = Path(__file__).with_name("lines.toml")

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


def places(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield every line of a text file that has one of some words, and that word."""
    for path in files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        # Most files have none of them.
        for word in [word for word in words if word in text]:
            for number, line in enumerate(text.splitlines(), start=1):
                if word in line:
                    yield f"{path.relative_to(ROOT)}:{number}", word


def test_neither_a_package_registry_nor_a_path_of_this_machine_is_named():
    # A test's own folder for temporary files lies below the system's.
    shared = {"/", "/tmp", tempfile.gettempdir()}
    own = [f"{path}/" for path in {str(ROOT.parent), str(Path.home())} - shared]

    assert list(places([*REGISTRY_HOSTS, *own])) == []


def stored_at(commit: str) -> dict[str, Any]:
    """Return the numbers of lines.toml at a commit; empty where git has none."""
    shown = subprocess.run(
        ["git", "show", f"{commit}:./{LINES.name}"],
        cwd=LINES.parent,
        capture_output=True,
        text=True,
    )
    return tomllib.loads(shown.stdout) if shown.returncode == 0 else {}


def test_lines_of_python_only_fall():
    limits = tomllib.loads(LINES.read_text())
    mains = stored_at("origin/main") or stored_at("main") or limits
    for folder in ("nbkit", "tests"):
        code = (ROOT / folder).rglob("*.py")
        count = sum(path.read_bytes().count(b"\n") for path in code)

        assert count <= limits[folder], f"shorten {folder}/, or raise it in {LINES}"
        is_raised = limits[folder] > mains[folder]
        assert not is_raised or limits["reason"] != mains["reason"], (
            f"main allows {mains[folder]} lines of {folder}/: lower {LINES}, or state "
            "a new reason there"
        )
