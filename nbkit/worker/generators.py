"""Random generators: what a checkpoint holds of them, and how they continue from there.

Python's, NumPy's and torch's own belong to a rank, and so does each generator that a
function puts into the state that it saves.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

_NUMBERS = {int, float, bool, str, bytes, type(None)}
_MARK = "nbkit.generator"
"""Key of what replaces a generator in a state that all ranks share."""


def random_state() -> dict[str, Any]:
    """Return the state of this rank's random generators."""
    version, words, gauss = random.getstate()
    return {
        "python": [version, list(words), gauss],
        "torch": torch.get_rng_state(),
        # Asking for it would make a context on a GPU that is not this rank's.
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None,
        # A process that has not imported NumPy has drawn nothing from it.
        "numpy": _legacy_state(_numpy_random()) if "numpy" in sys.modules else None,
    }


def restore_random_state(state: dict[str, Any]) -> None:
    """Put this rank's random generators where `random_state` found them."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    # Checkpoints of earlier versions have none.
    if (legacy := state.get("numpy")) is not None:
        _set_legacy_state(_numpy_random(), legacy)


def pack(state: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a state without its generators, and the state of each.

    NumPy's numbers become Python's, which is what a checkpoint can be loaded with. All
    else stays as it is.
    """
    generators: list[dict[str, Any]] = []
    numbers: dict[int, int] = {}

    def packed(value: Any) -> Any:
        found = _state_of(value)
        if found is not None:
            # One that is in two places stays one.
            number = numbers.setdefault(id(value), len(generators))
            if number == len(generators):
                generators.append(found)
            return {_MARK: number, "of rank 0": found}
        if "numpy" in sys.modules and isinstance(value, sys.modules["numpy"].generic):
            return value.item()
        return _mapped(packed, value)

    return packed(state), generators


def unpack(state: dict[str, Any], generators: Sequence[dict[str, Any]]) -> Any:
    """Return what `pack` was given: new generators that continue from theirs.

    Those that this rank did not have in its state continue from rank 0's.
    """
    made: dict[int, Any] = {}

    def unpacked(value: Any) -> Any:
        if type(value) is not dict or _MARK not in value:
            return _mapped(unpacked, value)
        number = value[_MARK]
        if number not in made:
            own = number < len(generators)
            made[number] = _made(generators[number] if own else value["of rank 0"])
        return made[number]

    return unpacked(state)


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """Return a value with what is in it changed; the same one if nothing is."""
    if isinstance(value, dict):
        changed = {key: change(item) for key, item in value.items()}
        same = all(changed[key] is item for key, item in value.items())
        return value if same else changed
    if type(value) in (list, tuple):
        if set(map(type, value)) <= _NUMBERS:
            return value  # of a million, too
        items = [change(item) for item in value]
        same = all(one is other for one, other in zip(items, value, strict=True))
        return value if same else type(value)(items)
    return value


def _state_of(value: Any) -> dict[str, Any] | None:
    """Return kind and state of a generator; None of anything else."""
    if isinstance(value, torch.Generator):
        device = str(value.device)
        return {"kind": "torch", "device": device, "state": value.get_state()}
    if type(value) is random.Random:
        version, words, gauss = value.getstate()
        return {"kind": "python", "state": [version, list(words), gauss]}
    if "numpy" not in sys.modules:
        return None
    numpy = _numpy_random()
    if isinstance(value, numpy.RandomState):
        return {"kind": "numpy legacy", "state": _legacy_state(value)}
    if isinstance(value, numpy.Generator):
        return {"kind": "numpy", "state": _plain(value.bit_generator.state)}
    return None


def _made(found: dict[str, Any]) -> Any:
    """Return a generator that continues from a state of `_state_of`."""
    state = found["state"]
    if found["kind"] == "torch":
        made = torch.Generator(found["device"])
        made.set_state(state)
        return made
    if found["kind"] == "python":
        made = random.Random()
        made.setstate((state[0], tuple(state[1]), state[2]))
        return made
    numpy = _numpy_random()
    if found["kind"] == "numpy legacy":
        made = numpy.RandomState(getattr(numpy, state["bit_generator"])())
        _set_legacy_state(made, state)
        return made
    bits = getattr(numpy, state["bit_generator"])()
    bits.state = _as_arrays(state, bits.state)
    return numpy.Generator(bits)


def _numpy_random() -> Any:
    import numpy as np

    return np.random


def _legacy_state(generator: Any) -> Any:
    return _plain(generator.get_state(legacy=False))


def _set_legacy_state(generator: Any, state: Any) -> None:
    generator.set_state(_as_arrays(state, generator.get_state(legacy=False)))


def _plain(state: Any) -> Any:
    """Return the state of one of NumPy's bit generators without arrays."""
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    return state.tolist() if hasattr(state, "tolist") else state


def _as_arrays(state: Any, like: Any) -> Any:
    """Return a state with arrays where another one of its kind has some."""
    import numpy as np

    if isinstance(like, dict):
        return {key: _as_arrays(state[key], value) for key, value in like.items()}
    return np.array(state, like.dtype) if isinstance(like, np.ndarray) else state
