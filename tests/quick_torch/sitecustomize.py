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
from types import ModuleType, SimpleNamespace
from typing import Any

NAME, INDUCTOR, EXPORT = "torch._dynamo", "torch._inductor", "torch.export"
SETTINGS, SHAPES = f"{INDUCTOR}.config", "torch._meta_registrations"
PACKAGES = (NAME, INDUCTOR, EXPORT)

# A process group asks for rules to be forgotten: there are none.
RULES: dict[str, Any] = {"clear_lru_cache": lambda: None}
MADE: dict[str, dict[str, Any]] = {
    NAME: {
        "disable": lambda fn, recursive=True, wrapping=True: fn,
        "graph_break": lambda msg="": None,
        "trace_rules": SimpleNamespace(**RULES),
    },
    # DDP and torchvision ask for these.
    f"{NAME}.utils": {
        "get_optimize_ddp_mode": lambda: "ddp_optimizer",
        "is_compile_supported": lambda device: real(NAME).utils.is_compile_supported(
            device
        ),
    },
    f"{NAME}.trace_rules": RULES,
    INDUCTOR: {},
    SETTINGS: {},
    EXPORT: {},
    SHAPES: {},
    "torchvision.ops._register_onnx_ops": {"_register_custom_op": lambda: None},
}
"""What is replaced so far, by name, with the answers outside compiled code."""


class StandIn(ModuleType):
    """The compiler, or a part of it, as whoever does not compile sees it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(real(self.__name__), name)

    def __setattr__(self, name: str, value: Any) -> None:
        # torch notes there what it also knows itself; other settings are its users'.
        is_setting = self.__name__ == SETTINGS and not name.startswith("__")
        if not is_setting:
            super().__setattr__(name, value)
        elif name != "deterministic" or INDUCTOR not in MADE:
            setattr(real(SETTINGS), name, value)


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
            if spec.name == SHAPES:
                # By the way, it lets torch make generators of random numbers.
                importlib.import_module("torch._prims.rng_prims")
            module = StandIn(spec.name)
            vars(module).update(MADE[spec.name])
            return module
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
            for other in (SHAPES, EXPORT, INDUCTOR):
                real(other)
        module = importlib.import_module(top)
        if top == INDUCTOR:
            torch = sys.modules["torch"]
            is_deterministic = torch.are_deterministic_algorithms_enabled()
            real(SETTINGS).deterministic = is_deterministic
        parent, _, last = top.rpartition(".")
        setattr(sys.modules[parent], last, module)
    return importlib.import_module(name)


if "WHOLE_TORCH" not in os.environ:
    sys.meta_path.insert(0, Finder())
