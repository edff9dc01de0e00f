"""Spares ranks of the suite the import of torch's compiler: 2 seconds of CPU each.

torch imports it with the first step of an optimizer and with DDP, torchvision with its
operators, and both import at their start what only the compiler and exports ask for.
Only code that compiles has a use for it. Here modules stand in their place that know
the few names which they ask for. Whoever asks for another gets all of it.

Python imports this file at its start where the folder is in PYTHONPATH. No rank of a
user has it, nor has one of a test that sets WHOLE_TORCH.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NAME = "torch._dynamo"
EXPORT = "torch.export"
SHAPES = "torch._meta_registrations"
ONNX = "torchvision.ops._register_onnx_ops"


class StandIn(ModuleType):
    """The compiler, or a part of it, as whoever does not compile sees it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        real_compiler()
        return getattr(importlib.import_module(self.__name__), name)


def compiler() -> ModuleType:
    """Return what torch asks for, with the compiler's answers outside compiled code."""
    module = StandIn(NAME)
    module.__path__ = []
    module.disable = lambda fn, recursive=True, wrapping=True: fn
    module.graph_break = lambda msg="": None
    module.trace_rules = trace_rules()
    return module


def utils() -> ModuleType:
    """Return what DDP and torchvision ask for."""
    module = StandIn(f"{NAME}.utils")
    module.get_optimize_ddp_mode = lambda: "ddp_optimizer"
    module.is_compile_supported = lambda device: (
        real_compiler().utils.is_compile_supported(device)
    )
    return module


def trace_rules() -> ModuleType:
    """Return what a process group asks for: there are no rules to forget."""
    module = StandIn(f"{NAME}.trace_rules")
    module.clear_lru_cache = lambda: None
    return module


def export() -> ModuleType:
    """Return what torch makes a name of at its start."""
    module = StandIn(EXPORT)
    module.__path__ = []
    return module


def shapes() -> ModuleType:
    """Return what says which shapes results have, to those who do not compute them."""
    # By the way, it lets torch make generators of random numbers.
    importlib.import_module("torch._prims.rng_prims")
    return StandIn(SHAPES)


def onnx() -> ModuleType:
    """Return what tells ONNX of torchvision's operators: all of ``torch.onnx``."""
    module = StandIn(ONNX)
    module._register_custom_op = lambda: None
    return module


MADE = {
    NAME: compiler,
    f"{NAME}.utils": utils,
    f"{NAME}.trace_rules": trace_rules,
    EXPORT: export,
    SHAPES: shapes,
    ONNX: onnx,
}
PACKAGES = (NAME, EXPORT)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the stand-ins where the compiler would be imported for the first time."""

    def find_spec(self, name: str, path: object, target: object = None) -> Any:
        """Find the compiler's modules, and no other."""
        if name not in MADE and not name.startswith(tuple(f"{it}." for it in PACKAGES)):
            return None
        return importlib.util.spec_from_loader(name, self, is_package=name in PACKAGES)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make a stand-in; for any other module of the compiler, import all of it."""
        if spec.name in MADE:
            return MADE[spec.name]()
        real_compiler()
        return importlib.import_module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: it is made."""


def real_compiler() -> ModuleType:
    """Import the compiler after all, in the stand-ins' place."""
    if FINDER in sys.meta_path:
        sys.meta_path.remove(FINDER)
        for name in MADE:
            sys.modules.pop(name, None)
        torch = sys.modules["torch"]
        for name in (SHAPES, EXPORT, NAME):
            setattr(torch, name.removeprefix("torch."), importlib.import_module(name))
    return sys.modules[NAME]


FINDER = Finder()
if "WHOLE_TORCH" not in os.environ:
    sys.meta_path.insert(0, FINDER)
