"""A notebook's parameters are checked, typed and traced before anything starts."""

from __future__ import annotations

import json
import math
import shlex
from decimal import Decimal

import nbformat
import pytest
from papermill.parameterize import parameterize_notebook

from nbkit.errors import ParameterError
from nbkit.studies.parameters import check_parameters, papermill_command

DECLARED = """
gpus: int = 8  # largest number of GPUs
precision: list[str] = ["fp32"]  # comma list
learning_rate: float = 0.1
strict_gpus: bool = False
steps: int = None  # None chooses
slurm: dict = None  # as JSON
"""
DEFAULTS = {
    "gpus": 8,
    "precision": ["fp32"],
    "learning_rate": 0.1,
    "strict_gpus": False,
    "steps": None,
    "slurm": None,
}


def injected(**values):
    """Return the cells and the namespace that papermill leaves behind."""
    lines = [f"{name} = {value!r}" for name, value in values.items()]
    cells = ["", DECLARED, "\n".join(["# Parameters", *lines]), "nbkit.params()"]
    return cells, {**DEFAULTS, **values}


def test_texts_become_the_annotated_types():
    checked = check_parameters(
        *injected(gpus="4", precision="fp32, fp16", learning_rate=1, strict_gpus="true")
    )

    assert checked.gpus == 4
    assert checked.precision == ["fp32", "fp16"]
    assert isinstance(checked.learning_rate, float)
    assert checked.strict_gpus is True


def test_the_cell_of_the_installed_papermill_is_found():
    declared = nbformat.v4.new_code_cell(DECLARED, metadata={"tags": ["parameters"]})
    notebook = nbformat.v4.new_notebook(cells=[declared])
    notebook.metadata["papermill"] = {}
    values = {"gpus": 4, "learning_rate": math.inf}
    made = parameterize_notebook(
        notebook, values, kernel_name="python3", language="python"
    )

    cells = ["", *(cell.source for cell in made.cells), "nbkit.params()"]
    checked = check_parameters(cells, {**DEFAULTS, "gpus": 4})

    assert (checked.gpus, checked.sources["gpus"]) == (4, "papermill")


@pytest.mark.parametrize("own", ["# My own\nseed = 3", "seed = 3", ""])
def test_a_cell_of_ones_own_behind_the_parameters_has_none(own):
    cells = ["", DECLARED, own, "nbkit.params()"]

    checked = check_parameters(cells, {**DEFAULTS, "seed": 3})

    assert dict(checked) == DEFAULTS
    assert set(checked.sources.values()) == {"default"}


def test_the_text_false_is_not_true():
    assert check_parameters(*injected(strict_gpus="false")).strict_gpus is False


def test_a_list_takes_lists_and_single_values():
    assert check_parameters(*injected(precision=["bf16"])).precision == ["bf16"]
    assert check_parameters(*injected(precision="bf16")).precision == ["bf16"]


def test_a_list_comes_as_json_too():
    asked = '["fp32", "fp16"]'

    assert check_parameters(*injected(precision=asked)).precision == ["fp32", "fp16"]


@pytest.mark.parametrize(
    "value",
    [2**53 + 1, pytest.param(str(2**53 + 1), id="text"), "1e3", 2**64 - 1, "-9e18"],
)
def test_an_integer_is_taken_to_its_last_digit(value):
    assert check_parameters(*injected(gpus=value)).gpus == int(Decimal(value))


@pytest.mark.parametrize(
    ("value", "option"),
    [
        ("2024", "-r"),
        ("0123", "-r"),
        ("1e5", "-r"),
        ("nan", "-r"),
        ("None", "-r"),
        ("True", "-r"),
        (["08"], "-r"),
        ("photos", "-p"),
        (["a", "b"], "-p"),
        (8, "-p"),
        ([8], "-p"),
        (True, "-p"),
        (None, "-p"),
    ],
)
def test_a_command_says_of_a_text_what_papermill_would_not_keep_as_one(value, option):
    command = shlex.split(papermill_command("scaling", {"data": value}))

    assert command[-3:-1] == [option, "data"]


def test_a_default_of_none_makes_a_parameter_optional():
    assert check_parameters(*injected(steps=None)).steps is None
    assert check_parameters(*injected(steps=20.0)).steps == 20
    with pytest.raises(ParameterError, match="gpus=None is not a whole number"):
        check_parameters(*injected(gpus=None))


def test_an_object_comes_as_json_or_as_it_is_and_goes_back_to_the_command_line():
    asked = {"slurm_qos": "high", "setup": ["module load cuda"]}

    as_text = check_parameters(*injected(slurm=json.dumps(asked)))
    as_it_is = check_parameters(*injected(slurm=asked))

    assert as_text.slurm == as_it_is.slurm == asked
    assert check_parameters(*injected()).slurm is None
    command = shlex.split(papermill_command("scaling", {"slurm": asked}))
    assert json.loads(command[-1]) == asked


def test_every_error_is_told_at_once_with_what_to_do():
    cells, namespace = injected(gpuz=8, gpus="lots", strict_gpus=1, precision="a,,b")

    with pytest.raises(ParameterError) as caught:
        check_parameters(cells, namespace)

    lines = str(caught.value).splitlines()
    assert len(lines) == 4
    assert "gpuz=8 is not a parameter" in lines[0]
    assert lines[0].endswith("Did you mean 'gpus'?")
    assert lines[1] == "gpus='lots' is not a whole number. Use an integer, such as 8."
    assert "precision='a,,b'" in lines[2]
    assert "strict_gpus=1 is not a boolean" in lines[3]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gpus", 1.5),
        ("gpus", True),
        ("gpus", "1_x"),
        ("learning_rate", "nan"),
        ("learning_rate", False),
        ("strict_gpus", "yes"),
        ("strict_gpus", 0),
        ("precision", 16),
        ("precision", []),
        ("slurm", "high"),
        ("slurm", "[1]"),
        ("precision", '["fp32", '),
        ("precision", "[fp32]"),
        ("gpus", 10**400),
        ("gpus", "1e999999999"),
        ("gpus", "inf"),
        ("learning_rate", 10**400),
        ("learning_rate", 2**53 + 1),
        ("learning_rate", "1e400"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(name, value):
    with pytest.raises(ParameterError, match=f"{name}=.* not a"):
        check_parameters(*injected(**{name: value}))


def test_each_value_says_where_it_came_from():
    cells, namespace = injected(gpus=2)
    namespace["steps"] = 7

    sources = check_parameters(cells, namespace).sources

    assert sources["gpus"] == "papermill"
    assert sources["steps"] == "notebook"
    assert sources["learning_rate"] == "default"


def test_a_declaring_cell_that_ran_again_replaces_what_papermill_had_injected():
    cells, _ = injected(gpus=2)
    edited = DECLARED.replace("gpus: int = 8", "gpus: int = 4")

    checked = check_parameters([*cells, edited], {**DEFAULTS, "gpus": 4})

    assert checked.gpus == 4
    assert checked.sources["gpus"] == "default"


def test_a_notebook_without_declarations_is_told_what_to_do():
    with pytest.raises(ParameterError, match="gpus: int = 8"):
        check_parameters(["", "x = 1", "def f(): pass", "not python ("], {"x": 1})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("seed = 0", "seed = 0 (line 3) has no type. Write seed: int = 0."),
        ("rates = [1, 0.5]", "has no type. Write rates: list[float] = [1, 0.5]."),
        ("amp = True  # fast", "amp = True (line 3) has no type. Write amp: bool ="),
        ("names = []", "Write names: list[str] = []."),
        ("slurm = {'a': 1}", "Write slurm: dict = {'a': 1}."),
        (
            "seed: np.int64 = 0",
            "has the unsupported type np.int64. Write seed: int = 0.",
        ),
        ("seed: int", "seed: int (line 3) has no default. Write seed: int = None."),
        ("seed: int = 2**3", "is not a literal. Write one, or move it to another"),
        ("seed: int = {[]: 1}", "is not a literal. Write one, or move it to another"),
        ("import nbkit", "import nbkit (line 3) does not declare a parameter. Move"),
        ("for n in x:\n    f(n)", "for n in x: (line 3) does not declare a parameter"),
        ("a = b = 0", "a = b = 0 (line 3) does not declare a parameter. Move it"),
    ],
)
def test_a_line_that_spoils_the_parameters_cell_is_named_with_what_to_write(line, said):
    cells = ["", f"\ngpus: int = 8\n{line}\nsteps: int = 1", "nbkit.params()"]

    with pytest.raises(ParameterError) as caught:
        check_parameters(cells, {})

    _, *lines = str(caught.value).splitlines()
    assert len(lines) == 1
    assert said in lines[0]


def test_another_cell_with_an_annotation_does_not_hide_the_parameters():
    cells = ["", DECLARED, "count: int = 0\nfor _ in x: count += 1"]

    assert dict(check_parameters(cells, DEFAULTS)) == DEFAULTS


def test_an_unknown_attribute_is_not_a_parameter():
    checked = check_parameters(["", DECLARED], DEFAULTS)

    with pytest.raises(AttributeError, match="gpuz"):
        checked.gpuz  # noqa: B018
