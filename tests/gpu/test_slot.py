"""What a slot says and how it ends; without a GPU."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from checks import SIZES, Check, Found, NotHereError, ShortError, State, losses
from checks import run_checks as run
from environment import torchvision_fits
from fast import beside
from table import exit_code, table

from nbkit import ExperimentConfig, Run
from nbkit.store.stored_runs import create_run_folder

HERE = Path(__file__).parent


def check(work, **fields):
    values = {"name": work.__name__, "proves": "it", "limit": "3 %", "work": work}
    return Check(**{**values, **fields})


def passes(slot):
    return Found("all well", {"loss": 1.0})


def falls_short(slot):
    message = "loss not finite at step 3"
    raise ShortError(message)


def breaks(slot):
    return {}["missing"]


def needs_more(slot):
    message = "DALI not installed"
    raise NotHereError(message)


def called(*arguments, python=(sys.executable,), **variables):
    """Call the slot as people do; no GPU is seen."""
    return subprocess.run(
        [*python, str(HERE / "slot.py"), *arguments],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **variables},
        capture_output=True,
        text=True,
    )


def test_without_a_gpu_it_says_so_in_one_line(tmp_path):
    done = called("right", "holds", "--folder", str(tmp_path / "out"))

    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("slot: make gpu needs an NVIDIA GPU: ")
    assert not (tmp_path / "out").exists()


def test_without_torch_it_says_what_to_install():
    done = called("right", python=(sys.executable, "-S"))

    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert "has no torch and no torchvision and no nbkit" in line
    assert "pip install 'torch>=2.7'" in line


def test_a_torchvision_of_another_torch_is_an_error_at_the_start(tmp_path):
    (tmp_path / "torchvision.py").write_text(
        "raise RuntimeError('operator torchvision::nms does not exist')"
    )

    done = called("right", PYTHONPATH=str(tmp_path))

    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert "torchvision::nms does not exist" in line
    assert "install the torchvision that belongs to torch" in line


@pytest.mark.parametrize(
    ("requirement", "torch", "fits"),
    [
        ("torch (==2.11.0)", "2.11.0+cu130", True),
        ("torch==2.11.0", "2.10.0", False),
        ("torch (==2.11.0)", "2.11.1", False),
        ("torch (>=2.14.0)", "2.15.0", True),
        ("torch>=2.14.0", "2.13.1+cu126", False),
        ("pillow", "2.7.0", True),
    ],
)
def test_torchvision_says_which_torch_it_belongs_to(requirement, torch, fits):
    assert torchvision_fits(["numpy", requirement], torch) is fits


def test_no_failure_hides_the_checks_after_it(slot):
    checks = [check(one) for one in (passes, falls_short, breaks, needs_more, passes)]
    two_gpus = check(passes, gpus=2)

    rows = run("right", [*checks, two_gpus], slot)

    assert [row["state"] for row in rows] == [
        *(State.PASSED, State.SHORT, State.SHORT, State.NOT_HERE, State.PASSED),
        State.NOT_HERE,
    ]
    assert rows[2]["found"] == "KeyError: 'missing'"
    assert "in breaks" in rows[2]["numbers"]["traceback"]
    assert rows[5]["found"] == "needs 2 GPUs, 1 here"


def test_what_is_known_is_written_after_every_check(slot):
    def reads(slot):
        before = json.loads((slot.folder / "right.json").read_bytes())
        assert before["complete"] is False
        return Found(before["checks"][0]["found"])

    rows = run("right", [check(passes), check(reads)], slot)

    written = json.loads((slot.folder / "right.json").read_bytes())
    assert rows[1]["found"] == "all well"
    assert written["checks"] == rows
    assert written["complete"] is True
    assert written["machine"]["gpus"][0]["name"] == "NVIDIA H200"


def test_checks_for_which_no_time_is_left_are_not_run(slot):
    slot.size = dataclasses.replace(slot.size, seconds=0)

    [row] = run("right", [check(passes)], slot)

    assert (row["state"], row["found"]) == (
        State.NOT_RUN,
        "the 0 s of this command are over",
    )
    assert exit_code([row]) == 1


@pytest.mark.parametrize(
    ("works", "code"),
    [
        ([passes, passes], 0),
        ([passes, needs_more], 0),
        ([passes, falls_short], 1),
        ([breaks, passes], 1),
        ([needs_more], 1),
        ([], 1),
    ],
)
def test_it_ends_with_0_only_if_all_that_can_be_checked_here_passed(slot, works, code):
    assert exit_code(run("right", [check(one) for one in works], slot)) == code


def test_the_table_names_what_fell_short_and_by_what_it_was_judged(slot):
    works = passes, falls_short, needs_more
    rows = run("right", [check(one) for one in works], slot)

    text = table("right", rows, slot.size, slot.machine)

    assert "NVIDIA H200, driver 580.159.04, torch 2.11.0, CUDA 13.0" in text
    assert "right, small size: resnet18, 64 px, batch 8" in text
    short = next(line for line in text.splitlines() if "falls_short" in line)
    assert short.startswith("fell short")
    assert "loss not finite at step 3 [limit: 3 %]" in short
    assert "1 passed, 1 fell short, 0 not run, 1 not on this machine." in text


@pytest.mark.parametrize(("size", "counts"), [("small", False), ("full", True)])
def test_only_the_full_size_counts_as_a_result(slot, size, counts):
    slot.size = SIZES[size]
    rows = run("right", [check(passes)], slot)

    text = table("right", rows, slot.size, slot.machine)

    assert ("this is a result" in text) is counts
    assert ("NO result" in text) is not counts
    written = json.loads((slot.folder / "right.json").read_bytes())
    assert written["counts_as_result"] is counts


@pytest.mark.parametrize("command", ["right", "holds", "fast", "node"])
def test_every_check_says_what_it_proves_and_by_what_it_is_judged(command):
    checks = __import__(command).CHECKS

    assert len({one.name for one in checks}) == len(checks)
    assert all(one.proves and one.limit for one in checks)


def test_a_loss_that_is_not_finite_falls_short(tmp_path, monkeypatch):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    paths = create_run_folder(ExperimentConfig(steps=3, warmup_steps=1))
    lines = [
        {"kind": "step", "attempt": 0, "step": step, "loss": loss}
        for step, loss in ((1, 7.0), (2, None), (3, 6.0))
    ]
    paths.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))

    with pytest.raises(ShortError, match="loss not finite at step 2 of 3"):
        losses(Run(paths.root))


def test_a_rate_stands_beside_its_bound_and_published_ones(slot):
    slot.size = SIZES["full"]
    slot.machine = {**slot.machine, "gpus": [{"name": "NVIDIA A100-SXM4-80GB"}]}
    config = slot.config(precision="fp16")

    found = beside(slot, config, 2000.0, 2**34)

    assert found.text.startswith("2,000 images/s; ")
    assert "of the eager bound" in found.text
    assert "16.0 GiB; published " in found.text
    assert 0 < found.numbers["share_of_bound"] < 1
    with pytest.raises(ShortError, match=r"1,000,000 images/s; .* of the eager bound"):
        beside(slot, config, 1e6, None)


def test_other_models_have_no_bound(slot):
    found = beside(slot, slot.config(), 50.0, None)

    assert found.text == "50 images/s"
    assert found.numbers["share_of_bound"] is None
