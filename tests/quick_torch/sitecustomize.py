"""Spares ranks of the suite the import of torch's compiler: 2 seconds of CPU each.

torch imports it with the first step of an optimizer, with DDP and where algorithms are
to be deterministic, torchvision with its operators, and both import at their start what
only the compiler and exports ask for. Only code that compiles has a use for it. Modules
that know the few names asked for replace it here. Code that asks for another gets the
module itself.

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
INDUCTOR = "torch._inductor"
EXPORT = "torch.export"
SHAPES = "torch._meta_registrations"
ONNX = "torchvision.ops._register_onnx_ops"


class StandIn(ModuleType):
    """The compiler, or a part of it, as whoever does not compile sees it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(real(self.__name__), name)


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
    module.is_compile_supported = lambda device: real(NAME).utils.is_compile_supported(
        device
    )
    return module


def trace_rules() -> ModuleType:
    """Return what a process group asks for: there are no rules to forget."""
    module = StandIn(f"{NAME}.trace_rules")
    module.clear_lru_cache = lambda: None
    return module


def inductor() -> ModuleType:
    """Return the package of what follows."""
    module = StandIn(INDUCTOR)
    module.__path__ = []
    return module


class Settings(StandIn):
    """The compiler's settings; what torch notes there, it also knows itself."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        elif name != "deterministic" or INDUCTOR not in MADE:
            setattr(real(self.__name__), name, value)


def inductor_config() -> ModuleType:
    """Return where torch notes that algorithms are to be deterministic."""
    return Settings(f"{INDUCTOR}.config")


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
    INDUCTOR: inductor,
    f"{INDUCTOR}.config": inductor_config,
    EXPORT: export,
    SHAPES: shapes,
    ONNX: onnx,
}
"""What is replaced so far, by name."""

PACKAGES = (NAME, INDUCTOR, EXPORT)


def owner(name: str) -> str | None:
    """Return the name of the stand-in, or package of stand-ins, that has a module."""
    parents = [it for it in PACKAGES if it in MADE and f"{name}.".startswith(f"{it}.")]
    return parents[0] if parents else name if name in MADE else None


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the stand-ins where a module would be imported for the first time."""

    def find_spec(self, name: str, path: object, target: object = None) -> Any:
        """Find what is replaced, and what is in its packages; no other module."""
        if owner(name) is None:
            return None
        return importlib.util.spec_from_loader(name, self, is_package=name in PACKAGES)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make a stand-in; for any other module of its package, import the package."""
        if spec.name in MADE:
            return MADE[spec.name]()
        if (package := owner(spec.name)) is not None:
            real(package)
        return importlib.import_module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: it is made."""


def real(name: str) -> ModuleType:
    """Import a module after all, in its stand-in's place; the compiler as a whole."""
    top = owner(name)
    if top is not None:
        for made in [one for one in MADE if owner(one) == top]:
            del MADE[made]
            sys.modules.pop(made, None)
        if top == NAME:  # it asks for all that those know
            real(SHAPES)
            real(EXPORT)
            real(INDUCTOR)
        module = importlib.import_module(top)
        if top == INDUCTOR:
            torch = sys.modules["torch"]
            is_deterministic = torch.are_deterministic_algorithms_enabled()
            real(f"{INDUCTOR}.config").deterministic = is_deterministic
        parent, _, last = top.rpartition(".")
        setattr(sys.modules[parent], last, module)
    return importlib.import_module(name)


if "WHOLE_TORCH" not in os.environ:
    sys.meta_path.insert(0, Finder())
