"""Rows of what nbkit measured, and runs beside them. The runs here are synthetic."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from dataclasses import replace
from importlib import resources

import pytest

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, NotEnoughDataError
from nbkit.references.measured import (
    reference_of,
    reference_sentence,
    row_of,
    rows_of,
)
from nbkit.references.rows import PublishedRows, published
from nbkit.store.nonfinite import NonFinite
from nbkit.store.record import write_json
from nbkit.store.stored_runs import StoredRun
from tests.golden.hosts import A100_NODE, H100_NODE
from tests.golden.outcome import Outcome, Start
from tests.golden.records import write_run
from tests.launch.conftest import plugins, small, store

__all__ = ["plugins", "small", "store"]

CONFIG = ExperimentConfig(
    model="resnet50",
    precision="fp16",
    batch_size_per_gpu=256,
    steps=60,
    warmup_steps=10,
    device="cuda",
)
RATE = 4_900.0


@pytest.fixture
def written(store):
    """Return what writes a finished run that no machine made."""
    numbers = iter(range(1, 100))

    def write(rate=RATE, host=H100_NODE, nonfinite=None, config=CONFIG, **changes):
        number = next(numbers)
        start = Start(f"20260302-100000-{number:04}", "a-study", "fp16", number, 1.8e9)
        outcome = Outcome(rate, noise=0.0, nonfinite=nonfinite)
        write_run(store, config.replace(**changes), host, start, outcome)
        return StoredRun(store / "runs" / start.run_id)

    return write


def test_row_of_has_the_median_of_the_starts_and_their_conditions(written):
    runs = [written(rate) for rate in (4_800.0, 4_950.0, 4_900.0)]
    rates = sorted(run.summary.images_per_second for run in runs)

    row = row_of(runs)

    assert row.images_per_second == pytest.approx(rates[1], abs=0.05)
    assert (row.runs, row.publisher, row.origin) == (3, "nbkit", "measured")
    assert (row.gpu_name, row.world_size) == ("H100-SXM-80GB", 1)
    assert (row.model, row.precision, row.data) == ("resnet50", "fp16", "synthetic")
    assert (row.batch_size_per_gpu, row.memory_format) == (256, "channels_last")
    assert row.compile is False
    assert row.statistic_detail.endswith(f"range {rates[0]:,.0f} to {rates[2]:,.0f}")
    for fact in ("cudnn.benchmark on", "driver 575.57.08", "power limit 700 W"):
        assert fact in row.conditions
    assert row.software == "nbkit 0.1.0, torch 2.8.0+cu128"
    assert row_of(runs[0]).runs == 1
    assert "range" not in row_of(runs[0]).statistic_detail


def test_rows_of_a_study_are_the_lines_of_the_data_file(written, store):
    runs = [written(), written(400.0, precision="fp32"), written()]

    rows = rows_of(runs)

    assert [(row.precision, row.runs) for row in rows] == [("fp16", 2), ("fp32", 1)]
    command = [sys.executable, "-m", "nbkit.references.measured"]
    printed = subprocess.run(
        [*command, *(run.run_id for run in runs)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    assert printed == rows.to_csv()
    [first, second] = csv.DictReader(io.StringIO(printed))
    assert (first["compile"], first["runs"], second["runs"]) == ("no", "2", "1")


def test_to_csv_writes_the_data_file_that_it_was_read_from():
    file = resources.files("nbkit.references") / "measured.csv"

    rows = PublishedRows(row for row in published() if row.publisher == "nbkit")

    assert len(rows) == 7
    assert rows.to_csv() == file.read_text(encoding="utf-8")
    assert {row.origin for row in rows} == {"measured"}
    assert {row.gpu_name for row in rows} == {"H100-SXM-80GB"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"image_size": 160}, "image_size=160"),
        ({"cuda_graphs": True}, "cuda_graphs=True"),
        ({"host": replace(H100_NODE, gpu="Imaginary 9000")}, "GPU='Imaginary 9000'"),
    ],
)
def test_row_of_refuses_what_a_row_cannot_say(written, changes, why):
    with pytest.raises(ConfigError, match=why):
        row_of(written(**changes))


@pytest.mark.nonfinite
def test_row_of_refuses_runs_without_one_rate(written):
    with pytest.raises(NotEnoughDataError, match="No runs"):
        row_of([])
    with pytest.raises(ConfigError, match="differ in batch_size_per_gpu"):
        row_of([written(), written(batch_size_per_gpu=128)])
    with pytest.raises(NotEnoughDataError, match="finite"):
        row_of(written(nonfinite=NonFinite("loss", 9)))


@pytest.mark.nonfinite
def test_reference_sentence_has_both_rates_and_their_ratio(written):
    runs = [written(), written(), written()]
    [row] = [one for one in published(publisher="nbkit") if one.runs == 3]
    rate = sorted(run.summary.images_per_second for run in runs)[1]

    assert reference_of(runs[0]) == row
    assert reference_sentence(runs, "fp16, 1 GPU") == (
        f"fp16, 1 GPU: {rate:,.0f} images/s (n=3); nbkit measured 4,903 (n=3) on the "
        f"same GPU model; these runs reach {100 * rate / 4_903:.1f}% of that rate."
    )
    assert reference_sentence([written(nonfinite=NonFinite("loss", 9))], "fp16") == ""
    assert reference_sentence([], "fp16") == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"host": A100_NODE},
        {"model": "resnet18"},
        {"precision": "bf16"},
        {"batch_size_per_gpu": 128},
        {"memory_format": "channels_first"},
        {"compile": True},
        {"cuda_graphs": True},
        {"image_size": 160},
        {"gpus": 2},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_reference_of_other_conditions_is_none(written, changes):
    assert reference_of(written()) is not None
    assert reference_of(written(**changes)) is None


@pytest.mark.parametrize(("benchmark", "rate"), [(True, 956.0), (False, 885.0)])
def test_reference_of_is_that_of_the_same_cudnn_setting(written, benchmark, rate):
    run = written(950.0, precision="fp32")
    write_json(run.paths.worker, {**run.worker, "cudnn_benchmark": benchmark})

    assert reference_of(run).images_per_second == rate


def test_reference_of_replayed_gpus_is_none(written):
    run = written()
    launch = {**run.record["launch"], "replayed": True}
    write_json(run.paths.record, {**run.record, "launch": launch})

    assert reference_of(run) is None


@pytest.mark.nonfinite
def test_compare_shows_a_run_beside_a_published_row(written):
    run = written()
    row = reference_of(run)

    same = nbkit.compare(run, row)

    assert same.sentence == reference_sentence([run])
    assert same.is_alike
    [other] = [
        one
        for one in published(publisher="NVIDIA", gpu_name="V100-SXM2-32GB")
        if (one.precision, one.images_per_second) == ("fp16", 1_156)
    ]
    unlike = nbkit.compare(run.run_id, other)
    assert unlike.sentence.endswith("NVIDIA published 1,156 under other conditions.")
    found = {one.name: (one.a, one.b) for one in unlike.differences}
    assert found["gpu_name"] == ("NVIDIA H100 80GB HBM3", "V100-SXM2-32GB")
    assert found["data"] == ("synthetic", "real")
    assert "precision" not in found
    ffcv = nbkit.compare(run, published(publisher="ffcv")[0]).differences
    sizes = {one.name: one.b for one in ffcv}
    assert sizes["image_size"] == "progressive resize 160->192 px"
    diverged = nbkit.compare(written(nonfinite=NonFinite("loss", 9)), row)
    assert "Diverged" in diverged.sentence
    assert "%" not in diverged.sentence
