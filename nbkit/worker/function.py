"""One rank of a launched function or script."""

from __future__ import annotations

import importlib.util
import io
import linecache
import os
import socket
import sys
from collections.abc import Callable
from importlib.abc import InspectLoader
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from nbkit.config import ExperimentConfig
from nbkit.errors import RunError, StoreError
from nbkit.reading import read_file
from nbkit.store.heartbeat import Phase
from nbkit.store.metrics import store_error
from nbkit.store.pickles import load_with_names
from nbkit.store.printed import last_values
from nbkit.store.private import read_entry
from nbkit.worker import rank_context as context
from nbkit.worker.ending import Ending
from nbkit.worker.facts import write_facts
from nbkit.worker.import_hooks import after_import
from nbkit.worker.rank import Rank
from nbkit.worker.trackers import follow_prints, follow_writers
from nbkit.worker.trainer_callback import follow_trainers

if TYPE_CHECKING:
    import torch


_FOLLOWED = {
    "tensorboardX.writer": follow_writers,
    "torch.utils.tensorboard.writer": follow_writers,
    "transformers.trainer": follow_trainers,
}
"""Modules of the user's code whose numbers are recorded."""

PrepareRendezvous = Callable[
    [Rank, ExperimentConfig], "tuple[torch.device | None, Callable[[], None]]"
]
"""Returns this rank's device, None where torch is for the user's code to import, and
what waits at the end until the other ranks have left."""


def run_entry(
    rank: Rank,
    config: ExperimentConfig,
    ending: Ending,
    prepare_rendezvous: PrepareRendezvous,
) -> None:
    """Do what ``code/entry.json`` says; what a function returns is kept."""
    # The code finds torchrun's environment, so that ``init_process_group()`` works as
    # under torchrun; no process group is made for it.
    entry = read_entry(rank.paths)
    if entry is None:
        message = f"{rank.paths.entry} is missing. Launch the run again."
        raise StoreError(message)
    if "NBKIT_ATTEMPT" not in os.environ:  # else the supervisor has set them
        os.environ.update(entry["environment"])
    # In this order a name means what it means to the launching process.
    path = entry["import_path"]
    # A copy of a checkout must not find the checkout itself.
    others = [] if "copy" in entry else sys.path
    sys.path[:] = [*path, *(folder for folder in others if folder not in path)]
    show_sources(rank, entry)
    # A rank that waits for one that has failed is in C++, where no handler runs.
    rank.end_at_requests_to_stop()
    device, wait_for_others = prepare_rendezvous(rank, config)
    run_context = context.enter(rank, config, device)
    write_facts(rank, config, device, None, None, None, completed=False)
    rank.beat(0, Phase.COMPUTE)

    def finish() -> None:
        if rank.rank == 0:
            # Of the file: subprocesses and libraries print too.
            output = rank.paths.rank(rank.attempt, 0).stdout
            run_context.record_last_prints(last_values(output))
        run_context.close()
        facts = rank, config, device, None, None, None
        answers = rank.answers_requests_itself
        write_facts(*facts, completed=not run_context.was_stopped, answers_stop=answers)

    def wait() -> None:
        rank.beat(run_context.step, Phase.DONE)
        wait_for_others()

    after_import(_FOLLOWED)
    ending.finish, ending.wait, ending.give_up = finish, wait, run_context.write_out
    ending.begin_users_code()
    returned = None
    if entry["kind"] == "script" and rank.rank == 0:
        follow_prints()
    try:
        if entry["kind"] == "script" and entry.get("module"):
            _run_module(entry)
        elif entry["kind"] == "script":
            _run_script(entry, rank)
        else:
            sys.argv[:] = entry["argv"]
            returned = _call(rank)
    except SystemExit as error:
        if error.code not in (None, 0) or ending.is_forked:
            raise
    if entry["kind"] == "function" and not ending.is_forked:
        _keep(returned, rank, entry["name"])
        run_context.record_returned(returned)


def prepare_alone(
    rank: Rank, config: ExperimentConfig
) -> tuple[None, Callable[[], None]]:
    """Leave the rendezvous port to `init_process_group`, but to no other program."""
    # As under plain Python, torch is imported when the code asks for it, or never.
    port_socket = socket.socket()
    port_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if listener := os.environ.get("NBKIT_LISTEN_FD"):
        os.close(int(listener))
        # Two sockets may share a port as long as none of them listens; torch asks so.
        port_socket.bind((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
    return None, port_socket.close


def show_sources(rank: Rank, entry: dict[str, Any]) -> None:
    """Let tracebacks show lines as they were at the launch, of cells too."""
    edited = []
    for name, source in entry["sources"].items():
        stored = read_file(rank.paths.source / source["file"])
        is_module = source["file"].startswith("modules/")
        if is_module and Path(name).is_file() and read_file(Path(name)) != stored:
            edited.append(name)
            continue
        text = stored.decode(errors="replace")
        # Lines as Python counts them: a form feed ends none.
        lines = io.StringIO(text, newline=None).readlines()
        linecache.cache[name] = (len(text), None, lines, name)
    if edited and rank.rank == 0:
        sys.stderr.write(
            f"nbkit: edited after the launch: {', '.join(edited)}; the ranks import "
            "the new version, but the run folder contains the old version.\n"
        )


def _arguments(entry: dict[str, Any]) -> list[str]:
    """Return a script's arguments; in a study, with the number of its start."""
    repeat = os.environ.get("STUDY_REPEAT", "{repeat}")
    return [word.replace("{repeat}", repeat) for word in entry["argv"]]


def _run_script(entry: dict[str, Any], rank: Rank) -> None:
    """Run the copy that was kept, as if it were still in its place."""
    path = entry["path"]
    sys.argv[:] = [path, *_arguments(entry)]
    sys.path.insert(0, str(Path(path).parent))
    copy = rank.paths.source / entry["sources"][path]["file"]
    code = compile(read_file(copy), path, "exec", dont_inherit=True)
    exec(code, vars(_main_module(path)))


def _run_module(entry: dict[str, Any]) -> None:
    """Run a module as ``python -m`` does, which also looks in the working folder."""
    name = entry["module"]
    sys.path.insert(0, str(Path.cwd()))
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    code = None
    if spec is not None and isinstance(spec.loader, InspectLoader):
        code = spec.loader.get_code(spec.name)
    if spec is None or code is None:
        message = f"No executable module named {name!r}."
        raise ModuleNotFoundError(message)
    sys.argv[:] = [spec.origin or name, *_arguments(entry)]
    main = _main_module(spec.origin)
    # Children of multiprocessing import it by this name.
    main.__spec__, main.__package__ = spec, spec.parent
    exec(code, vars(main))


def _call(rank: Rank) -> Any:
    call, names = load_with_names(read_file(rank.paths.entry_pickle, None))
    # Pickle looks up by name what a cell has defined: to send it to another rank.
    main = _main_module(None)
    vars(main).update(names)
    # It has this name too where a child of multiprocessing launched the run.
    sys.modules["__mp_main__"] = main
    send_main_to_spawned()
    function, args, kwargs = call
    return function(*args, **kwargs)


def send_main_to_spawned() -> None:
    """Let multiprocessing send what ``__main__`` defines to children that it spawns."""
    # By itself it sends names, and lets the child execute the file of ``__main__``:
    # what a cell defines has none.
    ForkingPickler.reducer_override = _reduce_for_child  # type: ignore[attr-defined]


def _reduce_for_child(_: ForkingPickler, obj: Any) -> Any:
    from nbkit.store.pickling import MAIN, dumps

    is_definition = isinstance(obj, type | FunctionType) and obj.__module__ in MAIN
    # What is sent to a child later has been defined there.
    if not is_definition or get_spawning_popen() is None:
        return NotImplemented
    return _define, (dumps(obj).data,)


def _define(data: bytes) -> Any:
    value, names = load_with_names(data)
    main = sys.modules["__main__"]
    sys.modules.setdefault("__mp_main__", main)
    vars(main).update(names)
    send_main_to_spawned()
    return value


def _main_module(file: str | None) -> ModuleType:
    """Replace this worker's own module with a new one."""
    main = ModuleType("__main__")
    if file is not None:
        main.__file__ = file
    sys.modules["__main__"] = main
    return main


def _keep(value: Any, rank: Rank, name: str) -> None:
    """Write what a function returned, all or nothing."""
    from nbkit.store.pickling import dumps

    try:
        pickled = dumps(value).data
    except Exception as error:
        message = (
            f"{name}() returned a value of type {type(value).__name__}, which cannot "
            f"be pickled ({error}). Return numbers, text or tensors."
        )
        raise RunError(message) from error
    path = rank.paths.rank(rank.attempt, rank.rank).returned
    temporary = path.with_suffix(".tmp")
    try:
        temporary.unlink(missing_ok=True)
        temporary.touch(0o600)  # as the arguments, for the owner alone
        temporary.write_bytes(pickled)
        temporary.replace(path)
    except OSError as error:
        raise store_error(path, error) from error
