"""Functions and scripts as runs: what they take along, return, log, and how they fail.

Cells are those of a real kernel.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
import threading
import types
import warnings

import pytest

import nbkit
from nbkit.errors import ConfigError, RunError
from nbkit.launch.code import entry
from nbkit.launch.devices.claims import leases
from nbkit.store.record import RunState
from tests.launch.function_faults import CELL, check_fault, launch_fault
from tests.notebooks.kernel import running_kernel
from tests.waiting import wait_until

FACTOR = 5


class Box:
    """Something of this module, which no package manager has installed."""

    def __init__(self, value):
        self.value = value


def meet(base, *, box):
    import torch
    import torch.distributed as dist

    here = nbkit.context()
    dist.init_process_group("gloo")
    total = torch.ones(1) * (here.rank + 1)
    dist.all_reduce(total)
    dist.destroy_process_group()
    for step in range(4):
        nbkit.log({"loss": 1 / (step + 1), "rank": here.rank}, step=step)
    return [base * FACTOR, box.value, total.item(), here.rank, str(here.device)]


def launch(what, **options):
    return nbkit.launch(what, **{"device": "cpu", "oversubscribe": True, **options})


def test_launch_function(whole_torch):
    run = launch(meet, args=(2,), kwargs={"box": Box(7)}, gpus=2).wait()

    assert run.returns == [[10, 7, 3.0, 0, "cpu"], [10, 7, 3.0, 1, "cpu"]]
    assert run.record["name"] == "meet"
    assert run.summary.world_size == 2
    kept = run.paths.source / "modules" / "tests" / "launch" / "test_functions.py"
    assert "def meet(base" in kept.read_text()
    assert run.paths.entry_pickle.stat().st_mode & 0o077 == 0
    # Rank 0 alone writes metrics and TensorBoard events.
    lines = run.metrics("log")
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert [line["values"]["rank"] for line in lines] == [0, 0, 0, 0]
    assert lines[3]["values"]["loss"] == 0.25
    assert list(run.paths.tensorboard.iterdir())


CELLS = [
    "import nbkit, numpy, torch\ntorch.ones(512, 512) @ torch.ones(512, 512);",
    "scale = 3\nclass Pair:\n    def __init__(self, a): self.a = a",
    "import beside\ndef outer(offset):\n"
    "    def inner(value):\n"
    "        import inspect, late\n"
    "        made = Pair(beside.double(value * scale + offset) + late.ONE).a\n"
    "        return made, inspect.getsource(outer)\n"
    "    return inner",
    "run = nbkit.launch(outer(1), args=(2,), device='cpu', oversubscribe=True)",
]
GATHER = """
import torch.distributed as dist
def gather():
    dist.init_process_group("gloo")
    pairs = [None, None]
    dist.all_gather_object(pairs, Pair(nbkit.context().rank))
    return [pair.a for pair in pairs]
other = nbkit.launch(gather, gpus=2, device="cpu", oversubscribe=True).wait()
"""


def test_launch_functions_of_cells_and_one_that_raises(tmp_path):
    module = "import threading\nlock = threading.Lock()\nSIZE = 2\n"
    module += "def double(x):\n    return SIZE * x\n"
    (tmp_path / "beside.py").write_text(module)
    (tmp_path / "late.py").write_text("ONE = 1\n")
    with running_kernel() as kernel:
        kernel.execute(f"import sys; sys.path.insert(0, {str(tmp_path)!r})")
        for cell in CELLS:
            kernel.execute(cell)
        run = nbkit.attach(kernel.execute("run.wait()", "run.run_id"))
        returned = kernel.execute("pass", "run.returns")
        assert kernel.execute(GATHER, "other.returns") == [[0, 1], [0, 1]]
        kernel.execute(CELL)
        check_fault(launch_fault(kernel, "exception", 1), "exception", 1)
        assert leases("cpu") == {}

    assert returned == [(15, CELLS[2].removeprefix("import beside\n") + "\n")]
    assert (run.paths.source / "modules" / "beside.py").read_text() == module
    cells = (run.paths.source / "cells").iterdir()
    assert {path.name: path.read_text() for path in cells} == {
        "Cell_In_3.py": f"{CELLS[1]}\n",
        "Cell_In_4.py": f"{CELLS[2]}\n",
    }


def test_launch_function_with_a_wrong_value():
    def wrong_values():
        for step in (-1, 0.5):
            with pytest.raises(ConfigError, match=rf"step={step} is invalid"):
                nbkit.log({"loss": 1.0}, step=step)
        with pytest.raises(ConfigError, match="loss='low' is not a number"):
            nbkit.log({"loss": "low"})
        return threading.Lock()

    run = launch(wrong_values).wait(raise_on_failure=False)

    assert run.state is RunState.FAILED
    assert run.cause["kind"] == "exception"
    words = "wrong_values() returned a value of type lock, which cannot be p"
    assert words in run.cause["message"]
    assert run.metrics("log") == []


SCRIPT = """
import argparse
import nbkit
from neighbour import NAME

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float)
    rate = parser.parse_args().rate
    print(f"{NAME} of rank {nbkit.context().rank}: {rate}", flush=True)
    nbkit.log({"rate": rate})
    raise SystemExit(0 if rate < 1 else 3)
"""


@pytest.fixture
def script(tmp_path):
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "neighbour.py").write_text("NAME = 'neighbour'\n")
    path = folder / "train.py"
    path.write_text(SCRIPT)
    return path


def test_launch_script(script):
    run = launch(script, args=["--rate", 0.5])
    script.write_text("raise SystemExit(7)\n")
    run.wait()

    assert run.logs(0, "stdout") == "neighbour of rank 0: 0.5\n"
    assert run.metrics("log")[0]["values"] == {"rate": 0.5}
    assert (run.paths.source / "script" / "train.py").read_text() == SCRIPT
    assert run.config.title == "train"
    with pytest.raises(RunError, match="has no return value: task='script'"):
        _ = run.returns


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("train.ipynb", "{}", r"is a notebook. Run it with `papermill /\S+ out.ipynb`"),
        ("a b.IPYNB", "{}", "Run it with `papermill '/.*/a b.IPYNB' out.ipynb`"),
        ("conf.yaml", "model:\n  lr: 0.1\n", "is not a Python script. Pass a Python"),
        ("conf.json", '{"a": [1, -2.5]}', "is not a Python script"),
        ("train.sh", "python train.py --lr 0.1\n", "is not a Python script"),
        ("bad.py", "def train(:\n", "is not valid Python"),
    ],
)
def test_script_entry_refused_file(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)

    with pytest.raises(ConfigError, match=words):
        launch(tmp_path / name)


def test_script_entry_without_suffix(tmp_path):
    (tmp_path / "train").write_text("import pkg.train")

    assert entry.script_entry(tmp_path / "train", []).task == "script"


def test_function_entry_large_warning(monkeypatch):
    monkeypatch.setattr(entry, "LARGE_BYTES", 5_000)
    table, little = bytes(10_000), bytes(10)

    def look():
        return len(table) + len(little)

    with pytest.warns(
        UserWarning, match=r"the pickle of look\(\) .* of which table is"
    ):
        entry.function_entry(look)


def test_function_entry_changed_module_variable(tmp_path, monkeypatch):
    text = "LR = 0.1\nNAME = 'a'\nPAIR = 1, 2\nready = False\nAPI_TOKEN = 'x'\n_n = 0\n"
    text += "rates = [1]\ndef start():\n    global ready\n    ready = True\n"
    text += "SIZE = 1\nif LR:\n    SIZE = 2\n"
    (tmp_path / "settings_of_mine.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("settings_of_mine")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            module.start()
            module._n, module.rates, module.SIZE, module.API_TOKEN = 3, [2], 3, "y"
            entry.function_entry(boom)
        module.LR = 0.5
        words = r"settings_of_mine.LR is 0.5 here, but 0.1 in /.*Pass the value as an"
        with pytest.warns(UserWarning, match=words):
            entry.function_entry(boom)
        module.LR, module.PAIR = 0.1, (1, 3)
        with pytest.warns(
            UserWarning, match=r"^settings_of_mine.PAIR is \(1, 3\) here"
        ):
            entry.function_entry(boom)
    finally:
        del sys.modules["settings_of_mine"]


@pytest.mark.parametrize("used", ["the module", "its function", "neither"])
def test_function_entry_module_off_path(used, tmp_path):
    file = tmp_path / "loaded_by_path.py"
    file.write_text("def double(x):\n    return 2 * x\n")
    spec = importlib.util.spec_from_file_location("loaded_by_path", file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["loaded_by_path"] = module
    try:
        spec.loader.exec_module(module)
        args = {"the module": (module,), "its function": (module.double,)}.get(used, ())
        if used == "neither":
            entry.function_entry(print, args)
            return
        with pytest.raises(ConfigError, match="the ranks cannot import"):
            entry.function_entry(print, args)
    finally:
        del sys.modules["loaded_by_path"]


def test_what_cannot_be_sent_is_named():
    import threading

    lock = threading.Lock()

    def work():
        return lock

    with pytest.raises(ConfigError, match=r"work\(\) uses lock .*inside the func"):
        launch(work)

    def later(given=None):
        return unset

    if lock.locked():
        unset = 1

    with pytest.raises(ConfigError, match=r"uses args\[0\] \(type lock\)"):
        launch(later, args=(lock,))
    with pytest.raises(ConfigError, match=r"uses args\[0\]"):
        launch(meet, args=(lock,), kwargs={"box": 1})
    assert nbkit.runs() == []


def boom():
    os.abort()


async def wait():
    pass


def steps():
    yield 1


@pytest.mark.parametrize(
    ("what", "options", "words"),
    [
        ("resnet50", {}, "cannot be read"),
        (7, {}, "is of type int"),
        (boom, {"nproc_per_node": 2}, "is not a field. Did you mean 'gpus'"),
        (boom, {"env": {"A": "x"}}, "is not a field. Did you mean 'environment'"),
        (boom, {"task": "train"}, "conflicts with a function. Remove task"),
        (None, {"args": (1,)}, "require a function, script"),
        (None, {"task": "function"}, "task='function' requires a function. Pass it"),
        (boom, {"environment": {"A": 1}}, "keys and values must be strings"),
        (boom, {"environment": {"RANK": "1"}}, "is set by nbkit"),
        (boom, {"environment": {"API_KEY": "x"}}, "looks like a secret"),
        (boom, {"environment": {"A=B": "x"}}, "is not a valid variable"),
        (boom, {"environment": ["A=B"]}, "is of type list. Pass a dict"),
        (boom, {"environment": {"A": "x\0"}}, "is not a valid variable"),
        (wait, {}, r"wait\(\) is asynchronous or a generator"),
        (steps, {}, r"steps\(\) is asynchronous or a generator"),
        (boom, {"args": 5}, "args=5 is of type int. Pass a tuple or list"),
        (boom, {"args": {1: 2}}, "is of type dict. Pass a tuple .* as kwargs"),
        (boom, {"args": "ab"}, "is of type str. Pass a tuple or list"),
        (boom, {"args": (5,)}, r"boom\(\) cannot be called with args=\(5,\)"),
        (boom, {"kwargs": {"a": 1}}, "unexpected keyword argument 'a'"),
        (boom, {"kwargs": 5}, "kwargs=5 is of type int. Pass a dict"),
        (__file__, {"args": "--lr 0.1"}, "is of type str. Pass a tuple or list"),
    ],
)
def test_launch_refuses_arguments(what, options, words):
    with pytest.raises(ConfigError, match=words):
        launch(what, **options)


@pytest.mark.parametrize(
    "options", [["-X", "dev", "-O"], ["-E", "-Werror::UserWarning"]]
)
def test_worker_argv_python_options(tmp_path, options):
    code = """
import sys
from pathlib import Path
from nbkit.launch.code.command import worker_argv
from nbkit.launch.code.entry import function_entry
from nbkit.store.paths import RunPaths
function_entry(print).write(RunPaths(Path(sys.argv[1])))
print(*worker_argv(Path(sys.argv[1]))[1:-4])
"""
    argv = [sys.executable, *options, "-c", code, tmp_path]
    printed = subprocess.check_output(argv, text=True).split()

    # That one is of PYTHONDONTWRITEBYTECODE too.
    assert set(printed) - {"-B"} == set(options) - {"-E"}


def test_function_entry_name_of_partial():
    once = functools.partial(meet, 2)

    assert entry.function_entry(functools.partial(once, box=1)).name == "meet"


@pytest.mark.parametrize(
    ("argv", "is_kernel", "kept"),
    [
        (["launch.py", "--lr", "0.5"], False, ["launch.py", "--lr", "0.5"]),
        (["kernel.py", "-f", "k.json"], True, ["kernel.py"]),
        (["kernel.py", "--f=k.json"], True, ["kernel.py"]),
        (["kernel.py"], True, ["kernel.py"]),
        (["sweep.py", "--lr", "0.5"], True, ["sweep.py", "--lr", "0.5"]),
    ],
)
def test_function_entry_argv(monkeypatch, argv, is_kernel, kept):
    began = argv if argv[0] == "kernel.py" else ["kernel.py", "-f", "k.json"]
    shell = types.SimpleNamespace(**({"kernel": None} if is_kernel else {}))
    ipython = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, *began])

    described = entry.function_entry(boom)

    assert described.private["argv"] == kept
    assert "argv" not in described.description


def test_function_entry_decorated():
    def with_device(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function("cpu", *args, **kwargs)

        return wrapper

    @with_device
    def train(device, rate):
        return device, rate

    assert entry.function_entry(train, (0.1,)).pickled is not None


def test_context_outside_of_run():
    for call in (nbkit.context, lambda: nbkit.log({"loss": 1.0})):
        with pytest.raises(RunError, match=r"nbkit.launch\(\) runs"):
            call()


def variables_once_recorded(names):
    # The supervisor describes a run beside it, and soon after its end no longer.
    packages = nbkit.context().run_folder / "code" / "packages.txt"
    wait_until(packages.exists, "the description of the environment")
    return [os.environ[name] for name in names]


def test_launch_function_environment():
    """Deterministic ones get rings; what the user has set stays."""
    names = "COLOUR", "NCCL_ALGO", "NCCL_NVLS_ENABLE", "CUBLAS_WORKSPACE_CONFIG"
    given = {"COLOUR": "blue", "NCCL_ALGO": "Tree", "OMP_NUM_THREADS": "3"}

    run = launch(
        lambda: [*variables_once_recorded(names), sys.argv],
        environment=given,
        deterministic=True,
    ).wait()

    assert run.returns == [["blue", "Tree", "0", ":4096:8", sys.argv]]
    described = json.loads(run.paths.entry.read_text())
    assert "environment" not in described
    private = {"argv": sys.argv, "arguments": "", "environment": given}
    assert json.loads(run.paths.private.read_text()) == private
    assert described["name"] == "<lambda>"
    recorded = run.record["environment"]["variables"]
    assert [recorded[name] for name in names[1:]] == ["Tree", "0", ":4096:8"]
    assert run.record["launch"]["cpus_per_rank"] == 3
