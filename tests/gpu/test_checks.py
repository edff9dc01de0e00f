"""How the checks of a slot judge what they find; without a GPU."""

from __future__ import annotations

import gzip
import json
from types import SimpleNamespace

import fast
import node
import nvidia_smi
import pytest
import right
from checks import SIZES, Check, Found, NotHereError, ShortError, State, compare
from checks import run_checks as run
from environment import default_precision
from kit import _README
from programs import require_equal_weights

from nbkit.findings import Finding

READ = {
    "gpu_utilization_percent": 98.0,
    "memory_used_mib": 40_000.0,
    "power_watts": 600.0,
    "sm_clock_mhz": 1755.0,
    "temperature_celsius": 60.0,
}


@pytest.mark.parametrize(
    ("capability", "precision"),
    [("7.0", "fp16"), ("7.5", "fp16"), ("8.0", "bf16"), ("10.0", "bf16")],
)
def test_checks_train_in_bf16_where_the_gpu_has_it(capability, precision, slot):
    devices = [
        {"uuid": "GPU-0", "compute_capability": "9.0"},
        {"uuid": "GPU-1", "compute_capability": capability},
    ]
    slot.machine = {
        **slot.machine,
        "precision": default_precision(devices, slot.gpus[0]["uuid"]),
    }

    assert slot.config().precision == precision


@pytest.mark.parametrize("command", [right, fast, node])
def test_checks_of_bf16_are_not_for_a_gpu_without_it(command, slot):
    gpus = [{"name": "Tesla V100", "uuid": f"GPU-{one}"} for one in range(2)]
    slot.machine = {**slot.machine, "gpus": gpus, "precision": "fp16"}
    checks = [check for check in command.CHECKS if "bf16" in check.name]

    rows = run("right", checks, slot)

    assert rows
    assert {row["state"] for row in rows} == {State.NOT_HERE}
    assert "Tesla V100 has no bf16" in rows[0]["found"]


@pytest.mark.parametrize("images", [True, False])
def test_images_are_drawn_once_before_the_clock_starts(images, slot):
    drawn = []
    wanted = [None] if images else []

    def reads(slot):
        assert drawn == wanted
        return Found("read")

    check = Check("reads", "it", "it", reads, images=images)

    rows = run("right", [check] * 2, slot, draw=lambda: drawn.append(None))

    assert [row["state"] for row in rows] == [State.PASSED] * 2


@pytest.mark.parametrize(
    ("size", "state"), [("full", State.SHORT), ("small", State.NOT_HERE)]
)
def test_a_trace_without_kernels_falls_short_at_full_size(
    size, state, slot, tmp_path, monkeypatch
):
    trace = tmp_path / "trace.json.gz"
    with gzip.open(trace, "wt") as file:
        json.dump({"traceEvents": [{"cat": "cpu_op"}]}, file)
    traced = SimpleNamespace(
        metrics=lambda: [{"step": 1, "loss": 7.0}],
        worker={"weights_finite": True},
        profile=trace,
        paths=SimpleNamespace(operators=trace),
    )
    monkeypatch.setattr(slot, "finish", lambda config: traced)
    slot.size = SIZES[size]
    [check] = [check for check in right.CHECKS if check.name == "profile"]

    [row] = run("right", [check], slot)

    assert (row["state"], row["found"][:33]) == (
        state,
        "1 events traced, no kernel: CUPTI",
    )


def test_an_update_skipped_in_one_of_two_trainings_moves_the_other_by_a_step():
    plain = {"losses": [7.0, 7.0, 6.0, 5.0], "skipped": [1]}

    assert right.compare_with_plain([7.0, 6.0, 5.0, 4.0], [], plain) == 0
    with pytest.raises(ShortError, match="after as many updates"):
        right.compare_with_plain([7.0, 5.0, 4.0, 3.0], [], plain)
    with pytest.raises(ShortError, match=r"skipped at steps \[1, 2, 3\]"):
        right.compare_with_plain([7.0, 7.0, 7.0, 7.0], [1, 2, 3], plain)


def test_a_training_without_a_loss_scale_skips_no_update():
    lines = [{"step": 1, "loss": 7.0}, {"step": 2, "loss": 7.0, "update_skipped": True}]

    assert right._skipped(SimpleNamespace(metrics=lambda: lines)) == [2]


def test_losses_are_compared_by_parts_of_them_and_below_1_by_parts_of_1():
    assert compare([7.07, 0.11], [7.0, 0.1], 0.03, "fp32") == pytest.approx(0.01)
    with pytest.raises(ShortError, match=r"step 2 is 0.1400, that of fp32 0.1000: 4.0"):
        compare([7.0, 0.14], [7.0, 0.1], 0.03, "fp32")


def test_doctor_is_asked_for_what_trainings_need_alone(slot, monkeypatch):
    told = [
        ("Training", Finding("PyTorch", "ok", "2.11.0")),
        ("Starting runs", Finding("Slurm", "error", "does not answer")),
        ("Store", Finding("Store", "error", "slow")),
    ]
    monkeypatch.setattr(right, "doctor", lambda limit: iter(told))

    assert right.ask_doctor(slot).text == "1 findings, 0 warnings"
    told.append(("This machine", Finding("GPUs", "error", "fallen off the bus")))
    with pytest.raises(ShortError, match="GPUs: fallen off the bus"):
        right.ask_doctor(slot)


def test_replicas_with_other_weights_fall_short():
    assert require_equal_weights([{"weights_sha256": "a"}] * 2) == ["a", "a"]
    with pytest.raises(ShortError, match=r"ranks \[1\] have other weights"):
        require_equal_weights([{"weights_sha256": "a"}, {"weights_sha256": "b"}])


@pytest.mark.parametrize("name", READ)
def test_what_nvidia_smi_tells_and_nbkit_does_not_falls_short(name):
    unknown = READ | {name: None}

    _, _, wrong = nvidia_smi.compare_rounds([unknown] * 2, [READ] * 2)
    _, _, once = nvidia_smi.compare_rounds([unknown, READ], [READ, unknown])

    assert wrong[0].startswith(f"{name} unknown, nvidia-smi ")
    assert once == []


@pytest.mark.parametrize("name", READ)
def test_what_nvidia_smi_tells_otherwise_falls_short(name):
    other = READ | {name: READ[name] * 0.6}

    _, _, wrong = nvidia_smi.compare_rounds([other], [READ])

    assert wrong == [f"{name} {READ[name] * 0.6:.0f}, nvidia-smi {READ[name]:.0f}"]


def test_an_nvidia_smi_that_hangs_falls_short(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexec tail -f /dev/null\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(nvidia_smi, "_LIMIT_SECONDS", 0.1)

    with pytest.raises(ShortError, match=r"does not answer within 0\.1 s"):
        nvidia_smi._pids("GPU-1")


def test_dali_that_is_not_installed_is_not_on_this_machine(slot, monkeypatch):
    monkeypatch.setattr("photographs.installed", lambda package: None)

    with pytest.raises(NotHereError, match="nvidia-dali-cuda120"):
        right.feeds_without_waiting(slot)


def test_a_batch_that_no_gpu_holds_has_tensors_that_kernels_can_count():
    largest = SIZES["full"].too_large_batch_size * 64 * 112 * 112

    assert largest < 2**31


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_a_run_that_is_killed_after_a_checkpoint_has_steps_left(size):
    assert 2 * size.checkpoint_period_steps < size.long_steps


def test_a_kit_says_for_which_processors_it_is():
    assert "x86-64" in _README
