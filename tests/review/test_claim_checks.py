"""What reports say about their numbers is judged by its own arithmetic."""

from __future__ import annotations

import pytest

from nbkit.references.rows import published
from nbkit.review.claim_checks import (
    CHECKS,
    PublishedClaim,
    cache_evidence,
    claim_findings,
    claims,
    claims_about,
)

ROWS = published()


def codes(check, **values):
    claim = PublishedClaim("a claim", {}, check, "said", values, "A report", None)
    return [finding.code for finding in claim_findings(claim)]


def points(*pairs):
    return [
        {"label": f"run {number}", "images_per_second": rate, "seconds": seconds}
        for number, (rate, seconds) in enumerate(pairs, 1)
    ]


@pytest.mark.parametrize(
    ("check", "values", "expected"),
    [
        ("mean", {"value": 10, "of": [9, 12], "last_digit": 1}, []),  # cut from 10.5
        ("mean", {"value": 11, "of": [9, 12], "last_digit": 1}, []),  # rounded
        ("mean", {"value": 12, "of": [9, 12], "last_digit": 1}, ["mean"]),
        ("ratio", {"value": 3.33, "a": 10, "b": 3, "last_digit": 0.01}, []),
        ("ratio", {"value": 3.35, "a": 10, "b": 3, "last_digit": 0.01}, ["ratio"]),
        ("rank-inversion", {"points": points((100, 60), (110, 55))}, []),
        (
            "rank-inversion",
            {"points": points((100, 60), (110, 61))},
            ["rank-inversion"],
        ),
        ("cache", {"data_bytes": 40, "host_memory_bytes": 8, "epochs": 90}, []),
        (
            "cache",
            {"data_bytes": 39, "host_memory_bytes": 8, "epochs": 90},
            ["cache-test"],
        ),
        (
            "cache",
            {"data_bytes": 40, "host_memory_bytes": 8, "epochs": 90, "nnodes": 2},
            ["cache-test"],
        ),
        ("cache", {"data_bytes": 7, "host_memory_bytes": 8, "epochs": 1}, []),
        (
            "cache",
            {"data_bytes": 7, "host_memory_bytes": 8, "epochs": 2},
            ["cache-test"],
        ),
        ("result-count", {"stated": 2, "listed": 2, "of": "runs"}, []),
        ("result-count", {"stated": 2, "listed": 3, "of": "runs"}, ["result-count"]),
        ("quoted", {"printed": {"table": 10.25, "text": 10.25}}, []),
        ("quoted", {"printed": {"table": 10.25, "text": 10}}, ["rounded"]),
        ("quoted", {"printed": {"table": 10.25, "text": 11}}, ["contradiction"]),
        ("rounding", {"figures": [5512, 2703], "difference": 0.02}, []),
        ("rounding", {"figures": [5500, 2700], "difference": 0.02}, ["rounded"]),
        ("command", {"command": "sysctl vm.drop_caches=3"}, []),
        ("command", {"command": "sysctl vm.drop_caches=3dd"}, ["command"]),
        ("command", {"command": "train --size 3 --dali-threads 6 -"}, []),
        ("command", {"command": "train --dali- threads 6"}, ["command"]),
    ],
)
def test_a_check_tells_right_from_wrong(check, values, expected):
    assert codes(check, unit="s", **values) == expected


def test_epochs_come_from_memory_only_if_the_data_fit():
    values = {"data_bytes": 9e9, "host_memory_bytes": 8e9, "epochs": 90}
    claim = PublishedClaim("a claim", {}, "cache", "said", values, "A report", None)

    [finding] = claim_findings(claim)

    assert finding.evidence == (
        "dataset (9 GB) is 1.1x memory (8 GB); MLPerf Storage requires 5x"
    )


def test_very_small_data_are_less_than_a_hundredth_of_the_memory():
    evidence = cache_evidence(1e6, 1e12, 1)

    assert evidence is not None
    assert "dataset (0.001 GB) is less than 0.01x memory" in evidence


def test_time_and_rate_cannot_be_more_than_the_work():
    epochs = {"images_per_epoch": 1000, "epochs": 10}

    assert codes("excess-images", points=points((100, 100)), **epochs) == []
    assert codes("excess-images", points=points((100, 101), (90, 100)), **epochs) == [
        "excess-images"
    ]


def test_what_a_comparison_is_about_may_differ_and_nothing_else():
    arms = [{"world_size": 1, "driver": "525"}, {"world_size": 8, "driver": "450"}]

    assert codes("environment", points=arms, varied=["world_size", "driver"]) == []
    assert codes("environment", points=arms, varied=["world_size"]) == [
        "mixed-environment"
    ]


def test_demand_is_rate_times_bytes_of_an_image():
    asked = {"images_per_second": 1000, "bytes_per_image": 100_000}

    assert codes("demand", **asked, storage_bytes_per_second=1.1e8) == []
    assert codes("demand", **asked, storage_bytes_per_second=0.9e8) == ["demand"]


def test_every_stored_claim_belongs_to_published_rows_and_has_its_source():
    for claim in claims():
        rows = [row for row in ROWS if claim.is_about(row)]
        assert rows, claim.name
        assert claim.check in CHECKS, claim.name
        assert claim.url in {row.url for row in rows}, claim.name
    assert len({claim.name for claim in claims()}) == len(claims())
    assert claims_about([]) == []


def evidence(name):
    [claim] = [claim for claim in claims() if claim.name == name]
    return {finding.code: finding.evidence for finding in claim_findings(claim)}


def test_the_errors_of_the_storage_report_are_found():
    assert evidence("mean run time")["mean"] == (
        "printed 35:09 (2,109 s), but the 5 printed values give 35:05 (2,105.2 s)"
    )
    assert "39.9 epochs, but the run has 37" in str(
        [
            f.evidence
            for c in claims()
            for f in claim_findings(c)
            if f.code == "excess-images"
        ]
    )
    assert evidence("single jobs, order")["rank-inversion"] == (
        "network storage 22,231 images/s in 34:54, local storage 22,102 images/s in "
        "34:21"
    )
    assert (
        "run 2 23,438 images/s in 36:21"
        in evidence("concurrent jobs, order")["rank-inversion"]
    )
    cached = evidence("network against local storage")["cache-test"]
    assert cached == (
        "dataset (144 GB) is 0.14x memory (1,000 GB); MLPerf Storage requires 5x; 36 "
        "of 37 epochs can be read from memory"
    )
    assert (
        "2.4 GB/s, but the storage was measured at 1.5"
        in evidence("network storage")["demand"]
    )
    assert "1.7 GB/s" in evidence("local storage")["demand"]
    assert "vm.drop_caches=3dd" in evidence("read test command")["command"]
    assert "--dali-" in evidence("training command")["command"]
    assert (
        "2 servers are described, but 5 results"
        in evidence("concurrent jobs")["result-count"]
    )


def test_the_errors_of_the_framework_tables_are_found():
    ratio = evidence("A100, 1 GPU")["ratio"]
    assert ratio == "printed 2.18, but 3,410.52 / 1,055.78 is 3.23"
    environment = evidence("1, 8 and 32 GPUs")["mixed-environment"]
    assert "driver: 525, 450.80.02" in environment
    assert "measured: August 2023, June 2022" in environment
    batch = evidence("FP32 batch")["contradiction"]
    assert "comparison table: 256" in batch
    assert "128" in batch


def test_the_rounding_of_the_virtual_machine_report_is_found():
    assert "10,675.0925" in evidence("4 nodes, virtual machines")["rounded"]
    rounded = evidence("virtual machines on one node")["rounded"]
    assert "2,700 +- 50 (1.9%)" in rounded
    assert "5,500" not in rounded


def test_claims_that_hold_pass():
    right = [claim.name for claim in claims() if not list(claim_findings(claim))]

    assert len(right) == 13
    assert "mean rate" in right
    assert "command before each run" in right
    assert "single jobs, work" in right
    assert "A100, mixed precision, 8 GPUs" in right
    assert sum(name.startswith("V100 ") for name in right) == 9
