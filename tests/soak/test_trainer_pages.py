"""The code on the pages of trainers, offline, on two ranks: numbers, stop and resume.

The packages are installed beside nbkit's peers (`make setup-peers`). nanoGPT is no
package: `NBKIT_NANOGPT` is a clone of it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import nbkit
from nbkit.store.progress import progress
from nbkit.store.record import RunState
from tests.house.documents import ROOT, blocks
from tests.launch.conftest import store
from tests.waiting import wait_until

__all__ = ["store"]

pytest.importorskip("transformers")
WORDS = [f"w{number}" for number in range(61)]
ROWS = 48
HERE = {"gpus=8": "gpus=2, device='cpu', oversubscribe=True"}
EVERY_STEP = {"logging_steps=10": "logging_steps=1"}
CPU = {"batch_size=2": "batch_size=2, bf16=False, use_cpu=True"}
SMALL = {"Qwen/Qwen2.5-0.5B": "model", **HERE}
NANOGPT = os.environ.get("NBKIT_NANOGPT")
NANOGPT_ON_CPUS = {
    "torch.cuda.set_device(device)": "device = 'cpu'",
    "device_ids=[ddp_local_rank]": "device_ids=None",
}
"""With several ranks, its script has GPUs alone."""
NANOGPT_OPTIONS = (
    *("device=cpu", "backend=gloo", "dtype=float32", "compile=False"),
    *("eval_interval=10", "eval_iters=2", "log_interval=2", "warmup_iters=0"),
    *("block_size=16", "batch_size=4", "gradient_accumulation_steps=2"),
    *("n_layer=1", "n_head=2", "n_embd=16", "dropout=0.0", "learning_rate=1e-2"),
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setattr("tqdm.tqdm.monitor_interval", 0)  # else a thread stays
    return tmp_path


@pytest.fixture
def model(folder):
    """Write a tokenizer of words, and a small model without weights of anyone."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    vocabulary = {word: at for at, word in enumerate(["[UNK]", "[EOS]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"unk_token": "[UNK]", "eos_token": "[EOS]", "pad_token": "[EOS]"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    fast.save_pretrained(folder / "model")
    size = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    size |= {"vocab_size": len(vocabulary), "num_hidden_layers": 1}
    config = LlamaConfig(eos_token_id=1, **size)
    LlamaForCausalLM(config).save_pretrained(folder / "model")


def write_texts(folder, lengths):
    lines = (json.dumps({"text": " ".join(WORDS[:length])}) for length in lengths)
    (folder / "train.jsonl").write_text("\n".join(lines))


def launch_page(name, **changes):
    """Write a page's script, execute its cell, and return the run."""
    *files, cell = blocks((ROOT / f"nbkit/launch/trainers/{name}.md").read_text())
    for block in files:
        Path(block.file).write_text(_changed(block.text, changes))
    names = {"nbkit": nbkit, "__name__": "__main__"}
    exec(_changed(cell.text, changes), names)
    return names["run"]


def _changed(code, changes):
    for written, here in changes.items():
        code = code.replace(written, here)
    return code


def lines_of(run):
    return [line for line in run.metrics("log") if "loss" in line["values"]]


def wait_for_line(run):
    def lines():
        assert run.state is not RunState.FAILED, run.cause
        return lines_of(run)

    wait_until(lines, "a line of the trainer", 120)


def test_trl_page_counts_real_tokens(folder, model):
    pytest.importorskip("trl")
    lengths = [3 + row % 9 for row in range(ROWS)]
    write_texts(folder, lengths)
    small = {"max_length=1024": "max_length=8, num_train_epochs=1", **EVERY_STEP}

    run = launch_page("trl", **SMALL, **CPU, **small)
    run.wait()

    lines = lines_of(run)
    assert [(line["step"], line["total_steps"]) for line in lines] == [
        (step, 3) for step in (1, 2, 3)
    ]
    # Each text has an end, and 8 tokens at most.
    last = lines[-1]["values"]
    assert last["tokens_seen"] == sum(min(length + 1, 8) for length in lengths)
    assert last["samples_seen"] == ROWS
    for line in lines:
        assert line["values"]["tokens_seen"] == line["values"]["num_tokens"]  # TRL's
        assert 0 < line["values"]["padding_share"] < 0.5
    assert "MFU is unknown: the model is on a CPU" in run.logs(0, "stderr")


def test_trl_page_counts_packed_texts(folder, model):
    pytest.importorskip("trl")
    write_texts(folder, [7] * 2 * ROWS)
    packed = "max_length=16, packing=True, num_train_epochs=1"

    small = {"max_length=1024": packed, **EVERY_STEP}
    run = launch_page("trl", **SMALL, **CPU, **small)
    run.wait()

    last = lines_of(run)[-1]
    assert last["step"] == last["total_steps"] == 3  # 48 rows of two texts
    assert last["values"]["samples_seen"] == 2 * ROWS
    assert last["values"]["tokens_seen"] == 2 * ROWS * 8
    assert last["values"]["padding_share"] == 0


def test_transformers_page_counts_real_tokens_and_resumes(folder, model):
    lengths = [3 + row % 9 for row in range(ROWS)]
    write_texts(folder, lengths)
    epochs = "logging_steps=1, num_train_epochs=100, use_cpu=True"
    small = {"logging_steps=10": epochs}

    run = launch_page("transformers", **SMALL, **small)
    wait_for_line(run)
    run.stop()
    assert run.state is RunState.STOPPED
    run.resume().wait()

    last = lines_of(run)[-1]
    assert last["step"] == last["total_steps"] == 300
    assert last["values"]["tokens_seen"] == 100 * sum(lengths)
    assert last["values"]["samples_seen"] == 100 * ROWS


def test_lightning_page_counts_samples_and_resumes(folder):
    if find_spec("lightning") is None:  # to import it leaves a variable behind
        pytest.skip("needs lightning")
    steps = "max_steps=1500, max_epochs=-1, log_every_n_steps=20, accelerator='cpu'"
    small = {"max_epochs=10": steps, 'devices="auto"': "devices=2"}

    run = launch_page("lightning", **HERE, **small)
    wait_for_line(run)
    run.stop()
    assert run.state is RunState.STOPPED
    run.resume().wait()

    lines = lines_of(run)
    assert [line["step"] for line in lines][-1] == 1500
    assert {line["total_steps"] for line in lines} == {1500}
    assert lines[-1]["values"]["samples_seen"] == 1500 * 16 * 2
    for line in lines:
        assert line["values"]["loss"] == pytest.approx(line["values"]["train_loss"])
        assert line["values"]["learning_rate"] == 1e-3


EPOCHS = """
import lightning as L
import torch

class Ends(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Linear(2, 1)

    def training_step(self, batch, _):
        self.log("train_acc", self.current_epoch + 1.0, on_step=False, on_epoch=True)
        return self.model(batch[0]).square().mean()

    def validation_step(self, batch, _):
        self.log("val_acc", 0.1 * self.current_epoch)
        self.log("val_same", 0.5)

    def test_step(self, batch, _):
        self.log("test_acc", 0.5)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(torch.randn(5, 2)))
trainer = L.Trainer(max_epochs=3, accelerator="cpu", devices=1, logger=False,
                    log_every_n_steps=3, enable_checkpointing=False)
trainer.fit(Ends(), loader, loader)
L.Trainer(accelerator="cpu", devices=1, logger=False).test(Ends(), loader)
"""


@pytest.mark.parametrize(
    ("loaders", "name"),
    [("loader)", "val_same"), ("[loader, loader])", "val_same/dataloader_idx_1")],
)
def test_lightning_script_has_values_of_its_last_epoch_and_its_test(
    folder, loaders, name
):
    if find_spec("lightning") is None:
        pytest.skip("needs lightning")
    text = EPOCHS.replace("(Ends(), loader, loader)", f"(Ends(), loader, {loaders}")
    (folder / "ends.py").write_text(text.replace("batch, _):", "batch, *_):"))

    run = nbkit.launch(folder / "ends.py", device="cpu", oversubscribe=True).wait()

    values = [line["values"] for line in run.metrics("log")]
    assert [it["train_acc"] for it in values if "train_acc" in it] == [1.0, 2.0, 3.0]
    assert [it[name] for it in values if name in it] == [0.5] * 3
    assert run.summary.logged["test_acc"] == 0.5
    assert run.metrics("log")[-1]["step"] == 15


STREAM = """
import sys, time
import lightning as L
import torch

class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        for _ in range(10):
            time.sleep(float(sys.argv[1]))
            yield torch.randn(2)

class Fit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Linear(2, 1)

    def training_step(self, batch, _):
        return self.model(batch).square().mean()

    def validation_step(self, batch, _):
        self.log("val_loss", self.model(batch).square().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

here = {"accelerator": "cpu", "devices": 1, "logger": False}
loader = torch.utils.data.DataLoader(Stream(), batch_size=1)
save = L.pytorch.callbacks.ModelCheckpoint("saved", save_last=True)
trainer = L.Trainer(max_epochs=3, log_every_n_steps=4, callbacks=[save],
                    num_sanity_val_steps=0, **here)
module = Fit()
trainer.validate(module, loader)
trainer.fit(module, loader, loader, ckpt_path="last")
L.Trainer(**here).validate(module, loader)
"""


def test_lightning_script_of_a_stream_resumes_in_the_middle_of_an_epoch(folder):
    if find_spec("lightning") is None:
        pytest.skip("needs lightning")
    (folder / "stream.py").write_text(STREAM)

    run = nbkit.launch(folder / "stream.py", args=[0.1], device="cpu", gpus=1)
    wait_for_line(run)
    run.stop()
    assert run.state is RunState.STOPPED
    run.resume().wait()

    # The stream of the epoch that was stopped begins again.
    steps = [line["step"] for line in lines_of(run)]
    assert steps == sorted(steps)
    assert (steps[0], steps[-1] > 30) == (4, True)
    assert lines_of(run)[-1]["values"]["samples_seen"] == steps[-1]
    assert progress(run.paths.metrics)["step"] == steps[-1]


def test_accelerate_page_is_recorded_as_tensorboard_has_it(folder):
    cpu = {"Accelerator(": "Accelerator(cpu=True, "}  # else each rank trains alone
    small = {"4096": "65536", **cpu, **HERE}
    whole = launch_page("accelerate", **small).wait()

    events = EventAccumulator(str(whole.paths.root / "accelerate")).Reload()
    written = {it.step: it.value for it in events.Scalars("train_loss")}
    losses = {line["step"]: line["values"]["loss"] for line in lines_of(whole)}
    assert losses == pytest.approx(written)
    assert [*losses] == [*range(2048)]

    run = launch_page("accelerate", **small)
    wait_for_line(run)
    run.stop()
    run.resume().wait()

    resumed = {line["step"]: line["values"]["loss"] for line in lines_of(run)}
    assert resumed == pytest.approx(losses)


@pytest.mark.skipif(not NANOGPT, reason="NBKIT_NANOGPT is no clone of nanoGPT")
def test_nanogpt_page_records_what_is_printed_and_continues(folder, monkeypatch):
    clone = folder / "nanoGPT"
    subprocess.run(["git", "clone", "--quiet", str(NANOGPT), clone], check=True)
    monkeypatch.chdir(clone)
    code = Path("train.py").read_text()
    assert all(code.count(written) == 1 for written in NANOGPT_ON_CPUS)
    Path("train.py").write_text(_changed(code, NANOGPT_ON_CPUS))
    data = Path("data/shakespeare_char")
    (data / "input.txt").write_text(" ".join(WORDS * 100))
    subprocess.run([sys.executable, data / "prepare.py"], check=True)

    def launch(*options):
        words = "".join(f", '--{option}'" for option in (*NANOGPT_OPTIONS, *options))
        return launch_page("nanogpt", **HERE, **{'=8"]': f'=8"{words}]'}).wait()

    run = launch("max_iters=30")

    printed = re.findall(r"iter (\d+): loss ([\d.]+)", run.logs(0, "stdout"))
    assert [int(step) for step, _ in printed] == [*range(0, 31, 2)]
    losses = [(line["step"], line["values"]["loss"]) for line in lines_of(run)]
    assert losses == [(int(step), float(loss)) for step, loss in printed]
    evaluated = {
        line["step"]: line["values"]["val loss"]
        for line in run.metrics("log")
        if "val loss" in line["values"]
    }
    assert [*evaluated] == [0, 10, 20, 30]
    saved = torch.load("out-shakespeare-char/ckpt.pt")
    assert evaluated[saved["iter_num"]] == pytest.approx(
        float(saved["best_val_loss"]), abs=1e-4
    )

    again = launch("max_iters=40", "init_from=resume")

    assert lines_of(again)[0]["step"] == saved["iter_num"]
    assert again.summary.loss < losses[0][1]
