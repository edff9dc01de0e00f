"""A profile is a trace of a few steps, which do not count."""

from __future__ import annotations

import pytest
from torch.autograd.profiler_util import FunctionEventAvg

from nbkit.errors import ConfigError
from nbkit.review.causes import Diagnosis
from nbkit.store.paths import RunPaths
from nbkit.store.record import read_json
from nbkit.store.stored_runs import StoredRun
from nbkit.worker.profile import StepProfile, self_times
from tests.full_disk import files_no_larger_than
from tests.launch.conftest import plugins, small, store
from tests.worker.images import CPU

__all__ = ["plugins", "small", "store"]


@pytest.mark.parametrize(("asked", "rank"), [(False, 0), (True, 1)])
def test_other_ranks_and_runs_that_did_not_ask_write_nothing(
    asked, rank, small, tmp_path
):
    class Rank:
        paths = RunPaths(tmp_path / "run")

    Rank.rank = rank
    profile = StepProfile(Rank(), small(profile=asked, steps=20), CPU)

    for _ in range(20):
        profile.between_steps()

    assert profile.steps == (5 if asked else 0)
    assert StoredRun(Rank.paths.root).profile is None
    assert not Rank.paths.root.exists()


def test_a_trace_that_is_cut_short_is_thrown_away(small, tmp_path):
    class Rank:
        rank = 0
        paths = None

    profile = StepProfile(Rank(), small(profile=True, warmup_steps=0), CPU)
    profile.between_steps()
    profile.between_steps()

    profile.close()
    profile.close()


@pytest.fixture
def profiled(small, tmp_path):
    """Return what profiles nine steps; it returns the paths of their run."""

    class Rank:
        rank = 0
        paths = RunPaths(tmp_path)

    def profile():
        config = small(profile=True, warmup_steps=0, steps=9)
        steps = StepProfile(Rank(), config, CPU)
        for _ in range(9):
            steps.between_steps()
        return Rank.paths

    return profile


def test_profile_where_torch_has_other_names_for_times(profiled, monkeypatch):
    name = "self_cpu_time_total"

    def gone(_):
        raise AttributeError(name)

    other = property(gone, lambda _, value: None)
    monkeypatch.setattr(FunctionEventAvg, name, other, raising=False)

    paths = profiled()

    assert paths.profile.is_file()
    said = str(Diagnosis("run", [], profile=read_json(paths.operators)))
    assert "Profile of rank 0: torch " in said
    assert "(self_cpu_time_total); open the trace" in said


def test_profile_on_a_full_disk(profiled, capsys):
    with files_no_larger_than(40):
        paths = profiled()

    log = capsys.readouterr().out
    assert f"profile: {paths.profile} cannot be written (File too large)" in log
    assert "The run continues without the profiler." in log
    assert not list(paths.profile.parent.iterdir())


def averaged(key, *, on_gpu=False, device=0.0, cpu=0.0, region=False):
    """Return an entry as a profile averages them, with times in microseconds."""
    entry = FunctionEventAvg()
    entry.key, entry.count, entry.is_user_annotation = key, 6, region
    entry.self_device_time_total, entry.self_cpu_time_total = device, cpu
    entry.device_type = getattr(type(entry.device_type), "CUDA" if on_gpu else "CPU")
    return entry


def test_a_moment_of_a_gpu_counts_once():
    entries = [
        averaged("aten::convolution", device=2e6, cpu=3e5),
        averaged("sm90_xmma_fprop", on_gpu=True, device=2e6),
        averaged("Memcpy HtoD", on_gpu=True, device=1e6),
        averaged("Optimizer.step#SGD.step", cpu=1e5),
        averaged("Optimizer.step#SGD.step", on_gpu=True, device=4e6, region=True),
        averaged("ProfilerStep*", cpu=5e5),
        averaged("ProfilerStep*", on_gpu=True, device=9e6, region=True),
    ]

    assert self_times(entries, on_gpu=True) == [
        (2.0, "sm90_xmma_fprop", 6),
        (1.0, "Memcpy HtoD", 6),
    ]
    names = [name for seconds, name, _ in self_times(entries, on_gpu=False) if seconds]
    assert names == ["aten::convolution", "Optimizer.step#SGD.step"]


def test_a_profile_that_leaves_nothing_to_measure_is_refused(small):
    with pytest.raises(ConfigError, match=r"Use steps=8 or more"):
        small(profile=True, steps=7)
    with pytest.raises(ConfigError, match=r"task='train'"):
        small(profile=True, task="function")
    assert small(profile=True, steps=8).profile
