"""What importing costs, and that every public name is there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import nbkit

ROOT = Path(__file__).parents[2]

HEAVY = {
    "IPython",
    "altair",
    "ipywidgets",
    "jupyter_server",
    "papermill",
    "tornado",
    "torch",
    "torchvision",
    "vl_convert",
}


def test_import_nbkit_loads_only_itself_and_the_standard_library():
    loaded = modules_loaded_by("import nbkit")

    others = top_level(loaded) - {"nbkit"} - set(sys.stdlib_module_names)
    assert others == set()
    assert {name for name in loaded if name.startswith("nbkit.")} == set()


def test_describing_launching_and_reading_load_neither_torch_nor_jupyter():
    program = """
import nbkit; nbkit.ExperimentConfig, nbkit.runs, nbkit.attach, nbkit.sweep
import nbkit.launch.start, nbkit.launch.supervision.supervisor
import nbkit.store.stored_runs, nbkit.statistics, nbkit.telemetry.sampler
from nbkit import registry; registry.names('models')
"""

    assert top_level(modules_loaded_by(program)) & HEAVY == set()


def test_the_server_extension_spares_every_jupyter_server_what_launching_needs():
    loaded = top_level(modules_loaded_by("import nbkit.server.app"))

    assert loaded & {"numpy", "PIL", "pydantic", "pynvml", "torch"} == set()


def test_a_lone_rank_of_somebodys_code_starts_without_torch():
    loaded = modules_loaded_by("import nbkit.worker.function")

    assert {"torch", "numpy"} & set(loaded) == set()


@pytest.mark.parametrize("name", sorted(nbkit.__all__))
def test_a_public_name_is_importable_and_listed(name: str):
    assert getattr(nbkit, name) is not None
    assert name in dir(nbkit)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"'lunch'. Did you mean 'launch'\?"):
        nbkit.lunch()
    with pytest.raises(AttributeError, match=r"'form'. Did you mean 'ExperimentForm'"):
        nbkit.form()
    with pytest.raises(AttributeError, match=r"no attribute 'xyz'$"):
        nbkit.xyz()


def modules_loaded_by(statement: str) -> set[str]:
    """Return the modules that a fresh interpreter loads for a statement."""
    return set(
        answer(
            "import sys, json\n"
            "before = set(sys.modules)\n"
            f"{statement}\n"
            "print(json.dumps(sorted(set(sys.modules) - before)))"
        )
    )


def top_level(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def answer(program: str) -> list[str]:
    process = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(process.stdout)


def test_modules_are_not_called_like_a_public_function():
    # ``import nbkit.<name>`` would hide the function behind the module. The package
    # launch is callable for that reason.
    names = {*nbkit.__all__} - {"launch"}
    paths = [path for path in (ROOT / "nbkit").rglob("*") if path.suffix in ("", ".py")]
    # A task's module has the task's name.
    tasks = ROOT / "nbkit" / "worker"

    alike = [path for path in paths if path.stem in names and path.parent != tasks]
    assert alike == []
