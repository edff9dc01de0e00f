"""What a launch makes of the place where the data lie, and of other systems."""

from __future__ import annotations

import errno
import os
import platform
from contextlib import suppress
from types import SimpleNamespace

import pytest

import nbkit
from nbkit.errors import ConfigError, LaunchError
from nbkit.launch import local
from nbkit.launch.code import command
from nbkit.launch.health import checks
from nbkit.launch.submit import absolute_weights, existing_data, refusals
from nbkit.store.paths import RunPaths
from nbkit.store.processes import ProcessIdentity, start_problem
from tests.waiting import wait_until


@pytest.mark.parametrize("name", ["synthetic", "photos", "cifar10", "imagenette"])
def test_existing_data_name(tmp_path, monkeypatch, name):
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)

    assert existing_data(name) == name
    assert existing_data(f"./{name}") == str(tmp_path / name)


def test_a_path_becomes_absolute(tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()
    (tmp_path / "labels.CSV").write_text("file\n")
    monkeypatch.chdir(tmp_path / "images")
    monkeypatch.setenv("HOME", str(tmp_path))

    assert existing_data(".") == existing_data("~/images") == str(tmp_path / "images")
    assert existing_data("../labels.CSV") == str(tmp_path / "labels.CSV")


@pytest.mark.parametrize("name", ["nowhere", "notes.txt", "nowhere.csv"])
def test_existing_data_refused(tmp_path, monkeypatch, name):
    (tmp_path / "notes.txt").write_text("no data")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError, match=f"data='{name}' is not a folder.*photos"):
        existing_data(name)


def test_launch_without_pidfd(tmp_path, monkeypatch):
    def refused(pid: int, flags: int = 0) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    monkeypatch.setattr(os, "pidfd_open", refused)

    with pytest.raises(LaunchError, match=r"pidfd_open.* Linux 5\.3 or newer"):
        nbkit.launch(model="resnet18", device="cpu")
    assert nbkit.runs() == []
    assert next(checks()).severity == "error"


def test_detach_early_exit(tmp_path, monkeypatch):
    def looked_for_late(pid: int) -> ProcessIdentity:
        with suppress(ProcessLookupError):
            supervisor = ProcessIdentity.of(pid)
            wait_until(lambda: supervisor.is_alive() is False, "its end")
        raise ProcessLookupError

    monkeypatch.setattr(local, "ProcessIdentity", SimpleNamespace(of=looked_for_late))
    paths = RunPaths(tmp_path / "r")

    with pytest.raises(LaunchError, match=r"printed: .*no-such-program: .*not found$"):
        local.detach(["no-such-program"], paths, tmp_path / "supervisor.log")
    with pytest.raises(LaunchError, match=r"exited early and printed: nothing$"):
        local.detach(["true"], paths, tmp_path / "other.log")


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("_DETACH", "echo 'Cannot fork' >&2; exit 2", "ulimit -u is .* increase this"),
        ("sys", SimpleNamespace(executable="x" * 200_000), "list too long.: unset the"),
    ],
)
def test_launch_start_problem(tmp_path, monkeypatch, part, value, words):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    monkeypatch.setattr(local if part == "_DETACH" else command, part, value)

    with pytest.raises(LaunchError, match=rf"^cannot start a process \(.*{words}"):
        nbkit.launch(print, device="cpu")
    assert nbkit.runs() == []


def test_start_problem_words():
    thread = RuntimeError("can't start new thread")
    fork = BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    assert "ulimit -u is" in str(start_problem(thread))
    assert "ulimit -u is" in str(start_problem(fork))
    assert start_problem(RuntimeError("x")) is start_problem(OSError(9, "x")) is None


def test_launch_on_another_system(tmp_path, monkeypatch):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    monkeypatch.setattr(platform, "system", lambda: "Darwin")

    with pytest.raises(
        LaunchError, match=r"not on Darwin\. .* Linux machine, or WSL 2"
    ):
        nbkit.launch(device="cpu")
    (refusal,) = refusals(nbkit.ExperimentConfig(device="cpu"))
    assert "Darwin" in str(refusal)
    assert nbkit.runs() == []


def test_existing_data_link_to_a_file_of_another_name(tmp_path):
    stored = tmp_path / "blobs" / "abc123"
    stored.parent.mkdir()
    stored.write_text("file,a\n")
    link = tmp_path / "snapshot" / "labels.csv"
    link.parent.mkdir()
    link.symlink_to(stored)

    assert existing_data(str(link)) == str(link)
    named = stored.with_name("labels.csv")
    named.write_text("file,a\n")
    link.unlink()
    link.symlink_to(named)
    assert existing_data(str(link)) == str(named)
    with pytest.raises(ConfigError, match="is not a folder or CSV file"):
        existing_data("a" * 300)


def test_absolute_weights(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["random", "pretrained", "20200101-000000-small-aaaa"]

    assert [*map(absolute_weights, names)] == names
    assert absolute_weights("a/best.pt") == str(tmp_path / "a" / "best.pt")
    config = nbkit.ExperimentConfig(weights="a/best.pt")
    study = nbkit.Study.create("w", {"a": config, "b": config.replace(seed=2)})
    assert study.arms["a"].weights == str(tmp_path / "a" / "best.pt")


def test_script_in_a_folder_that_does_not_exist(tmp_path):
    script = tmp_path / "train.py"
    script.touch()

    with pytest.raises(ConfigError, match="nowhere' does not exist"):
        nbkit.script(script, cwd=tmp_path / "nowhere")
