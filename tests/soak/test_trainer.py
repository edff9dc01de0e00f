"""`nbkit.TrainerCallback` in transformers' own ``Trainer``, offline, on two ranks.

transformers is installed beside nbkit's peers (`make setup-peers`).
"""

from __future__ import annotations

import json
import re

import pytest

import nbkit
from nbkit.store.record import RunState
from nbkit.studies.metric import Metric
from nbkit.worker.model_flops import ModelFlops
from tests.launch.conftest import shared_store
from tests.waiting import wait_until

__all__ = ["shared_store"]

pytest.importorskip("transformers")
STEPS, ROWS, BATCH, ACCUMULATION = 12, 96, 2, 2
SCRIPT = """
import os, sys
os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
import nbkit

kind, steps, rows, batch, accumulation = sys.argv[1], *map(int, sys.argv[2:])
torch.manual_seed(0)
texts = [torch.randint(1, 64, (4 + row % 7,)).tolist() for row in range(rows)]

def collate(chosen):
    longest = max(map(len, chosen))
    ids = torch.zeros(len(chosen), longest, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, text in enumerate(chosen):
        ids[row, : len(text)], mask[row, : len(text)] = torch.tensor(text), 1
    return {"input_ids": ids, "attention_mask": mask, "labels": ids}

config = GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2,
                    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
arguments = TrainingArguments(
    output_dir=str(nbkit.context().run_folder / "trainer"), max_steps=steps,
    per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation,
    logging_steps=3, report_to="none", use_cpu=True, remove_unused_columns=False,
    learning_rate=1e-2, save_strategy="no", disable_tqdm=True)
callback = nbkit.TrainerCallback()
callbacks = [callback] if kind == "callback" else []
trainer = Trainer(GPT2LMHeadModel(config), arguments, data_collator=collate,
                  train_dataset=texts, callbacks=callbacks)
trainer.train(resume_from_checkpoint=callback.checkpoint)
"""


@pytest.fixture(scope="module")
def start(tmp_path_factory, shared_store):
    script = tmp_path_factory.mktemp("trainer") / "sft.py"
    script.write_text(SCRIPT)

    def launch_trainer(kind, steps=STEPS):
        args = [kind, steps, ROWS, BATCH, ACCUMULATION]
        return nbkit.launch(script, args=args, gpus=2, device="cpu", oversubscribe=True)

    return launch_trainer


@pytest.fixture(scope="module")
def whole(start):
    """Return the losses of a run that was not stopped."""
    return losses(start("callback", 60).wait())


def losses(run):
    return {
        line["step"]: line["values"]["loss"]
        for line in run.metrics("log")
        if "loss" in line["values"]
    }


def test_trainer_logs_steps_losses_and_tokens(start):
    run = start("callback").wait()

    assert list(losses(run)) == [3, 6, 9, 12]
    lines = [line for line in run.metrics("log") if "loss" in line["values"]]
    assert {line["total_steps"] for line in lines} == {STEPS}
    # Two epochs of all rows: what they hold is known, however they were shuffled.
    assert len(run.metrics("log")) == len(losses(run)) + 1  # the end's, once each
    values = [line["values"] for line in lines]
    per_sample = [v["tokens_per_second"] / v["samples_per_second"] for v in values]
    total = sum(4 + row % 7 for row in range(ROWS))
    assert sum(per_sample) / 4 == pytest.approx(total / ROWS)
    assert run.summary.logged["train_loss"] > 0


def test_trainer_without_the_callback_is_shown_with_the_same_losses(start):
    plain, run = start("plain").wait(), start("callback").wait()

    assert losses(plain) == losses(run)
    lines = [line for line in plain.metrics("log") if "loss" in line["values"]]
    assert {line["total_steps"] for line in lines} == {STEPS}
    assert all(line["values"]["samples_per_second"] > 0 for line in lines)

    printed = re.findall(r"'loss': '?([\d.]+)", plain.logs(0, "stdout"))
    assert [f"{loss:.4g}" for loss in losses(run).values()] == [
        f"{float(loss):.4g}" for loss in printed
    ]
    assert Metric("train_loss", "lower", 0.0).value(plain) == pytest.approx(
        run.summary.logged["train_loss"], rel=1e-3
    )


BEST = {
    "logging_steps=3": "logging_steps=1, eval_strategy='steps', eval_steps=2, "
    "save_steps=2, load_best_model_at_end=True, save_total_limit=1",
    'save_strategy="no", ': "",
    "train_dataset=texts": "train_dataset=texts, eval_dataset=texts[:4]",
    "trainer.train(": "trainer.evaluate()\ntrainer.train(",
}


def test_trainer_that_keeps_its_best_checkpoint_resumes_from_its_last(start, tmp_path):
    text = SCRIPT
    for old, new in BEST.items():
        assert old in text
        text = text.replace(old, new)
    script = tmp_path / "best.py"
    script.write_text(text)
    args = ["callback", 120, ROWS, BATCH, ACCUMULATION]
    run = nbkit.launch(script, args=args, gpus=2, device="cpu", oversubscribe=True)
    wait_until(lambda: 5 in losses(run), "the fifth step", 120)
    run.stop()
    stopped_at = max(losses(run))
    run.resume().wait()

    assert list(losses(run)) == [*range(1, 121)]
    attempts = {line["step"]: line["attempt"] for line in run.metrics("log")}
    assert [attempts[stopped_at], attempts[120]] == [0, 1]
    samples = [line["values"].get("samples_seen") for line in run.metrics("log")]
    assert max(filter(None, samples)) == 120 * BATCH * ACCUMULATION * 2


def test_trainer_of_a_module_of_trl_is_shown(tmp_path, shared_store, monkeypatch):
    pytest.importorskip("trl")
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    monkeypatch.setattr("tqdm.tqdm.monitor_interval", 0)  # else a thread stays
    words = [f"w{number}" for number in range(61)]
    vocabulary = {word: at for at, word in enumerate(["[UNK]", "[EOS]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"unk_token": "[UNK]", "eos_token": "[EOS]", "pad_token": "[EOS]"}
    model, data = tmp_path / "model", tmp_path / "data"
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(
        model
    )
    size = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}
    config = GPT2Config(vocab_size=len(vocabulary), **size)
    GPT2LMHeadModel(config).save_pretrained(model)
    data.mkdir()
    lines = (json.dumps({"text": " ".join(words[at : at + 9])}) for at in range(50))
    (data / "train.jsonl").write_text("\n".join(lines))
    options = {
        "model_name_or_path": model,
        "dataset_name": data,
        "output_dir": tmp_path / "out",
        "max_steps": 4,
        "logging_steps": 2,
        "per_device_train_batch_size": 2,
        "max_length": 16,
        "report_to": "none",
        "use_cpu": "true",
        "bf16": "false",
        "gradient_checkpointing": "false",
    }
    args = [word for name, value in options.items() for word in (f"--{name}", value)]

    run = nbkit.launch(
        module="trl.scripts.sft",
        args=args,
        environment={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub")},
        gpus=2,
        device="cpu",
        oversubscribe=True,
    ).wait()

    assert list(losses(run)) == [2, 4]
    [first, *_] = run.metrics("log")
    assert first["total_steps"] == 4
    assert first["values"]["num_tokens"] > 0  # TRL's own
    assert first["values"]["samples_per_second"] > 0


def llama(**size):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.device("meta"):
        return LlamaForCausalLM(LlamaConfig(vocab_size=128_256, **size))


def test_flops_of_llama_8b_are_those_of_torchtitan():
    heads = {"num_attention_heads": 32, "num_key_value_heads": 8}
    size = {"hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32}

    flops = ModelFlops.of(llama(**size, **heads))

    # As torchtitan's formula has them; 5762 tokens/s are 33.7 % of an H100 by them.
    assert flops.per_token(8192) == pytest.approx(57.91e9, rel=1e-3)
    assert flops.per_token(8192) * 5762 / 989.4e12 == pytest.approx(0.337, abs=1e-3)


# peft asks transformers for it.
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
def test_flops_of_llama_70b_with_lora_are_those_of_frozen_weights():
    peft = pytest.importorskip("peft")
    heads = {"num_attention_heads": 64, "num_key_value_heads": 8}
    size = {"hidden_size": 8192, "intermediate_size": 28_672, "num_hidden_layers": 80}
    lora = peft.LoraConfig(r=16, target_modules="all-linear")

    model = peft.get_peft_model(llama(**size, **heads), lora)

    adapters = sum(it.numel() for it in model.parameters() if it.requires_grad)
    weights = ModelFlops.of(model).weights - 6 * adapters
    assert weights == pytest.approx(278.0e9, rel=1e-3)  # as Megatron-Bridge counts


@pytest.mark.parametrize("number", range(20))
def test_trainer_that_is_stopped_resumes_to_the_same_loss(start, whole, number):
    run = start("callback", 60)
    wait_until(lambda: len(losses(run)) > number % 10, "a line of the trainer", 120)

    run.stop()

    if run.state is not RunState.FINISHED:
        run.resume().wait()
    assert losses(run).keys() <= whole.keys()
    assert max(losses(run)) == 60
    # The line in which it was stopped averages over what is left of it.
    assert losses(run)[60] == pytest.approx(whole[60], rel=1e-6)
