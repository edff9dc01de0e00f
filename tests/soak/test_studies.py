"""Studies that are interrupted, taken over, repeated, estimated or not finite."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

import nbkit
from nbkit.cli.main import main
from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, NotEnoughDataError, RunError, RunFailedError
from nbkit.questions import machines
from nbkit.questions.inference.planning import InferencePlan
from nbkit.questions.inference.start import prepare
from nbkit.questions.machines.planning import HERE
from nbkit.questions.study_report import make
from nbkit.server.run_table import StoredRunTable
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import RunState
from nbkit.studies.parameters import Parameters
from nbkit.studies.study import Study
from tests.questions.conftest import cluster, drive, plugins, small, store
from tests.questions.test_machines import parameters
from tests.reproduction.test_repetition import checkout, launch
from tests.soak.test_waiting_runs import forget
from tests.studies.test_places import (
    TOGETHER,
    arms,
    check_kill_and_failure,
    devices,
    eight_gpus,
)
from tests.studies.test_programs import train
from tests.telemetry.conftest import no_setting
from tests.waiting import patient, wait_until

__all__ = [
    "arms",
    "checkout",
    "cluster",
    "drive",
    "eight_gpus",
    "no_setting",
    "plugins",
    "small",
    "store",
    "train",
]


RESUME = """
import sys, nbkit
study = nbkit.Study.open(sys.argv[1])
print("ready", flush=True)
input()
try:
    study.resume(progress=False, force=True)
except nbkit.errors.RunError as error:
    print(error)
"""


def test_a_study_of_a_host_that_is_gone_is_taken_over_by_one_alone(small):
    study = nbkit.Study.create("demo", {"a": small(steps=2, warmup_steps=1)})
    content = json.loads(study.paths.study.read_text())
    other = {**ProcessIdentity.of().to_dict(), "host": "gone", "boot_id": "other"}
    study.paths.study.write_text(json.dumps({**content, "executor": other}))

    with pytest.raises(RunError, match=r"on gone\. .* call resume\(force=True\)\.$"):
        study.resume(progress=False)
    argv = [sys.executable, "-c", RESUME, study.study_id]
    with (
        subprocess.Popen(argv, stdin=-1, stdout=-1, text=True) as one,
        subprocess.Popen(argv, stdin=-1, stdout=-1, text=True) as two,
    ):
        for process in (one, two):
            assert process.stdout.readline() == "ready\n"
        for process in (one, two):
            process.stdin.write("\n")
            process.stdin.flush()
        said = sorted(process.stdout.read() for process in (one, two))

    assert said[0] == ""
    assert "being executed by " in said[1]
    assert study.missing == []
    assert [len(runs) for runs in study.runs_by_arm().values()] == [1]
    files = {path.name for path in study.paths.root.iterdir()}
    assert files == {"study.json", "progress.json"}


def test_a_run_of_a_host_that_may_be_there_is_not_run_again(small):
    study = nbkit.Study.create("demo", {"a": small(steps=2, warmup_steps=1)})
    (run,) = study.run(progress=False).runs_by_arm()["a"]
    other = {**ProcessIdentity.of().to_dict(), "host": "gone", "boot_id": "other"}
    for path, changes in (
        (study.paths.study, {"executor": other}),
        (run.paths.submission, {"supervisor": other}),
        (run.paths.record, {"supervisor": other, "state": "running"}),
    ):
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    with pytest.raises(RunError, match=r"is running .* \(5 minutes without"):
        study.resume(progress=False, force=True)
    forget(run)
    study.resume(progress=False, force=True)

    (again,) = study.runs_by_arm()["a"]
    assert again.run_id != run.run_id


def both_in_a_step():
    """Return the two runs of the store once both have done a step."""
    runs = nbkit.runs()
    return runs if len(runs) == 2 and all(run.metrics() for run in runs) else None


def test_an_interrupt_stops_every_run_that_was_started_at_once(small):
    slow = small(gpus=1, model="slow", steps=100_000)
    study = nbkit.Study.create("demo", {"a": slow, "b": slow}, concurrent=[["a", "b"]])
    code = "import nbkit, sys; nbkit.Study.open(sys.argv[1]).run(progress=False)"
    with subprocess.Popen(
        [sys.executable, "-c", code, study.study_id], stderr=subprocess.PIPE, text=True
    ) as executor:
        runs = wait_until(both_in_a_step, "a step of both runs", 120)
        executor.send_signal(signal.SIGINT)
        _, errors = executor.communicate(timeout=patient(120))

    assert "KeyboardInterrupt" in errors
    assert [run.state for run in runs] == [RunState.STOPPED] * 2
    assert {run.cause["by"] for run in runs} == {"interrupt"}
    assert json.loads(study.paths.study.read_text())["executor"] is None


@pytest.mark.waiting
def test_trainings_on_images_run_side_by_side_if_asked(small, eight_gpus, monkeypatch):
    monkeypatch.setenv("BAD_RANK", "0")
    fields = {"device": "replay", "oversubscribe": False, "steps": 3}
    arms = {"a": small(**fields), "b": small(**fields, batch_size_per_gpu=2)}
    study = nbkit.Study.create("rates", arms, repeats=2, parallel=2)

    study.run(progress=False)

    by_arm = study.runs_by_arm().values()
    used = [[str(devices(run)) for run in runs] for runs in by_arm]
    assert used[0] == used[1]
    assert len({*used[0]}) == 2
    # Without a metric, a failure ends the study.
    arms["b"] = small(**fields, model="raises")
    failing = nbkit.Study.create("rates", arms, repeats=2, parallel=2)
    with pytest.raises(RunFailedError, match="the bad rank raises") as error:
        failing.run(progress=False)
    assert failing.study_id in error.value.__notes__[0]


@pytest.mark.waiting
def test_study_on_eight_gpus_survives_a_kill_and_a_failure(arms):
    check_kill_and_failure(arms, places=8)


def test_study_with_a_failed_start_needs_five_for_a_verdict(arms):
    study = nbkit.Study.create(
        "seeds", arms(gate=1), metric="error", better="lower", repeats=4, parallel=1
    )
    study.run(progress=False)

    answer = make(study).answer
    assert "Not enough runs for a verdict (5 per arm needed)" in answer
    assert [slot.repeat for slot in study.missing] == [2]


@pytest.mark.nonfinite
def test_a_training_at_a_far_too_high_learning_rate_is_told_everywhere(
    small, store, capsys
):
    usual = small(gpus=1, steps=6, warmup_steps=1)
    wild = usual.replace(learning_rate=1e38)
    arms = {
        "ended": wild.replace(stop_on_nonfinite=True),
        "usual": usual,
        "wild": wild,
    }

    study = Study.create("rates", arms).run(progress=False)
    runs = study.runs_by_arm(diverged=True)
    [ended], [run] = runs["ended"], runs["wild"]
    said = str(run.nonfinite)
    main(["show", run.run_id])
    main(["runs"])
    printed = capsys.readouterr().out
    rows = {row["run_id"]: row for row in StoredRunTable(None).poll([]).rows}
    report = make(study)

    assert said.startswith("loss not finite between step ")
    assert f"finished; {said}" in printed
    assert f"finished, {said}" in printed
    assert f"failed, {said}" in printed
    assert repr(run) == f"<Run {run.run_id} finished, {said}>"
    assert repr(ended) == f"<Run {ended.run_id} failed, {said}>"
    assert [rows[one.run_id]["nonfinite"] for one in (run, ended)] == [said, said]
    found = [one.evidence for one in nbkit.audit(run) if one.code == "divergence"]
    assert found == [said]
    told = {one.subject for one in nbkit.audit(study) if one.code == "divergence"}
    assert len(told) == 2
    assert repr(study).endswith("2 of 3 runs finished, 1 not finite>")
    assert report.answer.startswith(f"Diverged: ended ({said}), wild ({said}). ")
    assert "usual trains" in report.answer
    assert [row[5] for row in report.tables[0].rows] == ["baseline", said]
    # The arm that was ended is a result, too.
    assert study.missing == []
    assert [len(many) for many in study.runs_by_arm().values()] == [0, 1, 1]


def planned():
    """Return a plan of small runs with synthetic images."""
    base = ExperimentConfig(
        task="inference",
        model="tiny",
        device="cpu",
        image_size=32,
        tensorboard=False,
        compile=True,
    )
    return InferencePlan(
        arms={one: base.replace(precision=one) for one in ("fp32", "bf16", "int8")},
        training=None,
        control=None,
        repeats=1,
        parameters=Parameters({}, {}),
    )


def test_a_format_that_this_device_has_not_is_named_and_the_rest_goes_on(capsys):
    # torch.compile cannot take in the INT8 kernels of a CPU.
    ready = prepare(planned())

    assert list(ready.arms) == ["fp32", "bf16"]
    assert (
        "compile=True with precision='int8' on a CPU"
        in ready.facts["unavailable"]["int8"]
    )
    assert "[1/1] int8 once: failed" in capsys.readouterr().out

    alone = {arm: one for arm, one in planned().arms.items() if arm != "bf16"}
    with pytest.raises(ConfigError, match=r"Only fp32 remains\. Add a format"):
        prepare(replace(planned(), arms=alone))


def test_a_dead_executor_blocks_nobody_and_who_looks_on_sees_the_next_one(small):
    viewer = nbkit.Study.create("demo", {"a": small(steps=2, warmup_steps=1)})
    assert len(viewer.missing) == 1
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) as process:
        gone = ProcessIdentity.of(process.pid).to_dict()
        process.kill()
    content = json.loads(viewer.paths.study.read_text())
    viewer.paths.study.write_text(json.dumps({**content, "executor": gone}))

    nbkit.Study.open(viewer.study_id).run(progress=False)

    assert viewer.missing == []
    assert [len(runs) for runs in viewer.runs_by_arm().values()] == [1]
    assert "1 of 1 run finished" in repr(viewer)


def test_a_process_whose_study_was_taken_over_starts_no_more_runs(small):
    study = nbkit.Study.create("demo", {"a": small(steps=2, warmup_steps=1)}, repeats=2)
    other = ProcessIdentity.of(1).to_dict()

    def take_over(run, label):
        content = json.loads(study.paths.study.read_text())
        study.paths.study.write_text(json.dumps({**content, "executor": other}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "nbkit.studies.progress.Progress.end", lambda _, *a: take_over(*a)
        )
        with pytest.raises(RunError, match="is being executed by another"):
            study.run(progress=False)

    content = json.loads(study.paths.study.read_text())
    assert content["executor"] == other
    assert len(content["runs"]) == len(list(nbkit.runs())) == 1


def test_this_machine_is_measured_with_the_runs_of_the_other_one(small, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    other = nbkit.launch(small(gpus=1, oversubscribe=False)).wait()
    bundles = [other.run_id]
    plan = machines.plan(parameters(bundles=bundles, measure=True, repeats=1))

    study = machines.measure(plan)
    result = machines.result(plan, study)

    assert (plan.a, plan.b) == (other.record["machine"]["hostname"], HERE)
    [arm] = result.matched
    assert (arm.ratio.n_a, arm.ratio.n_b) == (1, 1)
    assert arm.ratio.verdict == "not enough runs"
    assert "A verdict requires n=5 on both" in result.report().tables[0].to_text()
    assert result.report().result["study_id"] == study.study_id
    assert {run.config.model for run in nbkit.runs()} == {"tiny"}


def test_study_starts_an_arm_no_more_that_is_much_worse(train, small):
    arms = {
        name: nbkit.script(train, [loss], device="cpu", gpus=1)
        for name, loss in (("base", "0.5"), ("new", "0.9"))
    }
    study = nbkit.Study.create(
        "loss", arms, metric="val_loss", better="lower", repeats=5, discard_floors=5
    )

    study.run(progress=False)

    assert [len(runs) for runs in study.runs_by_arm().values()] == [2, 2]
    assert study.missing == []
    made = make(study)
    assert made.answer.startswith("new is worse than base: val_loss")
    assert "n=2" in made.answer
    [note] = [note for note in made.tables[0].notes if "noise floors" in note]
    assert note.startswith("new: discarded, worse than base by ")
    assert note.endswith("noise floors (limit 5).")
    assert study.metric is not None
    values = [[study.metric.value(r) for r in a] for a in study.runs_by_arm().values()]
    assert f"by {study.metric.floors_worse(values[1], values[0]):.0f} noise" in note


@pytest.mark.waiting
def test_starts_side_by_side_are_stopped_by_one_without_the_metric(tmp_path, arms):
    silent = tmp_path / "silent.py"
    silent.write_text(
        TOGETHER.rpartition("if arm")[0].replace("< gate", "< 3 * repeat")
    )
    started = {
        arm: nbkit.script(silent, [arm, tmp_path / "begun", 0], device="replay", gpus=1)
        for arm in ("base", "new")
    }
    # The second start waits for more than can begin.
    study = nbkit.Study.create(
        "silent", started, metric="error", better="lower", repeats=2, parallel=2
    )

    with pytest.raises(NotEnoughDataError, match="no metric 'error'"):
        study.run(progress=False)

    states = {run.record["tags"]["repeat"]: run for run in nbkit.runs()}
    assert states["0"].state is RunState.FINISHED
    assert states["1"].state is RunState.STOPPED
    assert states["1"].cause["by"] == "study"
    assert len(nbkit.runs()) == 2


def test_study_ends_when_every_start_of_an_arm_fails(tmp_path, capsys):
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text("print('error: 0.5')")
    bad.write_text("1 / 0")
    arms = {
        "base": nbkit.script(good, device="cpu", gpus=1),
        "new": nbkit.script(bad, device="cpu", gpus=1),
    }
    study = nbkit.Study.create(
        "bad", arms, metric="error", better="lower", repeats=5, parallel=1
    )

    with pytest.raises(RunFailedError, match="division by zero"):
        study.run()

    assert len(study.failed["new"]) == 2
    assert len(study.runs_by_arm()["base"]) == 1
    assert "new, repeat 1: failed on rank 0" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:the bundle may contain secrets")
def test_a_script_that_is_gone_runs_again_and_moves_to_another_store(
    checkout, tmp_path, monkeypatch
):
    script = tmp_path / "script.py"
    script.write_text("import sys, mine_here\nprint(mine_here.VALUE, sys.argv[1:])\n")
    original = launch(script, args=(0.5,)).wait()
    script.unlink()

    again = nbkit.reproduce(original, progress=False)
    bundle = nbkit.export(original, tmp_path / "s.zip", include_arguments=True)
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "elsewhere"))
    nbkit.import_bundle(bundle)

    moved = nbkit.attach(original.run_id)
    for run in (again.run, moved):
        assert run.logs(stream="stdout") == "1 ['0.5']\n"
    assert moved.state == "finished"
    assert again.ratio is None
    assert again.sentence == (
        "No ratio: not every run has images/s above 0 (from steps after the warm-up, "
        "or a logged images_per_second). No step has a loss in both runs."
    )
    assert moved.stop().state == "finished"
    (moved.paths.source / "script" / "script.py").unlink()
    with pytest.raises(RunError, match="program cannot be read"):
        nbkit.reproduce(moved, trust=True)
