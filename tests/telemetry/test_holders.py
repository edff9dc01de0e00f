"""Who holds a GPU: kernels, runs and strangers, told apart among real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from nbkit.telemetry import holders as holders_module
from nbkit.telemetry.holders import HolderFinder, Kernel, ReportedRun
from nbkit.telemetry.processes import LocalProcess, Parent, parent_of
from nbkit.telemetry.sample import GpuProcess

MARKER = "RUN_MARKER"

# A process that starts another, which starts a third; all wait for the end of stdin.
FAMILY = """
import os, subprocess, sys
depth = int(sys.argv[1])
print(os.getpid(), flush=True)
if depth:
    subprocess.run([sys.executable, "-c", sys.argv[2], str(depth - 1), sys.argv[2]])
else:
    sys.stdin.read()
"""

# As a process with a CUDA context does, it maps a file of this name.
CUDA = """
import mmap, sys
with open("libcuda.so.1", "rb") as file:
    library = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    print(flush=True)
    sys.stdin.read()
"""


@contextmanager
def family(depth=0, **environment):
    """Run a process with descendants one below the other; yield their pids."""
    with subprocess.Popen(
        [sys.executable, "-c", FAMILY, str(depth), FAMILY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **environment},
    ) as process:
        yield [int(process.stdout.readline()) for _ in range(depth + 1)]
        process.stdin.close()


@contextmanager
def cuda_process(folder, *words):
    """Run a process that can be seen to use CUDA; yield its pid."""
    (folder / "libcuda.so.1").write_bytes(b"library")
    (folder / "train.py").write_text(CUDA)
    with subprocess.Popen(
        [sys.executable, "train.py", *words],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        process.stdout.readline()
        yield process.pid
        process.stdin.close()


def find(finder, *pids, uuid="GPU-a", **options):
    held = [GpuProcess(pid, 2**30) for pid in pids]
    found, memory = finder.find(uuid, held, **options)
    assert found is not None
    assert len(memory) == len(found)
    return found


def test_holder_is_the_nearest_kernel_above_a_process():
    finder = HolderFinder(MARKER, host_pids=True)
    with family(3) as (outer, inner, child, grandchild):
        kernel = Kernel("inner", inner, "Python 3", "a/b.ipynb", 12.5)
        finder.set_kernels([Kernel("outer", outer), kernel])
        holders = find(finder, outer, inner, child, grandchild)

    by_pid = {holder["pid"]: holder for holder in holders}
    ids = {pid: holder["kernel_id"] for pid, holder in by_pid.items()}
    assert ids == {outer: "outer", **dict.fromkeys((inner, child, grandchild), "inner")}
    holder = by_pid[grandchild]
    assert (holder["kind"], holder["path"]) == ("kernel", "a/b.ipynb")
    assert (holder["name"], holder["idle_since"]) == ("Python 3", 12.5)
    assert holder["own"] is True
    assert holder["start_ticks"] > 0
    assert holder["reported_by"] == "driver"


def test_a_worker_of_a_rank_belongs_to_the_run():
    finder = HolderFinder(MARKER, host_pids=True)
    with family(1) as (rank, worker):
        finder.set_runs([ReportedRun("r1", "resnet50, 8 GPUs", (), (rank,), "a.ipynb")])
        (holder,) = find(finder, worker)

    assert (holder["kind"], holder["run_id"]) == ("run", "r1")
    assert (holder["name"], holder["path"]) == ("resnet50, 8 GPUs", "a.ipynb")


def test_the_marker_of_a_run_counts_more_than_the_kernel_that_started_it():
    finder = HolderFinder(MARKER, host_pids=True)
    with family(1, **{MARKER: "r1"}) as (kernel, rank):
        finder.set_kernels([Kernel("k1", kernel)])
        finder.set_runs([ReportedRun("r1", "vgg16")])
        (holder,) = find(finder, rank)

    assert (holder["kind"], holder["run_id"], holder["name"]) == ("run", "r1", "vgg16")
    assert holder["kernel_id"] is None


def test_a_run_that_was_not_told_is_known_by_its_marker_alone():
    finder = HolderFinder(MARKER, host_pids=True)
    with family(**{MARKER: "r9"}) as (rank,):
        (holder,) = find(finder, rank)

    assert (holder["kind"], holder["run_id"], holder["name"]) == ("run", "r9", None)


def test_a_stranger_is_outside_with_what_may_be_seen(tmp_path):
    finder = HolderFinder(MARKER, host_pids=True)
    with cuda_process(tmp_path, "--epochs", "3", "\u202eevil") as pid:
        (holder,) = find(finder, pid)

    assert holder["kind"] == "outside"
    assert holder["command"].endswith(r"train.py --epochs 3 \u202eevil")
    assert holder["user"] is not None
    assert (holder["kernel_id"], holder["run_id"], holder["path"]) == (None,) * 3


def test_a_pid_that_does_not_exist_here_is_outside_and_nameless():
    with family() as (gone,):
        pass
    (holder,) = find(HolderFinder(host_pids=True), gone)

    assert (holder["kind"], holder["pid"], holder["own"]) == ("outside", gone, False)
    assert (holder["user"], holder["command"], holder["start_ticks"]) == (None,) * 3


def test_holders_whose_pid_the_driver_hides_are_outside_and_come_last(tmp_path):
    with cuda_process(tmp_path) as pid:
        found, memory = HolderFinder(host_pids=True).find(
            "GPU-a", [GpuProcess(None, 1), GpuProcess(pid, 2), GpuProcess(None, 3)]
        )

    assert [holder["pid"] for holder in found] == [pid, None, None]
    assert [holder["user"] is None for holder in found] == [False, True, True]
    assert memory == [2, 1, 3]


def test_a_kernel_that_is_told_later_is_found():
    finder = HolderFinder(host_pids=True)
    with family(1) as (kernel, child):
        before = find(finder, child)[0]["kind"]
        finder.set_kernels([Kernel("k1", kernel)])
        during = find(finder, child)[0]["kind"]
        finder.set_kernels([])
        after = find(finder, child)[0]["kind"]

    assert (before, during, after) == ("outside", "kernel", "outside")


def test_a_pid_that_is_used_again_is_not_taken_for_the_kernel(monkeypatch):
    finder = HolderFinder(host_pids=True)
    with family(1) as (kernel, child):
        finder.set_kernels([Kernel("k1", kernel)])
        real = parent_of(kernel)

        def again(pid):
            if pid == kernel:
                return Parent(real.parent_pid, real.start_ticks - 1)
            return parent_of(pid)

        monkeypatch.setattr(holders_module, "parent_of", again)
        (holder,) = find(finder, child)
        finder.set_kernels([Kernel("k1", kernel)])
        (still,) = find(finder, child)

    assert holder["kind"] == still["kind"] == "outside"


def test_a_parent_that_is_younger_than_its_child_is_somebody_else(monkeypatch):
    finder = HolderFinder(host_pids=True)
    with family(1) as (kernel, child):
        young = Parent(1, parent_of(child).start_ticks + 1)
        monkeypatch.setattr(
            holders_module,
            "parent_of",
            lambda pid: young if pid == kernel else parent_of(pid),
        )
        finder.set_kernels([Kernel("k1", kernel)])
        (holder,) = find(finder, child)

    assert holder["kind"] == "outside"


def test_commands_of_others_are_hidden_only_if_asked(monkeypatch, tmp_path):
    finder = HolderFinder(host_pids=True)
    with cuda_process(tmp_path) as pid:
        own = find(finder, pid)[0]
        # From now on, this process is somebody else.
        uid = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: uid + 1)
        finder.forget_all_but([])
        hidden = find(finder, pid)[0]
        finder.hide_commands_of_others = False
        shown = find(finder, pid)[0]

    assert own["own"]
    assert own["command"].endswith("train.py")
    assert not hidden["own"]
    assert hidden["command"] is None
    assert hidden["user"] == own["user"]
    assert shown["command"] == own["command"]


# In a container with pids of its own, the driver's may mean somebody else


def test_holder_in_a_container_uses_cuda(tmp_path):
    finder = HolderFinder(host_pids=False)
    with family() as (without,), cuda_process(tmp_path) as user:
        kernels = [Kernel("k1", without, path="a.ipynb"), Kernel("k2", user, path="b")]
        finder.set_kernels(kernels)
        (outside,), (holder,) = find(finder, without), find(finder, user)

    assert outside["kind"] == "outside"
    assert (outside["user"], outside["command"], outside["path"]) == (None,) * 3
    assert (holder["kind"], holder["path"]) == ("kernel", "b")


def test_in_a_container_a_rank_is_not_named_on_a_gpu_that_its_run_does_not_use(
    tmp_path,
):
    finder = HolderFinder(host_pids=False)
    with cuda_process(tmp_path) as rank:
        finder.set_runs([ReportedRun("r1", devices=("GPU-a",), pids=(rank,))])
        (here,) = find(finder, rank, uuid="GPU-a")
        (there,) = find(finder, rank, uuid="GPU-b")

    assert (here["kind"], there["kind"]) == ("run", "outside")


def test_a_run_reports_itself_where_the_driver_names_none_of_its_processes():
    finder = HolderFinder(host_pids=False)
    with family() as (rank,):
        finder.set_runs([ReportedRun("r1", "vgg16", ("GPU-a",), (rank,), "a.ipynb")])
        found, memory = finder.find("GPU-a", [GpuProcess(4_194_000, 5)])
        nothing_told, _ = finder.find("GPU-a", None)
        elsewhere, _ = finder.find("GPU-b", [])

    assert found is not None
    foreign, run = found
    assert (foreign["kind"], foreign["pid"]) == ("outside", 4_194_000)
    assert (run["kind"], run["pid"], run["reported_by"]) == ("run", None, "run")
    assert (run["run_id"], run["name"], run["path"]) == ("r1", "vgg16", "a.ipynb")
    assert run["own"] is True
    assert memory == [5, None]
    assert nothing_told == [run]
    assert elsewhere == []


def test_a_run_on_an_instance_is_found_on_the_gpu_that_contains_it(tmp_path):
    finder = HolderFinder(MARKER, host_pids=False)
    with cuda_process(tmp_path) as rank:
        finder.set_runs([ReportedRun("r1", devices=("MIG-b",), pids=(rank,))])
        held = [GpuProcess(rank, 5, "MIG-b")]
        found, _ = finder.find("GPU-a", held, instances=("MIG-a", "MIG-b"))
        reported, _ = finder.find("GPU-a", None, instances=("MIG-a", "MIG-b"))
        elsewhere, _ = finder.find("GPU-b", [], instances=("MIG-c",))

    (named,), (told,) = found or [], reported or []
    assert named["kind"] == "run"
    assert (named["run_id"], named["reported_by"]) == ("r1", "driver")
    assert (told["run_id"], told["reported_by"]) == ("r1", "run")
    assert named["mig_uuid"] == told["mig_uuid"] == "MIG-b"
    assert elsewhere == []


def test_holders_are_unknown_where_neither_driver_nor_run_tells():
    assert HolderFinder().find("GPU-a", None) == (None, [])


def test_pids_of_another_machine_are_looked_up_nowhere():
    finder = HolderFinder(host_pids=True)
    told = {os.getpid(): {"user": "ann", "path": "demo.ipynb"}}
    finder.set_kernels([Kernel("k1", os.getpid())])

    (holder,) = find(finder, os.getpid(), pids_are_here=False, reported_holders=told)

    assert (holder["kind"], holder["kernel_id"]) == ("outside", None)
    assert (holder["user"], holder["path"]) == ("ann", "demo.ipynb")


@pytest.mark.parametrize("pid", [1, os.getpid()], ids=["first", "own"])
def test_a_process_that_cannot_be_proved_is_never_named_after_a_kernel(pid):
    finder = HolderFinder(host_pids=True)
    with family() as (kernel,):
        finder.set_kernels([Kernel("k1", kernel)])
        (holder,) = find(finder, pid)

    assert holder["kind"] == "outside"


def test_a_file_that_is_closed_meanwhile_does_not_hide_whether_cuda_is_used(
    monkeypatch,
):
    def readlink(path):
        raise FileNotFoundError(path)

    with family() as (pid,):
        monkeypatch.setattr(os, "readlink", readlink)
        uses_cuda = LocalProcess.of(pid, 0).uses_cuda()

    assert uses_cuda is False
