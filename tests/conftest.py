"""Rules for every test: nothing is left behind, and in CI nothing is skipped.

A training that a test runs to its end is finite.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pynvml
import pytest

from tests.finite_runs import MARKER, FiniteRuns
from tests.waiting import patient

pytest_plugins = [
    "tests.durations",
    "tests.slurm.one_cluster",
    "tests.without_processes",
]

# The tests that are found stay to the end: to look through them for garbage takes as
# long as half of finding them.
gc.disable()

# What a test starts inherits this variable, so that it is found even when it has left
# the tree of children. Launching removes names that begin with NBKIT_.
MARK = "TEST_SESSION_MARK"
os.environ[MARK] = uuid.uuid4().hex

# A suite that is a background job of a shell ignores interrupts, and what a program
# ignores, its children do. This has no effect either, and is not handed down.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, lambda number, frame: None)

# Tests side by side take the CPUs from each other. A thread that spins while it waits
# for another one, which is waiting for a CPU, makes a step take ninety times as long.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Whatever a test starts is spared torch's compiler, unless the test wants all of torch.
_FOLDERS = [str(Path(__file__).parent / "quick_torch"), os.environ.get("PYTHONPATH")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _FOLDERS))

# What torch and multiprocessing leave in the system's folder goes with the session;
# pytest's own folders stay, to be looked at. Each process has a folder of its own; the
# first one's holds those of pytest-xdist.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.gettempdir()
_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "nbkit-tests")
os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix=f"{_WORKER}-")
atexit.register(shutil.rmtree, os.environ["TMPDIR"], ignore_errors=True)

# A process that was told to end, or has written its last word, may take this long.
GRACE_SECONDS = 30.0

IN_CI = os.environ.get("CI", "").lower() not in ("", "0", "false")

# pytest names the running test in the first; torch notes its default in the second.
NOT_OURS = {"PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR"}


@pytest.fixture(autouse=True, scope="session")
def finite_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FiniteRuns]:
    """Note every temporary folder, where tests have their stores."""
    folders: list[Path] = []
    make = tmp_path_factory.mktemp

    def noted(basename: str, numbered: bool = True) -> Path:
        folders.append(make(basename, numbered))
        return folders[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tmp_path_factory, "mktemp", noted)
        yield FiniteRuns(folders)


@pytest.fixture(autouse=True, scope="module")
def trainings_of_file_are_finite(
    request: pytest.FixtureRequest, finite_runs: FiniteRuns
) -> Iterator[None]:
    """Check the trainings in stores of fixtures that several tests share."""
    yield
    excused = request.node.get_closest_marker(MARKER) is not None
    finite_runs.check(finite_runs.folders, excused=excused)


@pytest.fixture(autouse=True)
def trainings_of_test_are_finite(
    request: pytest.FixtureRequest, finite_runs: FiniteRuns
) -> Iterator[None]:
    """Check the trainings in a test's own folders, unless it is marked."""
    shared = len(finite_runs.folders)
    yield
    excused = request.node.get_closest_marker(MARKER) is not None
    own = finite_runs.folders[shared:]
    # What is left are the folders of fixtures that other tests use too.
    del finite_runs.folders[shared:]
    finite_runs.check(own, excused=excused)


@pytest.fixture(autouse=True, scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep leases of devices apart from those of whoever else uses this machine."""
    os.environ["NBKIT_POOL"] = str(tmp_path_factory.mktemp("pool") / "nbkit")


@pytest.fixture
def whole_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the ranks of this test be those of a user: see tests/quick_torch."""
    monkeypatch.setenv("WHOLE_TORCH", "1")


@pytest.fixture(autouse=True, scope="session")
def no_leaks_from_session(pool: None) -> Iterator[None]:
    """Fail the session if its fixtures leave something behind."""
    with nothing_left_behind():
        yield


@pytest.fixture(scope="session")
def lasting() -> set[int]:
    """Return where a fixture of many tests notes the ids of processes it has started.

    A server or a browser starts others at any time: a test is not blamed for them. When
    the fixture ends them, it takes their ids away; what is then left is a leak again.
    """
    return set()


@pytest.fixture(autouse=True)
def no_leaks_from_test(
    no_leaks_from_session: None, lasting: set[int]
) -> Iterator[None]:
    """Fail a test that leaves a process, a thread or an environment variable."""
    with nothing_left_behind(lasting):
        yield


@contextmanager
def nothing_left_behind(lasting: Collection[int] = ()) -> Iterator[None]:
    """Compare processes, threads and variables before and after; end what is new."""
    variables = _variables()
    threads = set(threading.enumerate())
    processes = _pids()
    yield
    leaks = [
        *_changed_variables(variables),
        *_new_threads(threads),
        *_new_processes(processes, lasting),
    ]
    if leaks:
        pytest.fail("left behind: " + "; ".join(leaks), pytrace=False)


def _variables() -> dict[str, str]:
    return {name: os.environ[name] for name in os.environ if name not in NOT_OURS}


def _changed_variables(before: dict[str, str]) -> list[str]:
    after = _variables()
    changed = sorted(dict(before.items() ^ after.items()))
    for name in changed:
        if name in before:
            os.environ[name] = before[name]
        else:
            del os.environ[name]
    return [f"environment variable {name}" for name in changed]


def _new_threads(before: set[threading.Thread]) -> list[str]:
    deadline = time.monotonic() + patient(GRACE_SECONDS)
    new = set(threading.enumerate()) - before
    for thread in new:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [f"thread {thread.name!r}" for thread in new if thread.is_alive()]


def _new_processes(before: set[int], lasting: Collection[int]) -> list[str]:
    deadline = time.monotonic() + patient(GRACE_SECONDS)
    new, seen = set[psutil.Process](), set(before)
    while True:
        pids = _pids()
        # What it is, a process says once: to ask again takes the tests' CPU time.
        new = {process for process in new if process.is_running()}
        new |= _ours(pids - seen, lasting)
        seen |= pids
        if not new or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    described = [_describe(process) for process in new]
    for process in new:
        # Only a child can be waited for; another's end is seen by its own parent.
        with suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
            process.kill()
            process.wait(patient(GRACE_SECONDS))
    return described


def _pids() -> set[int]:
    return set(psutil.pids())


def _ours(pids: set[int], lasting: Collection[int]) -> set[psutil.Process]:
    """Return which are children of this process, zombies too, or carry the mark."""
    mark = f"{MARK}={os.environ[MARK]}".encode()
    found = set()
    for pid in pids:
        # It may end meanwhile, or belong to another user.
        with suppress(OSError, psutil.Error):
            process = psutil.Process(pid)
            parents = {parent.pid for parent in process.parents()}
            if parents.isdisjoint(lasting) and pid not in lasting:
                # A zombie has no environment to read.
                is_child = os.getpid() in parents
                if is_child or mark in Path(f"/proc/{pid}/environ").read_bytes():
                    found.add(process)
    return {process for process in found if not _is_ours(process)}


def _is_ours(process: psutil.Process) -> bool:
    """Tell whether this is pytest, what started it, or serves it to its end."""
    if process.pid in _ANCESTORS:
        return True
    try:
        return "multiprocessing.resource_tracker" in " ".join(process.cmdline())
    except psutil.Error:
        return False


_ANCESTORS = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}


def _describe(process: psutil.Process) -> str:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return f"zombie {process.pid} ({process.name()})"
        return f"process {process.pid} ({' '.join(process.cmdline())[:200]})"
    except psutil.Error:
        return f"process {process.pid}"


def pytest_collection_finish() -> None:
    """Look for garbage among what tests make, from here on."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none."""
    needing = [item for item in items if item.get_closest_marker("gpu")]
    if needing and not _has_gpu():
        for item in needing:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


def _has_gpu() -> bool:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    try:
        return pynvml.nvmlDeviceGetCount() > 0
    finally:
        pynvml.nvmlShutdown()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Turn a skip into a failure in CI, where everything a test needs has to be."""
    report = yield
    if not item.get_closest_marker("gpu"):
        _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    """Do the same to a whole file that is skipped while it is imported."""
    report = yield
    _refuse_skip(report)
    return report


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr
        text = reason[2] if isinstance(reason, tuple) else str(reason)
        report.outcome = "failed"
        report.longrepr = f"a skip is a failure in CI: {text}"
