"""The software of a host, beside that of the launch."""

from __future__ import annotations

from nbkit.telemetry.software import software, software_differences


def test_every_difference_of_a_host_is_named():
    wanted = {"python": "3.11.2", "nbkit": "0.9", "torch": "2.7.1", "cuda": "12"}
    found = {"python": "3.11.2", "nbkit": "0.8", "torch": None}

    assert software_differences(wanted, found) == [
        "nbkit 0.8 (expected 0.9)",
        "torch missing (expected 2.7.1)",
        "cuda missing (expected 12)",
    ]


def test_a_host_may_have_more_than_is_asked_for():
    wanted = {**software(), "torch": None}

    assert software_differences(wanted, {**software(), "torch": "1.0"}) == []
