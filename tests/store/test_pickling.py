"""Code that was pickled shows its file and line, whatever it is part of."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from nbkit.store.pickles import load, load_with_names
from nbkit.store.pickling import dumps, pickle_sha256

CASES = {
    "function": "def call():\n    raise KeyError  # here",
    "nested function": """
def outer():
    def inner():
        raise KeyError  # here
    return inner
call = outer()""",
    "lambda in a lambda": "call = (lambda: lambda: {}[1])()  # here",
    "bound method": """
class Made:
    def method(self):
        raise KeyError  # here
call = Made().method""",
    "class in a class": """
class Outer:
    class Inner:
        def method(self):
            raise KeyError  # here
call = Outer.Inner().method""",
    "decorator with wraps": """
import functools
def decorated(function):
    @functools.wraps(function)
    def wrapper():
        return function()
    return wrapper
@decorated
def call():
    raise KeyError  # here""",
    "generator expression": """
def call():
    return list(
        {}[one]  # here
        for one in (1, 2)
    )""",
    "coroutine": """
import asyncio
async def wait():
    await asyncio.sleep(0)
    raise KeyError  # here
def call():
    asyncio.run(wait())""",
    "dataclass": """
import dataclasses
@dataclasses.dataclass
class Made:
    value: int = 0
    def method(self):
        raise KeyError(self.value)  # here
call = Made(2).method""",
    "enum": """
import enum
class Color(enum.Enum):
    RED = 1
    def method(self):
        raise KeyError(self.name)  # here
call = Color.RED.method""",
    "call into a module": """
import json
def call():
    json.loads("{")  # here""",
}
if sys.version_info >= (3, 12):
    CASES["generic class"] = """
class Made[T]:
    def method(self) -> T:
        raise KeyError  # here
call = Made[int]().method"""

READER = """
import json, pathlib, pickle, sys, traceback
found = {}
for path in map(pathlib.Path, sys.argv[1:]):
    try:
        pickle.loads(path.read_bytes())()
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        found[path.name] = [[frame.filename, frame.lineno] for frame in frames]
assert "nbkit" not in sys.modules
print(json.dumps(found))
"""


def made_by(cell: str, file: str) -> Any:
    """Execute a cell as IPython does, and return its ``call``."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(cell, file, "exec"), names)
    return names["call"]


def file_of(case: str) -> str:
    return f"/tmp/ipykernel_7/{case}.py"


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[Any]]]:
    """Return files and lines of each case's traceback in a process without nbkit."""
    folder = tmp_path_factory.mktemp("pickles")
    paths = []
    for case, cell in CASES.items():
        pickled = dumps(made_by(cell, file_of(case)))
        assert file_of(case) in pickled.code_files
        path: Path = folder / case
        path.write_bytes(pickled.data)
        paths.append(path)
    read = [sys.executable, "-I", "-c", READER, *map(str, paths)]
    return json.loads(subprocess.check_output(read, text=True))


@pytest.mark.parametrize("case", CASES)
def test_dumps_traceback_of_cell(case, frames):
    lines = CASES[case].splitlines()
    (here,) = (number for number, line in enumerate(lines, 1) if "# here" in line)

    assert [file_of(case), here] in frames[case]


def test_pickle_sha256_depends_on_code():
    cell = CASES["nested function"]
    one, other = made_by(cell, "/tmp/a.py"), made_by(cell, "/tmp/b.py")

    assert pickle_sha256(one) == pickle_sha256(other)
    assert pickle_sha256(one) != pickle_sha256(made_by(f"\n{cell}", "/tmp/a.py"))
    assert dumps(one).data != dumps(other).data


CARRIED = {
    "cached property": (
        """
import functools
class Mine(functools.cached_property):
    pass
class Net:
    @functools.cached_property
    def size(self):
        return 3
    @Mine
    def twice(self):
        return 2 * self.size
net = Net()
net.size
def call():
    return net.twice, Net().twice, vars(net)""",
        "(6, 6, {'size': 3, 'twice': 6})",
    ),
    "spawned children": (
        """
import multiprocessing
class Data:
    def __init__(self, value):
        self.value = value
    def double(self):
        return Data(self.value * 2)
def work(data, queue, collate):
    queue.put(collate(data.double()))
def call():
    found = []
    for how in ("spawn", "forkserver"):
        context = multiprocessing.get_context(how)
        queue = context.SimpleQueue()
        child = context.Process(target=work, args=(Data(3), queue, lambda one: one))
        child.start()
        found.append(queue.get())
        child.join()
    return [(isinstance(one, Data), one.value) for one in found]""",
        "[(True, 6), (True, 6)]",
    ),
    "a module that can be called": (
        """
import nbkit
from nbkit import launch as go
def call():
    import nbkit.launch
    return go is nbkit.launch and callable(go)""",
        "True",
    ),
}
WRITE_CALLS = """
import json, sys, types
from nbkit.store.pickling import dumps
for name, cell in json.load(sys.stdin).items():
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(cell, "/tmp/a.py", "exec", dont_inherit=True), vars(main))
    pickled = dumps((main.call, (), {}))
    assert not pickled.names_in_main(), pickled.names_in_main()
    sys.__stdout__.write(pickled.data.hex() + "\\n")
"""
READ_CALLS = """
import json, sys, types
from nbkit.store.pickles import load_with_names
from nbkit.worker.function import send_main_to_spawned
send_main_to_spawned()
for line in sys.stdin:
    (call, _, _), names = load_with_names(bytes.fromhex(line))
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main
    vars(main).update(names)
    print(repr(call()))
"""


@pytest.fixture(scope="module")
def returned() -> dict[str, str]:
    """Return what each case's call returns where a rank makes it."""
    cells = {name: cell for name, (cell, _) in CARRIED.items()}
    text = json.dumps(cells)
    for code in (WRITE_CALLS, READ_CALLS):
        argv = [sys.executable, "-c", code]
        text = subprocess.run(argv, input=text, stdout=-1, text=True, check=True).stdout
    return dict(zip(cells, text.splitlines(), strict=True))


@pytest.mark.parametrize("case", CARRIED)
def test_dumps_cell_on_a_rank(case, returned):
    assert returned[case] == CARRIED[case][1]


def test_dumps_data_are_no_code():
    pickled = dumps(["/tmp/ipykernel_7/1.py"])

    assert pickle.loads(pickled.data) == ["/tmp/ipykernel_7/1.py"]
    assert pickled.code_files == set()


def test_names_in_main_are_told():
    class ByName:
        def __reduce__(self) -> str:
            return "registry"

    ByName.__module__ = "__main__"
    main = vars(sys.modules["__main__"])
    named = main["registry"] = ByName()
    try:
        assert dumps([named, "x"]).names_in_main() == ["registry"]
    finally:
        del main["registry"]


def test_meanings_of_redefined_class():
    cell = "class Pair:\n    pass\ncall = Pair"
    before, now = made_by(cell, "/tmp/a.py"), made_by(cell, "/tmp/a.py")
    main = vars(sys.modules["__main__"])
    main["Pair"] = now
    try:
        pickled = dumps([before(), now(), before()])
    finally:
        del main["Pair"]

    (old, new, _), names = load_with_names(pickled.data)
    assert names == {"Pair": type(new)}
    assert type(old) is not type(new)


BACK = """
import sys
from nbkit.store.pickles import load
from nbkit.store.pickling import dumps
sys.stdout.buffer.write(dumps(load(sys.stdin.buffer.read())()).data)
"""


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch believe that tensors are on a device that is not where it reads them.

    It calls what reads a tensor's memory otherwise than other versions do.
    """

    def gone(_: Any, place: str) -> None:
        if place == "far:0":
            message = "no such device"
            raise RuntimeError(message)

    packages = list(torch.serialization._package_registry)
    monkeypatch.setattr(torch.serialization, "_package_registry", packages)
    torch.serialization.register_package(0, lambda _: "far:0", gone)
    monkeypatch.setattr(torch.storage, "_load_from_bytes", read_memory)


def read_memory(stored: bytes) -> Any:
    return torch.load(io.BytesIO(stored), weights_only=False)


def test_load_tensors_on_the_host(far_away):
    model = torch.nn.Linear(2, 3)
    half = torch.arange(6, dtype=torch.float16).view(2, 3).T
    with pytest.raises(RuntimeError, match="no such device"):
        pickle.loads(pickle.dumps(half))

    back, again, flags = load(dumps((model, half, torch.tensor([True]))).data)

    assert torch.equal(back.weight, model.weight)
    assert back.weight.requires_grad
    assert torch.equal(again, half)
    assert (again.dtype, again.stride()) == (half.dtype, half.stride())
    assert flags.tolist() == [True]


CLASSES = {
    "plain": "class Kind:\n    x = 1\n",
    "enum": "import enum\nclass Kind(enum.IntFlag):\n    x = 1\n",
    "model": "import torch\nclass Kind(torch.nn.Module):\n    x = 1\n",
    "base": "import abc\nclass Base(abc.ABC): x = 1\nclass Kind(Base):\n    pass\n",
    "static": "class Kind:\n    x = 1\n    @classmethod\n    def make(cls): pass\n",
}


@pytest.mark.parametrize("how", CLASSES)
def test_load_keeps_classes(how):
    cell = f"lr = 0.1\n{CLASSES[how]}    def fit(self): return lr\n"
    made = "Kind.x" if how == "enum" else "Kind()"
    call = made_by(f"{cell}call = lambda: ({made}, Kind)", "/tmp/a.py")
    kind, names = call()[1], call.__globals__
    there = dumps(call).data
    back = subprocess.check_output([sys.executable, "-c", BACK], input=there)
    names["lr"] = 0.5
    kind.added = 7
    before = dict(vars(kind))

    instance, same = load(back)

    assert same is kind
    assert type(instance) is kind
    assert dict(vars(kind)) == before
    assert instance.fit() == 0.5
    names["lr"] = 0.9
    assert (instance.fit(), instance.added) == (0.9, 7)


def test_load_makes_classes():
    cell = "class Kind:\n    def fit(self): return 3\ncall = lambda: Kind()"
    data = dumps(made_by(cell, "/tmp/a.py")).data
    there = "import sys\nfrom nbkit.store.pickles import load\n"
    there += "kinds = [load(data)() for data in [sys.stdin.buffer.read()] * 2]\n"
    there += "print([kind.fit() for kind in kinds])"

    assert (
        subprocess.check_output([sys.executable, "-c", there], input=data)
        == b"[3, 3]\n"
    )


def test_pickle_sha256_tensors():
    one, other = (torch.arange(3.0) for _ in range(2))

    assert pickle_sha256(one) == pickle_sha256(other)
    assert pickle_sha256(one) != pickle_sha256(one + 1)


SLOTS = """
import subprocess, sys
from dataclasses import dataclass
from nbkit.store.pickles import load_with_names
from nbkit.store.pickling import dumps
@dataclass(slots=True)
class Slotted:
    loss: float
def call():
    return Slotted(0.5)
there = '''
import sys
from nbkit.store.pickles import load_with_names
from nbkit.store.pickling import dumps
call, names = load_with_names(sys.stdin.buffer.read())
vars(sys.modules["__main__"]).update(names)
sys.stdout.buffer.write(dumps(call()).data)
'''
argv = [sys.executable, "-c", there]
made = subprocess.run(argv, input=dumps(call).data, stdout=-1, check=True).stdout
returned, _ = load_with_names(made)
assert isinstance(returned, Slotted) and returned == Slotted(0.5), returned
"""


def test_slotted_object_of_main_comes_back():
    subprocess.run([sys.executable, "-c", SLOTS], check=True)
