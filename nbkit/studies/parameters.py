"""`params`: a notebook's parameters, checked before anything starts.

papermill writes the values of its command line into a separate cell after the
notebook's ``parameters`` cell, warns of a name that the notebook does not know, and
passes ``true`` as a text. The kernel remembers the source of every cell it ran, so
both cells can be read there, and nothing of papermill needs to be changed.
"""

from __future__ import annotations

import ast
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from IPython.core.getipython import get_ipython

from nbkit import registry
from nbkit.errors import ParameterError
from nbkit.registry import suggest
from nbkit.studies.coercion import ParameterKind, annotation_of, coerce, kind_of
from nbkit.studies.notebooks import as_typed

SIZES_OF_A_CPU = (
    "device",
    "batch_size_per_gpu",
    "image_size",
    "steps",
    "warmup_steps",
    "read_bytes",
    "minutes",
    "batch_sizes",
    "batches",
    "warmup_batches",
    "precisions",
)
"""Parameters that were chosen for CPUs without a GPU: a next step on a GPU leaves them
to its defaults, since they are not meaningful there."""


class Parameters(Mapping[str, Any]):
    """Checked parameters, as attributes and as a mapping.

    Parameters
    ----------
    values
        Value by name, in the order of the notebook.
    sources
        ``papermill``, ``notebook`` (edited there) or ``default``, by name.
    """

    def __init__(self, values: Mapping[str, Any], sources: Mapping[str, str]) -> None:
        self._values = dict(values)
        self.sources = dict(sources)
        """Where each value came from."""

    @property
    def chosen(self) -> dict[str, Any]:
        """Values set by the user, by name."""
        return {n: v for n, v in self._values.items() if self.sources[n] != "default"}

    def filled(self, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Return all values; None is replaced by the value in ``defaults``."""
        values: dict[str, Any] = {
            n: defaults.get(n) if v is None else v for n, v in self.items()
        }
        if self.get("warmup_steps", 0) is None and values.get("steps") is not None:
            # A short run still has something to measure.
            values["warmup_steps"] = min(values["warmup_steps"], values["steps"] // 4)
        return values

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            names = ", ".join(self.__dict__.get("_values", ()))
            message = f"{name!r} is not a parameter. Use one of {names}."
            raise AttributeError(message) from None

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        width = max(map(len, self._values), default=0)
        return "\n".join(
            f"{name:{width}} = {value!r}"
            + ("" if self.sources[name] == "default" else f"  ({self.sources[name]})")
            for name, value in self._values.items()
        )


def params(question: str | None = None) -> Parameters:
    """Return the parameters of the notebook that calls this function.

    The notebook declares them in one cell of annotated literals; a default of None
    makes a parameter optional. Strings are converted to the annotated type (numbers,
    booleans, or lists separated by commas), also in the notebook's variables.

    Parameters
    ----------
    question
        Question, such as ``"scaling"``, whose parameters are also accepted if the cell
        omits them. ``nbkit notebook scaling --parameters`` lists them.

    Raises
    ------
    ParameterError
        If called outside a notebook, or if names or values are not valid (all listed).
    ConfigError
        If there is no such question.
    """
    shell = get_ipython()
    if shell is None:
        message = "params() reads the cells of a notebook. Call it in a notebook."
        raise ParameterError(message)
    checked = check_parameters(shell.user_ns["In"], shell.user_ns, question)
    # What only the question declares stays out: another notebook's study may run here.
    shown = shell.user_ns.keys() & checked.keys()
    shell.user_ns.update({name: checked[name] for name in shown})
    return checked


def check_parameters(
    cells: Sequence[str], namespace: Mapping[str, Any], question: str | None = None
) -> Parameters:
    """Return the parameters of cells and question, with the namespace's values."""
    position, declared = _declared(cells)
    injected = _injected_names(cells[position + 1 :])
    further = {} if question is None else further_parameters(question)
    unset = further.keys() - declared.keys() - set(injected)
    namespace = {name: value for name, value in namespace.items() if name not in unset}
    declared = {**declared, **further, **declared}
    errors = [
        f"{name}={namespace.get(name)!r} is not a parameter of this notebook. Use one "
        f"of {', '.join(declared)}.{suggest(name, list(declared))}"
        for name in injected
        if name not in declared
    ]
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, (kind, default) in declared.items():
        try:
            values[name] = coerce(name, namespace.get(name, default), kind)
        except ParameterError as error:
            errors.append(str(error))
            continue
        changed = values[name] != coerce(name, default, kind)
        sources[name] = "notebook" if changed else "default"
        if name in injected:
            sources[name] = "papermill"
    if errors:
        raise ParameterError("\n".join(errors))
    return Parameters(values, sources)


def _injected_names(cells: Sequence[str]) -> list[str]:
    """Return the names that papermill's cell assigns; none without such a cell.

    References
    ----------
    https://papermill.readthedocs.io/en/latest/usage-parameterize.html
    """
    injected = (cell for cell in reversed(cells) if cell.startswith("# Parameters"))
    return [
        target.id
        for statement in _statements(next(injected, ""))
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    ]


def _statements(source: str) -> list[ast.stmt]:
    """Return the statements of a cell; none where it is not Python alone."""
    try:
        return ast.parse(source).body
    except SyntaxError:
        return []


def further_parameters(question: str) -> dict[str, tuple[ParameterKind, Any]]:
    """Return type and default of the parameters that a notebook's cell leaves out."""
    source = registry.resolve("questions", question).further_parameters
    declarations = map(_declaration, _statements(source))
    return {
        declaration[0]: declaration[1:]
        for declaration in declarations
        if not isinstance(declaration, str)
    }


def papermill_command(notebook: str, chosen: Mapping[str, Any]) -> str:
    """Return the command that makes a notebook's report with these parameters."""
    options = "".join(
        f" {_option(value)} {name} {shlex.quote(_as_text(value))}"
        for name, value in chosen.items()
    )
    return f"papermill {as_typed(notebook)} out.ipynb{options}"


def next_command(notebook: str, chosen: Mapping[str, Any], *, is_cpu: bool) -> str:
    """Return the same for a next step; after one on CPUs without their sizes."""
    if not is_cpu or chosen.keys().isdisjoint(SIZES_OF_A_CPU):
        return papermill_command(notebook, chosen)
    gpu_parameters = {
        n: value for n, value in chosen.items() if n not in SIZES_OF_A_CPU
    }
    return f"on a machine with GPUs: {papermill_command(notebook, gpu_parameters)}"


def _option(value: Any) -> str:
    """Return papermill's option: ``-r`` keeps a text that looks like a number."""
    first = value[0] if isinstance(value, list) and value else value
    if not isinstance(first, str):
        return "-p"
    text = _as_text(value)
    if text in ("True", "False", "None"):
        return "-r"
    try:
        float(text)  # so does every integer
    except ValueError:
        return "-p"
    return "-r"


def _as_text(value: Any) -> str:
    """Return a parameter as papermill's command line says it."""
    if isinstance(value, list):
        return ",".join(map(_as_text, value))
    if isinstance(value, dict):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _declared(cells: Sequence[str]) -> tuple[int, dict[str, tuple[ParameterKind, Any]]]:
    """Return the position and the content of the newest cell of declarations."""
    mixed: list[str] = []
    mixed_names: set[str] = set()
    for position in reversed(range(len(cells))):
        declarations = [
            (statement, _declaration(statement))
            for statement in _statements(cells[position])
        ]
        declared = [
            declaration
            for _, declaration in declarations
            if not isinstance(declaration, str)
        ]
        names = {name for name, *_ in declared}
        if declared and len(declared) == len(declarations) and not names & mixed_names:
            return position, {name: (kind, value) for name, kind, value in declared}
        if declared and not mixed:
            mixed_names = names
            mixed = [
                f"{_first_line(cells[position], statement)} (line {statement.lineno}) "
                f"{problem}"
                for statement, problem in declarations
                if isinstance(problem, str)
            ]
    if mixed:
        heading = (
            "The last executed parameter cell must contain only annotated literals:"
        )
        raise ParameterError("\n".join([heading, *mixed]))
    message = (
        "No executed cell declares parameters. First run a cell that contains only "
        "annotated literals, such as: gpus: int = 8"
    )
    raise ParameterError(message)


def _declaration(statement: ast.stmt) -> tuple[str, ParameterKind, Any] | str:
    """Return name, kind and default; or what is wrong and what to do now."""
    match statement:
        case ast.AnnAssign(target=ast.Name(name), value=None):
            annotation = ast.unparse(statement.annotation)
            return f"has no default. Write {name}: {annotation} = None."
        case ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value):
            annotation = ast.unparse(statement.annotation)
        case ast.Assign(targets=[ast.Name(name)], value=value):
            annotation = None
        case _:
            return "does not declare a parameter. Move it to another cell."
    try:
        default = ast.literal_eval(value)
    except (ValueError, TypeError):
        return "is not a literal. Write one, or move it to another cell."
    if isinstance(default, tuple | set):
        return f"is a {type(default).__name__}. Write a list of one type."
    if annotation is None:
        annotation, what = annotation_of(default), "has no type"
    else:
        what = f"has the unsupported type {annotation}"
        if (kind := kind_of(annotation, default)) is not None:
            return name, kind, default
        annotation = annotation_of(default)
    return f"{what}. Write {name}: {annotation} = {ast.unparse(value)}."


def _first_line(source: str, statement: ast.stmt) -> str:
    return (ast.get_source_segment(source, statement) or "").partition("\n")[0]
