"""What the storage report says follows from what was read and measured."""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from nbkit.questions.storage.epochs import EpochRow
from nbkit.questions.storage.page import StorageResult
from nbkit.questions.storage.places import Place, Source
from nbkit.questions.storage.reads import Reads
from nbkit.questions.storage.tables import epochs_table
from nbkit.readspeed import measure
from nbkit.readspeed.places import describe_place
from nbkit.reports.page import Evidence
from nbkit.reports.renderer import Figure, Table
from nbkit.statistics import summarise
from nbkit.store.nonfinite import NonFinite
from tests.disk import on_disk

EMULATED = {
    "seconds": 0.1,
    "images_per_second": 3411.0,
    "gpu_name": "A100-80GB",
    "source": "3,411 images/s of resnet50, published by NVIDIA, 2022",
    "title": "NVIDIA's table",
    "url": "https://example.org/table",
}


def row(stage, *, runs=5, first=600.0, busy=None, **facts):
    spread = [1 + 0.002 * (n - runs // 2) for n in range(runs)]
    values = {
        "arm": f"nas, {stage}",
        "stage": stage,
        "source": "nas",
        "n": runs,
        "first": summarise([first * one for one in spread]),
        "later": summarise([2 * first * one for one in spread]),
        "first_utilization": busy and summarise([busy * one for one in spread]),
        "later_utilization": None,
        "data_wait_share": 0.97,
        "arrived_bytes": 88 * 10**6,
        "first_runs": tuple(first * one for one in spread),
        "later_runs": tuple(2 * first * one for one in spread),
        "cache": "cold, proven",
        "is_cold": True,
        **facts,
    }
    return EpochRow(**values)


@pytest.fixture(scope="module")
def reads(tmp_path_factory):
    """Return how fast a file was read just now, in order and at random."""
    with on_disk(tmp_path_factory.mktemp("reads")) as folder:
        path = folder / "file.bin"
        path.write_bytes(os.urandom(2**23))
        return [
            ("nas", measure(path, cache=cache, pattern=pattern, repeats=2, threads=1))
            for pattern in ("sequential", "random")
            for cache in ("cold", "warm")
        ]


@pytest.fixture
def result(reads, tmp_path):
    """Return what a study of one place says."""
    source = Source("nas", "/mnt/nas", "image folder", 400, 400, 44 * 10**6)
    study = SimpleNamespace(kind="storage", control=("nas, load", "nas, load again"))
    plan = {"cache": "cold", "emulated": EMULATED, "gpus": 8, "notes": ["said first"]}
    plan |= {"memory_bytes": 10**12, "chosen": {"data": ["nas=/mnt/nas"], "repeats": 5}}
    facts = {"device_name": "a GPU", "study_id": "s"}
    return StorageResult(
        Evidence(study, {}, {}, facts, plan, repeats=5, is_cpu=False),
        rows=[row("load"), row("emulate", busy=0.35)],
        reads=Reads(tuple(reads)),
        places=(Place("nas", "/mnt/nas", (source,), False, describe_place(tmp_path)),),
    )


def with_evidence(result, *, plan=None, **facts):
    """Return the same of other evidence; of a plan only what is named differs."""
    plan = {**result.evidence.plan, **(plan or {})}
    return replace(result, evidence=replace(result.evidence, plan=plan, **facts))


def cells(table, first):
    """Return the first row that begins so, by column."""
    found = next(one for one in table.rows if one[0] == first)
    return dict(zip(table.columns, found, strict=True))


def test_a_starved_accelerator_is_called_so_and_five_runs_are_needed(result):
    assert cells(result.table, "nas, emulate")["verdict"] == "starved"

    few = replace(result, rows=[row("emulate", runs=2, busy=0.35)])
    assert cells(few.table, "nas, emulate")["verdict"] == "not enough runs"
    assert "2 runs, not enough runs" in few.answer


def test_a_pack_is_compared_with_files_and_the_control_says_what_is_noise(result):
    packed = row("load", first=900.0, source="nas", arm="nas, packed")
    twin = row("load", arm="nas, load again")
    both = replace(result, rows=[row("load"), packed, twin])

    found = cells(both.comparison, "nas, packed")
    assert (found["first epoch"], found["verdict"]) == ("1.500", "faster")
    assert "noise floor" in both.comparison.notes[0]
    assert "nothing to compare" in result.comparison.to_text()


def test_reads_show_their_range_the_mean_and_what_cold_rests_on(result):
    table = result.reads.table

    assert [one[1:3] for one in table.rows] == [
        ["sequential", "cold, proven"],
        ["sequential", "warm"],
        ["random", "cold, proven"],
        ["random", "warm"],
    ]
    assert "no page in this machine's memory" in " ".join(table.notes)
    assert {one[-1] for one in table.rows} == {"own reader"}
    assert "fio counts milliseconds" in " ".join(table.notes)
    assert "in order, one thread reads 512 KiB after 512 KiB" in " ".join(table.notes)


def test_demand_is_a_published_rate_and_supply_a_measured_one(result):
    table = result.supply

    assert isinstance(table, Table)
    asked = 8 * 3411
    assert result.demand.images_per_second == asked
    _, first, *others = table.notes
    assert first.startswith("Demand, not measured: 8 x A100-80GB at 27,288 images/s")
    assert "(nas 110 kB each, 3 GB/s)" in first
    assert "published by NVIDIA" in first
    assert any("MLPerf Storage assumes 919.5 images/s" in note for note in others)
    loader = next(one for one in table.rows if "first epoch" in one[1])
    assert loader[-1] == f"{600 / asked:.2f} x"
    assert loader[-2] == f"{600 * 110_000 / 1e9:.3g}"
    assert not any("warm" in one[1] for one in table.rows)


def test_one_run_has_no_lowest_and_no_highest_rate(result):
    table = replace(result, rows=[row("load", runs=1)]).supply

    of_loader = [one[3:5] for one in table.rows if one[1].startswith("loader")]
    assert of_loader == [[None, "1"], [None, "1"]]


def two_sources(result):
    """Return the same of two data sets, one of which has images ten times as large."""
    [place] = result.places
    large = Source("large", "/mnt/large", "image folder", 400, 400, 440 * 10**6)
    both = (place, replace(place, name="large", sources=(large,)))
    rows = [row("load"), row("load", source="large", arm="large, load")]
    return replace(result, places=both, rows=rows)


def test_every_data_set_has_a_demand_of_its_own_size_and_loaders_are_compared_in_images(
    result,
):
    both = two_sources(result)
    table = both.supply

    assert "large 1,100 kB each, 30 GB/s" in table.notes[1]
    loaders = [one for one in table.rows if "first epoch" in one[1]]
    assert [one[0] for one in loaders] == ["nas", "large"]
    assert len({one[-1] for one in loaders}) == 1
    assert [one[-2] for one in loaders] == ["0.066", "0.66"]


def test_an_epoch_from_memory_decides_nothing_and_a_control_is_no_supply(result):
    twin = row("load", arm="nas, load again")
    warm = row("load", cache="warm", is_cold=False)
    both = replace(result, rows=[warm, twin])

    loaders = [one for one in both.supplies if one.origin == "loader"]
    assert [one.what for one in loaders] == [
        "loader, first epoch, warm",
        "loader, later epochs",
    ]
    assert not any(one.decides for one in loaders)


def test_only_the_set_that_the_answer_names_is_judged_by_its_size(result):
    # Of 440 MB and 44 MB, five times the memory is between.
    both = with_evidence(two_sources(result), plan={"memory_bytes": 50 * 10**6})
    large = row("emulate", busy=0.5, source="large", arm="large, emulate")
    small = row("emulate", busy=0.6, arm="nas, emulate")

    assert replace(both, rows=[large]).answer.startswith("large keeps 8")
    assert replace(both, rows=[large, small]).answer.startswith("cache test: nas keeps")


def test_without_a_gpu_to_emulate_nothing_is_compared(result):
    alone = replace(result, rows=[row("load")])
    alone = with_evidence(alone, plan={"emulated": None})

    assert alone.demand is None
    assert "no GPU's demand was compared" in alone.answer
    assert alone.report().to_dict()["result"]["demand"] is None


def test_a_small_data_set_is_a_cache_test_and_a_large_one_is_not(result):
    assert cells(result.where, "nas")["so it is a"] == "cache test"

    large = with_evidence(result, plan={"memory_bytes": 10**6})
    assert cells(large.where, "nas")["so it is a"] == "storage test"
    assert large.answer.startswith("nas keeps")


def test_the_charts_tell_measured_from_published_by_mark_and_legend(result):
    assert isinstance(result.figure, Figure)
    text = str(result.figure.chart.to_dict())

    assert "asked for by 8 x A100-80GB" in text
    assert "By a rate that others published" in text
    assert "nas: random reads, cold" in text
    assert result.figure.png
    for figure in result.over_time:
        assert figure.png


def test_the_report_keeps_every_reading_and_what_to_do_next(result):
    report = result.report().to_dict()

    assert report["next_step"] == (
        "papermill notebooks/storage.ipynb out.ipynb -p data nas=/mnt/nas -p repeats 5"
    )
    assert len(report["result"]["reads"][0]["speed"]["readings"]) == 2
    assert report["notes"][0] == "said first"
    assert any("no page is left" in one for one in report["method"])
    assert Reads.of(report["result"]) == result.reads


def test_what_limits_stands_under_the_supply_alone(result):
    [said] = [note for note in result.supply.notes if "cold random reads" in note]

    # Notes stay where the answer is taken back.
    assert said not in result.report().notes


def test_a_training_that_is_not_finite_is_no_best_and_stays_in_the_table(result):
    lost = NonFinite("loss", 3)
    quick, slow = row("train"), row("load")
    found = replace(result, rows=[replace(quick, arm="quick"), slow])

    best = with_evidence(found, plan={"emulated": None})
    other = with_evidence(best, lost={"quick": lost})
    none = with_evidence(best, lost={"quick": lost, slow.arm: lost})

    assert best.answer.startswith("cache test: quick has")
    assert other.answer.startswith(f"cache test: {slow.arm} has")
    assert none.answer.startswith("Nothing is compared")
    assert cells(other.table, "quick")


def test_the_next_step_has_no_sizes_that_were_for_cpus(result):
    chosen = {"data": ["nas=/mnt/nas"], "image_size": 32, "device": "cpu"}
    on_cpus = with_evidence(result, plan={"chosen": chosen}, is_cpu=True)

    assert on_cpus.report().next_step == (
        "on a machine with GPUs: "
        "papermill notebooks/storage.ipynb out.ipynb -p data nas=/mnt/nas"
    )


def test_few_runs_of_an_epoch_are_shown_and_those_of_two_states_told():
    two_states = (100.0, 100.1, 110.0, 110.1, 110.2)
    rows = [row("load", later_runs=two_states), row("train", runs=6)]

    source = Source("nas", "/mnt/nas", "image folder", 400, 400, 44 * 10**6)

    *_, shown, grouped = epochs_table(rows, [source], is_cpu=False).notes

    assert "; nas, load, later: 100.0, 100.1, 110.0, 110.1, 110.2." in shown
    assert "nas, train" not in shown
    assert grouped.startswith("The runs of nas, load, later fall into two groups")
