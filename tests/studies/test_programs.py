"""Studies whose arms are scripts and functions, compared by a metric."""

from __future__ import annotations

import json
import statistics

import pytest

import nbkit
from nbkit.errors import ConfigError, NotEnoughDataError, RunError, RunFailedError
from nbkit.questions.study_report import make
from nbkit.store.record import RunState
from nbkit.studies.budget import not_measured
from nbkit.studies.metric import Metric
from tests.studies.written_study import write_runs

SCRIPT = """
import os, random, sys
seed = int(os.environ["STUDY_REPEAT"])
noise = random.Random(f"{sys.argv[1]} {seed}").gauss(0, 0.002)
print("val_loss:", 0.5 if seed > 9 else float(sys.argv[1]) * (1 + noise))
print("folder", os.path.basename(os.getcwd()), *sys.argv[2:])
"""


@pytest.fixture
def train(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_study_of_scripts_compares_what_they_print(train, tmp_path, capsys):
    (tmp_path / "work").mkdir()
    arms = {
        name: nbkit.script(train, args, cwd=tmp_path / "work", device="cpu", gpus=1)
        for name, args in (("base", ["0.5"]), ("new", ["0.4", "seed={repeat}"]))
    }
    study = nbkit.Study.create(
        "loss", arms, metric="val_loss", better="lower", repeats=2
    )
    train.write_text("1 / 0")  # what runs is what was there when it was created

    study.run()

    assert "\nSo far: " in capsys.readouterr().out
    by_arm = study.runs_by_arm()
    metric = study.metric
    assert metric == Metric("val_loss", "lower", 0.0)
    values = {arm: [metric.value(run) for run in by_arm[arm]] for arm in arms}
    assert len({*values["base"]}) == 2  # each repeat has its own seed
    assert "folder work seed=1\n" in by_arm["new"][1].logs(0, "stdout")
    assert by_arm["new"][1].record["tags"]["arm"] == "new"
    assert by_arm["new"][1].record["name"] == "loss new, repeat 2"
    made = make(study)
    assert json.loads(study.paths.progress.read_text())["answer"] == made.answer
    ratio = statistics.median(values["new"]) / statistics.median(values["base"])
    assert "batch" not in made.conditions
    assert "Not enough runs for a verdict (5 per arm needed)" in made.answer
    assert f"{ratio:.4f}x" in made.answer
    arguments = [row for row in made.tables[1].rows if row[2] == "argv"]
    assert [row[3:] for row in arguments] == [["['0.5']", "['0.4', 'seed={repeat}']"]]
    assert make(nbkit.Study.open(study.study_id)).answer == made.answer


def test_study_of_functions_compares_what_they_log(tmp_path, small):
    def fit(rate):
        import os

        import nbkit

        nbkit.log({"error": rate + 0.001 * int(os.environ["STUDY_REPEAT"])})
        return rate

    arms = {"a": nbkit.function(fit, (0.2,), device="cpu", gpus=1)}
    study = nbkit.Study.create("fit", arms, metric="error", better="lower", control="a")
    study.run(progress=False)

    rows = make(study).result["rows"]
    assert {row["arm"]: row["values"] for row in rows} == {
        "a": [0.2],
        "a again": [0.201],
    }
    for [run] in study.runs_by_arm().values():
        assert Metric("returned", "lower", 0.0).value(run) == 0.2


def test_study_of_configurations_has_a_seed_for_each_start(small):
    fields = {"metric": "final_loss", "better": "lower", "control": "a"}
    config = small(gpus=1, steps=2, warmup_steps=1, seed=4)
    reads = config.replace(task="load", seed=0)  # has no loss, and is no arm
    study = nbkit.Study.create("loss", {"a": config}, unrepeated={"b": reads}, **fields)
    study.run(progress=False)

    by_arm = study.runs_by_arm()
    [run] = by_arm.pop("b")
    assert run.state is RunState.FINISHED
    seeds = {arm: [run.config.seed for run in runs] for arm, runs in by_arm.items()}
    assert seeds == {"a": [4], "a again": [5]}
    rows = make(study).result["rows"]
    assert len({*rows[0]["values"], *rows[1]["values"]}) == 2


def test_limited_study_raises_the_failure_of_its_script(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("raise ValueError('a bad file')")
    arms = {
        name: nbkit.script(script, [name], device="cpu", gpus=1) for name in ("a", "b")
    }
    study = nbkit.Study.create("loss", arms, metric="loss", better="lower", minutes=1)

    with pytest.raises(RunFailedError, match="a bad file"):
        study.run(progress=False)

    assert not_measured(study) == ""


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (
            {"metric": "loss", "better": "lower", "discard_floors": 0.5},
            "discard_floors=0.5 would discard arms because",
        ),
        ({"metric": "loss"}, "better=None is invalid for metric='loss'. Use"),
        ({"metric": "loss", "better": "less"}, "better='less'"),
        ({"better": "lower"}, "^better='lower' without a metric is invalid. Set"),
        ({"margin": 0.1, "minimum_runs": 3}, "^margin=0.1, minimum_runs=3 without"),
        ({"metric": "loss", "better": "lower", "margin": 2}, "margin=2 is not between"),
    ],
)
def test_study_refuses_a_metric_without_direction(small, wanted, words):
    with pytest.raises(ConfigError, match=words):
        nbkit.Study.create("loss", {"a": small()}, **wanted)


def test_study_refuses_an_arm_that_is_no_program(small):
    with pytest.raises(ConfigError, match=r"arm 'new' is 'train.py' \(str\)"):
        nbkit.Study.create("loss", {"base": small(), "new": "train.py"})


def test_study_of_modules_runs_them_as_python_does(tmp_path, monkeypatch):
    package = tmp_path / "work" / "trainer"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("FACTOR = 2")
    (package / "sft.py").write_text(
        "import sys\nfrom . import FACTOR\nassert __name__ == '__main__'\n"
        "print('loss:', FACTOR * float(sys.argv[1]), __spec__.name)"
    )
    (package / "__main__.py").write_text(
        "import sys; print(sys.argv, __package__)\nprint('loss:', float(sys.argv[1]))"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "work"))
    cwd = tmp_path / "work"
    arms = {
        name: nbkit.module(name, [loss], cwd=cwd, device="cpu", gpus=1)
        for name, loss in (("trainer.sft", "0.5"), ("trainer", "0.8"))
    }
    study = nbkit.Study.create("sft", arms, metric="loss", better="lower")
    study.run(progress=False)

    rows = make(study).result["rows"]
    assert [row["values"] for row in rows] == [[1.0], [0.8]]
    [of_module], [of_package] = study.runs_by_arm().values()
    assert "loss: 1.0 trainer.sft" in of_module.logs(0, "stdout")
    said, _ = of_package.logs(0, "stdout").splitlines()
    assert said == f"['{package / '__main__.py'}', '0.8'] trainer"
    lost = nbkit.launch(module="trainer.lost", args=[3], device="cpu", gpus=1)
    assert lost.config.title == "trainer.lost"
    with pytest.raises(RunFailedError, match=r"executable module named 'trainer\.lost"):
        lost.wait()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"module": "train.py"}, "module='train.py' is not a module name"),
        ({"module": "no_such_package.sft"}, "no package 'no_such_package'"),
        ({"module": "json.tool", "kwargs": {"a": 1}}, "Use args instead"),
        ({"module": "json.tool", "what": "train.py"}, "cannot be combined"),
    ],
)
def test_launch_refuses_what_is_no_module(fields, words):
    with pytest.raises(ConfigError, match=words):
        nbkit.launch(**fields)


def test_script_refuses_what_is_no_script(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        nbkit.script(tmp_path / "missing.py")
    with pytest.raises(ConfigError, match="is not a function"):
        nbkit.function(None)


def test_metric_names_what_a_run_has_instead(small):
    study = nbkit.Study.create(
        "rates", {"a": small()}, metric="val_loss", better="lower"
    )
    write_runs(study, {"a": 100.0})

    with pytest.raises(NotEnoughDataError, match="no metric 'val_loss'; it logged"):
        make(study)


def test_study_without_its_program_says_so(train, small):
    arms = {"base": nbkit.script(train, ["0.5"], device="cpu", gpus=1)}
    study = nbkit.Study.create("loss", arms, metric="val_loss", better="lower")
    study.programs["base"].entry.unlink()

    with pytest.raises(RunError, match="without the program of arm 'base'"):
        study.run(progress=False)
