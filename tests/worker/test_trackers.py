"""What an unchanged script gives to TensorBoard or prints is recorded."""

from __future__ import annotations

import pytest

import nbkit
from nbkit.errors import NotEnoughDataError
from nbkit.live.metrics import LiveMetrics
from nbkit.studies.metric import Metric
from tests.launch.conftest import plugins, store

__all__ = ["plugins", "store"]

WRITER = """
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter("logs")
for step in range(1, 4):
    print(f"step {step}: loss 9.0")
    writer.add_scalar("Loss/train", 1 / step, step)
    writer.add_scalar("lr", 0.1, global_step=step)
writer.add_scalar("val_loss", 0.5, 1)
writer.close()
"""
PRINTED = """
import subprocess, sys
print("step 0: train loss 4.2214, val loss 4.2306")
for step in range(3):
    print(f"iter {step}: loss {2 / (step + 1):.4f}, time 31.20ms, mfu 1.23%")
print("iter 9: loss 7.0", file=sys.stderr)
print("epoch of 3 steps", "step 5: loss 1.0")
print("step", "1,002/2,000", "grad", 3.5, "speed", "3.2it/s norm", 1.5)
print("val_loss: 0.25", "a/val_loss: 7.0", "b-val_loss: 8.0")
print("Took: 1:23:45. Test accuracy: 0.9312. train err: 0.1 val err: 0.2")
print("tok/s: 12,345.6 pair: 1,5 bad: 0.5 bad: nan")
subprocess.run(["echo", "final top1: 0.5, Test error = 0.5"], check=True)
assert "torch" not in sys.modules, "a number has imported it"
"""
CONTINUED = """
import resource, sys
import nbkit
sys.modules["tensorboard.summary.writer.event_file_writer"] = None
print("step 0: val_loss 10.9")
for step in range(1, 4):
    nbkit.log({"loss": 1 / step}, step, total_steps=3)
    print(f"step {step} of 3: val_loss {12_000 / step:,}, loss 9.0, tok/s 7.0")
size = (nbkit.context().run_folder / "metrics.jsonl").stat().st_size
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
print("step 4: val_loss 0.5")  # as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
print("step 5: val_loss 0.4")
print("loss: 7, top1: 0.5")
"""


def launched(tmp_path, monkeypatch, code):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(code)
    return nbkit.launch(script, device="cpu", oversubscribe=True).wait()


def test_tensorboard_of_a_script_is_recorded(tmp_path, monkeypatch):
    run = launched(tmp_path, monkeypatch, WRITER)

    lines = run.metrics("log")
    losses = [line["values"]["loss"] for line in lines if "loss" in line["values"]]
    assert losses == [9.0, 1.0, 1 / 2, 1 / 3]  # the first was printed before
    assert run.summary.logged == {"loss": 1 / 3, "lr": 0.1, "val_loss": 0.5}
    reading = LiveMetrics(run.paths.metrics)
    reading.read()
    assert (reading.step, reading.loss) == (3, 1 / 3)  # val_loss counts epochs


def test_printed_steps_of_a_script_are_recorded(tmp_path, monkeypatch):
    run = launched(tmp_path, monkeypatch, PRINTED)

    lines = run.metrics("log")
    assert [line["step"] for line in lines] == [0, 0, 1, 2, 1002, 1002]
    assert lines[0]["values"] == {"train loss": 4.2214, "val loss": 4.2306}
    assert lines[-3]["values"] == {"loss": 0.6667}
    assert lines[-2]["values"] == {"grad": 3.5, "norm": 1.5}
    assert run.summary.loss == 0.6667
    assert run.summary.logged["val_loss"] == 0.25
    reading = LiveMetrics(run.paths.metrics)
    reading.read()
    assert (reading.step, reading.logged) == (1002, run.summary.logged)
    assert "val_loss" not in reading.series
    assert Metric("val loss", "lower", 0.0).value(run) == 4.2306
    assert Metric("val_loss", "lower", 0.0).value(run) == 0.25
    assert Metric("tok/s", "higher", 0.0).value(run) == 12345.6
    assert Metric("top1", "higher", 0.0).value(run) == 0.5
    assert Metric("Test error", "lower", 0.0).value(run) == 0.5
    assert Metric("Test accuracy", "higher", 0.0).value(run) == 0.9312
    for name in ("pair", "Took", "err"):  # there are two of the last
        with pytest.raises(NotEnoughDataError, match=f"has no metric '{name}'"):
            Metric(name, "lower", 0.0).value(run)
    with pytest.raises(NotEnoughDataError, match=r"metric .bad. of .* not finite"):
        Metric("bad", "lower", 0.0).value(run)


def test_printed_metric_goes_on_beside_what_is_logged(tmp_path, monkeypatch):
    run = launched(tmp_path, monkeypatch, CONTINUED)

    assert run.summary.logged == {"val_loss": 4000.0, "loss": 1 / 3, "top1": 0.5}
    reading = LiveMetrics(run.paths.metrics)
    reading.read()
    assert (reading.step, reading.total_steps, reading.loss) == (3, 3, 1 / 3)
    assert Metric("val_loss", "lower", 0.0).value(run) == 4000.0
    errors = run.logs(0, "stderr")
    assert errors.count("nbkit: no TensorBoard files are written") == 1
    assert "print values are not recorded from step 4 on (StoreError" in errors


def test_script_that_logs_is_recorded_once(tmp_path, monkeypatch):
    code = "import nbkit\nnbkit.log({'loss': 0.123456}, 1)\n" + WRITER

    run = launched(tmp_path, monkeypatch, code)

    assert [line["values"] for line in run.metrics("log")] == [{"loss": 0.123456}]
