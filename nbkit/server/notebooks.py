"""nbkit's notebooks: their topics, and a copy of one in the user's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jupyter_core.utils import ensure_async

from nbkit.questions.question import notebooks_of_questions
from nbkit.studies.notebooks import notebooks


def describe_notebooks() -> list[dict[str, str]]:
    """Return name, title and description of every canonical notebook."""
    paths = notebooks()
    own = [entry.name for entry in notebooks_of_questions() if entry.name in paths]
    # Those of a site come after them.
    return [
        {"name": name, **_description(paths[name])}
        for name in (*own, *sorted(paths.keys() - own))
    ]


async def copy_notebook(contents_manager: Any, path: Path, folder: str) -> str:
    """Copy a notebook by way of the contents manager; return the copy's path there."""
    name = await ensure_async(
        contents_manager.increment_filename(path.name, folder, insert="-")
    )
    target = f"{folder}/{name}" if folder else name
    model = {"type": "notebook", "format": "json", "content": _read(path)}
    await ensure_async(contents_manager.save(model, target))
    return target


def _description(path: Path) -> dict[str, str]:
    """Return the first heading, and the first paragraph below it."""
    texts = [
        "".join(cell["source"])
        for cell in _read(path)["cells"]
        if cell["cell_type"] == "markdown"
    ]
    blocks = [block.strip() for text in texts[:1] for block in text.split("\n\n")]
    titles = [block.lstrip("# ") for block in blocks if block.startswith("#")]
    words = [block for block in blocks if block and not block.startswith(("#", "```"))]
    return {
        "title": (titles or [path.stem])[0],
        "description": " ".join((words or [""])[0].split()),
    }


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))
