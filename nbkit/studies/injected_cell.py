"""The cell of values that papermill writes behind a notebook's parameters.

papermill tags it ``injected-parameters``, and documents that. A kernel is not told the
tags of its cells, but what begins such a cell; where that is new, papermill is asked.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from importlib import metadata

_USUAL = "# Parameters"


def injected_names(cells: Sequence[str]) -> list[str]:
    """Return the names that papermill's cell assigns; none without such a cell.

    References
    ----------
    https://papermill.readthedocs.io/en/latest/usage-parameterize.html
    """
    for source in reversed(cells):
        if source.startswith(_USUAL):
            return _assigned(source)
    first = next(iter(cells), "")
    # Imported for a second: only where a cell in the right place may be papermill's.
    if first.startswith("#") and (names := _assigned(first)):
        only_assigns = len(names) == len(statements(first))
        begin = _first_line() if only_assigns else ""
        if begin and first.startswith(begin):
            return names
    return []


def statements(source: str) -> list[ast.stmt]:
    """Return the statements of a cell; none where it is not Python alone."""
    try:
        return ast.parse(source).body
    except SyntaxError:
        return []


def _assigned(source: str) -> list[str]:
    return [
        target.id
        for statement in statements(source)
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    ]


def _first_line() -> str:
    """Return how the installed papermill begins its cell."""
    try:
        import nbformat
        from papermill.parameterize import parameterize_notebook

        declared = nbformat.v4.new_code_cell(metadata={"tags": ["parameters"]})
        notebook = nbformat.v4.new_notebook(cells=[declared])
        notebook.metadata["papermill"] = {}
        made = parameterize_notebook(
            notebook, {}, kernel_name="python3", language="python"
        )
        (cell,) = (
            cell
            for cell in made.cells
            if "injected-parameters" in cell.metadata.get("tags", ())
        )
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        version = metadata.version("papermill")
        print(
            f"papermill {version}: injected cell not recognized ({error}), so unknown "
            'parameters are ignored. Install "papermill>=2.6,<3" to reject them.'
        )
        return _USUAL
    return cell.source.partition("\n")[0]
