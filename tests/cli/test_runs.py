"""The runs of a store, listed, shown, ended and moved from a terminal."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nbkit
from nbkit.cli.main import main
from nbkit.config import ExperimentConfig
from nbkit.launch.code.entry import function_entry, module_entry, script_entry
from nbkit.live.run import LiveRun
from nbkit.questions.question import notebooks_of_questions
from nbkit.widgets.picture import picture
from tests.cli.conftest import COMMAND
from tests.widgets.stored_run import WrittenRun, step


@pytest.fixture
def written(store):
    """A run of which the test writes the files."""
    return WrittenRun(store, model="resnet18", precision="bf16")


def test_runs_table(study, monkeypatch, capsys):
    monkeypatch.setenv("NBKIT_HOME", str(study.home))

    assert main(["runs"]) == 0

    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == (
        ["Run", "Name", "State", "Model", "Ranks", "Images/s", "Duration", "Age"]
    )
    assert {line.split()[0] for line in lines} == {run.run_id for run in study.runs}
    assert all(" finished  resnet20 " in line for line in lines)


def test_runs_json(written, capsys):
    written.record("finished")
    written.append(*(step(number) for number in (1, 2)))

    def listed(*arguments):
        assert main(["runs", *arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    [row] = listed()
    none = listed("--state", "failed")

    assert row["run_id"] == written.run.run_id
    assert (row["model"], row["images_per_second"]) == ("resnet18", 100)
    assert none == []
    assert main(["runs", "--state", "broken"]) == 2
    said = "nbkit: state='broken' is not a run state. Use one of "
    assert capsys.readouterr().err.startswith(said)


def test_runs_limit(study, monkeypatch, capsys):
    monkeypatch.setenv("NBKIT_HOME", str(study.home))
    for limit, lines in (("1", 2), ("all", 3)):
        assert main(["runs", "--limit", limit]) == 0
        said = capsys.readouterr()
        assert len(said.out.splitlines()) == lines
        assert ("1 more" in said.err) is (limit == "1")


def test_show_failed_run(written, capsys):
    written.append(*(step(number) for number in range(1, 4)))
    written.print("first\nsecond\nthird\n", rank=1)
    written.print("not this one\n", rank=0)
    cause = {"kind": "exception", "rank": 1, "message": "ValueError: no such image"}
    written.record("failed", cause={**cause, "traceback": None, "log": "stderr.log"})

    assert main(["show", "aaaa", "--lines", "2"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"written ({written.run.run_id}): failed")
    assert "failed on rank 1: ValueError: no such image" in lines
    assert any("n=3" in line and "100" in line for line in lines)
    where = lines.index("Non-default settings:")
    changed = dict(line.split() for line in lines[where + 1 :][:4])
    assert changed == (
        {"model": "resnet18", "precision": "bf16", "steps": "1000", "gpus": "2"}
    )
    assert lines[-3:] == ["Last lines of rank 1:", "  second", "  third"]


@pytest.mark.parametrize(
    ("entry", "settings"),
    [
        (
            lambda: function_entry(step, [7], {"loss": 0.5, "api_key": "hidden"}),
            [
                ["function", "tests.widgets.stored_run.step"],
                ["arguments", "7, loss=0.5, api_key='***'"],
            ],
        ),
        (
            lambda: script_entry(__file__, ["--lr", 0.05, "--token", "hidden"]),
            [["script", __file__], ["arguments", "--lr 0.05 --token '***'"]],
        ),
        (lambda: module_entry("json.tool", []), [["module", "json.tool"]]),
    ],
)
def test_show_program(store, capsys, entry, settings):
    """A program has no model: no field of a training is among its own."""
    program = entry()
    written = WrittenRun(
        store,
        **ExperimentConfig(task=program.task, gpus=2).model_dump(mode="json")
        | {"hang_timeout_seconds": None},
    )
    program.write(written.run.paths)

    assert main(["show", "aaaa"]) == 0

    output = capsys.readouterr().out
    [block] = re.findall(r"Non-default settings:\n((?:  .*\n)+)", output)
    rows = [line.split(None, 1) for line in block.splitlines()]
    assert rows == [*settings, ["gpus", "2"], ["task", program.task]]
    live = LiveRun(written.run)
    live.read()
    rest = dict(live.snapshot()["config"]["default"])
    assert {"nnodes", "hang_timeout_seconds"} <= {*rest}
    assert not {"model", "batch_size_per_gpu", "data"} & {*rest}


def test_show_data(written, capsys):
    images = [
        {"name": f"a/{n}\x1b.jpg", "split": "train", "reason": f"reason {n}"}
        for n in range(100)
    ]
    data = {
        "fingerprint": {"source": "/photos", "kind": "image folder"},
        "train_images": 12_000,
        "dropped_images": 34,
        "evaluation_images": 500,
        "unreadable": {"count": 1200, "images": images},
        "skipped_files": {"count": 3, "kinds": {"*.gif": 2, "*.txt": 1}},
        "high_bit_depth": {"count": 15, "coarse": 7, "first": ["a/0.tif"]},
        "num_classes": 6,
        "classes_without_training_images": 4,
    }
    written.run.paths.worker.write_text(json.dumps({"data": data}))

    assert main(["show", "aaaa"]) == 0

    lines = capsys.readouterr().out.splitlines()
    block = lines[lines.index("Data:") :]
    assert block[: block.index("") + 4] == [
        "Data:",
        "  source             /photos (image folder)",
        "  training images    12,000 per epoch, 34 dropped (fewer than a global batch)",
        "  evaluation images  500",
        "  empty classes      4 of 6 without training images",
        "  unreadable images  1,200",
        "  grayscale images   15 with more than 8 bits, converted to 8; 7 of them "
        "keep 16 or fewer gray levels (a/0.tif and 6 more)",
        "  skipped files      3 (2 *.gif, 1 *.txt)",
        "",
        "Unreadable images:",
        r"  a/0\x1b.jpg   reason 0",
        r"  a/1\x1b.jpg   reason 1",
    ]
    assert r"  a/15\x1b.jpg  reason 15" in block
    assert "  more          1,184 (worker.json lists 100)" in block
    assert not any("reason 16" in line for line in block)


@pytest.mark.parametrize(
    "data",
    [None, {"unreadable": {"count": 1, "images": [{"name": "a", "reason": "b"}]}}],
)
def test_show_unreadable_data(written, capsys, data):
    written.run.paths.worker.write_text(json.dumps({"data": data}))

    assert main(["show", "aaaa"]) == 0

    said = capsys.readouterr().out
    unreadable = "\nData:\n  unreadable images  1\n\nUnreadable images:\n  a  b\n"
    assert (unreadable in said) is bool(data)
    assert ("Data:" in said) is bool(data)


def test_show_traceback_once(written, capsys):
    traceback = "Traceback (most recent call last):\nValueError: no such image\n"
    written.print(traceback, rank=1)
    cause = {"kind": "exception", "rank": 1, "message": "ValueError: no such image"}
    written.record(
        "failed", cause={**cause, "traceback": traceback, "log": "stderr.log"}
    )

    main(["show", "aaaa"])
    once = capsys.readouterr().out
    main(["show", "aaaa", "--lines", "1"])
    asked = capsys.readouterr().out

    assert once.count("Traceback") == 1
    assert "Last lines" not in once
    assert asked.splitlines()[-2:] == (
        ["Last lines of rank 1:", "  ValueError: no such image"]
    )


REFUSED = """Traceback (most recent call last):
  File "/env/nbkit/worker/__main__.py", line 42, in main
    _run(rank, config, ending)
  File "/env/nbkit/worker/data/image_data.py", line 120, in __init__
    raise ConfigError(text)
nbkit.errors.ConfigError: data='a' is empty.
"""


@pytest.mark.parametrize(
    ("traceback", "is_shown"),
    [
        (REFUSED, False),
        (REFUSED.replace('File "/env/nbkit/worker/data/', "Cell In[3], "), True),
        (f"{REFUSED}\nDuring handling of it:\n\n{REFUSED}", True),
    ],
)
def test_show_refused_value(written, traceback, is_shown):
    cause = {"kind": "config", "rank": 1, "message": "ConfigError: data='a' is empty."}
    written.record("failed", cause={**cause, "traceback": traceback, "log": "a.log"})
    live = LiveRun(written.run)
    live.read()

    lines = picture(live)["text/plain"].splitlines()

    assert "failed on rank 1: ConfigError: data='a' is empty." in lines
    assert ("Traceback (most recent call last):" in lines) == is_shown
    assert lines[-1] == "log: a.log"


def test_show_for_programs_is_the_record(study, monkeypatch, capsys):
    run = study.runs[0]
    monkeypatch.setenv("NBKIT_HOME", str(study.home))

    assert main(["show", run.run_id, "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert (told["run_id"], told["state"]) == (run.run_id, "finished")
    assert told["worker"] == run.record["worker"]


def test_show_json_lost_run(written, capsys):
    submission = json.loads(written.run.paths.submission.read_text())
    gone = {**submission["supervisor"], "start_ticks": -1}
    written.run.paths.submission.write_text(
        json.dumps({**submission, "supervisor": gone})
    )
    written.record("running", supervisor=gone)

    assert main(["show", "aaaa", "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert (told["state"], told["cause"]) == ("lost", written.run.cause)
    assert told["cause"]["message"]


def test_logs_of_a_rank(written, capsys):
    written.print("first\n\x1b[31msecond\x1b[0m\nthi", rank=1)
    asked = ("logs", "aaaa", "--rank", "1", "--stream", "stderr", "--lines", "2")

    assert main([*asked]) == 0
    assert capsys.readouterr().out == "first\nsecond\nthi\n"
    assert main([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == "first\nsecond\nthi"
    assert main(["logs", "aaaa", "--rank", "2"]) == 2
    assert "rank=2 is not a rank of 2020" in capsys.readouterr().err


def test_diagnose_json(study, monkeypatch, capsys):
    run = study.runs[0]
    monkeypatch.setenv("NBKIT_HOME", str(study.home))

    assert main(["diagnose", run.run_id]) == 0
    assert capsys.readouterr().out == f"{run.diagnose()}\n"
    assert main(["diagnose", run.run_id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == run.diagnose().to_dict()


def test_runs_store_not_utf8(tmp_path, monkeypatch, capsys):
    store = tmp_path / os.fsdecode(b"caf\xe9")
    monkeypatch.setenv("NBKIT_HOME", str(store))
    WrittenRun(store)

    assert main(["runs"]) == 0

    assert "20200101-000000-written-aaaa" in capsys.readouterr().out


def test_stop_one_refused(written, store, capsys):
    other = store / "runs" / "20200102-000000-other-bbbb"
    shutil.copytree(written.run.paths.root, other)
    record = json.loads(written.run.paths.record.read_text())
    (other / "record.json").write_text(json.dumps({**record, "state": "finished"}))
    (other / "config.json").write_text(json.dumps({"engine": "local"}))
    # As of a run that torchrun started.
    written.run.paths.submission.unlink()
    written.run.paths.record.unlink()

    assert main(["stop", "aaaa", "bbbb"]) == 2

    said = capsys.readouterr()
    assert said.out == f"{other.name} finished\n"
    assert f"nbkit: {written.run.run_id} was not stopped: run " in said.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [([], "no run is specified"), (["--all", "k3f9"], "cannot be combined")],
)
def test_stop_without_runs(store, capsys, arguments, message):
    assert main(["stop", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_sweep(written, capsys):
    assert main(["sweep"]) == 0
    assert capsys.readouterr().out == "No leftover processes.\n"
    files = written.run.paths
    submission = json.loads(files.submission.read_text())
    submission["supervisor"]["start_ticks"] += 1  # another process has its pid now
    files.submission.write_text(json.dumps(submission))
    program = "import signal; print(flush=True); signal.pause()"
    left = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "NBKIT_RUN_ID": written.run.run_id},
        stdout=subprocess.PIPE,
    )
    left.stdout.readline()

    with subprocess.Popen(
        [*COMMAND, "sweep"], stdout=subprocess.PIPE, text=True
    ) as process:
        left.communicate()  # else it would stay a zombie
        told = process.stdout.read()

    assert process.returncode == 0
    assert told.splitlines()[1].split() == (
        [written.run.run_id, str(left.pid), "ended"]
    )


def test_two_runs_are_compared(study, monkeypatch, capsys):
    a, b = study.runs
    monkeypatch.setenv("NBKIT_HOME", str(study.home))

    assert main(["compare", a.run_id, b.run_id]) == 0

    said = capsys.readouterr().out
    assert said == f"{nbkit.compare(a, b)}\n"
    assert "batch_size_per_gpu" in said
    assert main(["compare", a.run_id, b.run_id, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    rates = [run.summary.images_per_second for run in (a, b)]
    assert values["ratio"]["estimate"] == pytest.approx(rates[0] / rates[1])
    assert ["2", "4"] in [[row["a"], row["b"]] for row in values["differences"]]


def test_a_study_moves_to_another_store(study, monkeypatch, tmp_path, capsys):
    file = tmp_path / "study.zip"

    def said(home, *arguments):
        monkeypatch.setenv("NBKIT_HOME", str(home))
        assert main([*map(str, arguments)]) == 0
        return capsys.readouterr().out

    made = said(study.home, "export", study.study_id, file)
    taken = said(tmp_path / "there", "import", file)
    again = said(tmp_path / "there", "import", file)

    assert made.startswith(f"{file} (")
    assert taken.startswith("imported 2 runs: ")
    assert f"study {study.study_id}" in taken
    assert again.startswith("2 runs already in the store: ")


def test_import_unknown_user(capsys):
    assert main(["import", "~nosuchuser/x.zip"]) == 2

    assert "home folder ~nosuchuser is unknown" in capsys.readouterr().err


def test_a_study_is_reported(study, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("NBKIT_HOME", str(study.home))
    folder = tmp_path / "here"

    assert main(["report", study.study_id, "--folder", str(folder)]) == 0

    assert f"Report: {folder / 'report.html'}" in capsys.readouterr().out
    assert (folder / "report.html").is_file()


def test_studies_beside_a_damaged_one(store, capsys):
    arms = {"a": ExperimentConfig()}
    damaged, whole = (nbkit.Study.create(name, arms) for name in ("one", "two"))
    damaged.paths.study.write_text("{")

    assert main(["report"]) == 0

    out = capsys.readouterr().out
    assert f"<Study {damaged.study_id}: " in out
    assert f" {whole.study_id} " in out


def test_notebook(capsys):
    assert main(["notebook", "scaling"]) == 0
    assert Path(capsys.readouterr().out.strip()).is_file()
    assert main(["notebook"]) == 0
    listed = capsys.readouterr().out
    assert all(f"{one.name} " in listed for one in notebooks_of_questions())
    assert all(one.text in listed for one in notebooks_of_questions())
    assert main(["notebook", "scling"]) == 2
    assert "Did you mean 'scaling'?" in capsys.readouterr().err
