"""How long waits of tests may take."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace

import pytest

from tests import ports, waiting
from tests.waiting import load, patience, patient, stalled, wait_until


@pytest.mark.parametrize(
    ("pressure", "factor"),
    [
        ("some avg10=0.00 avg60=0.00 avg300=99.00 total=1\nfull avg10=75.00", 1),
        ("some avg10=75.00 avg60=50.00 avg300=0.00 total=1", 4),
        ("some avg10=0.00 avg60=50.00 avg300=0.00 total=1", 2),
        ("some avg10=100.00 avg60=100.00 avg300=0.00 total=1", 8),
        ("", 1),
    ],
)
def test_patience_grows_with_the_time_that_processes_wait_for_a_cpu(pressure, factor):
    assert stalled(pressure) == pytest.approx(factor)


def test_patience_is_what_was_told_or_more_and_eight_at_most(monkeypatch):
    monkeypatch.delenv("NBKIT_TEST_PATIENCE", raising=False)
    assert 1 <= patience() <= 8
    monkeypatch.setenv("NBKIT_TEST_PATIENCE", "3")
    assert 3 <= patience() <= 8
    monkeypatch.setenv("NBKIT_TEST_PATIENCE", "1000")
    assert patience() == 8
    assert patient(60) == 480


def test_patience_grows_with_load(monkeypatch, tmp_path):
    assert load() > 0
    monkeypatch.setattr(waiting, "_PRESSURE", tmp_path / "a kernel without it")
    monkeypatch.setattr(waiting, "load", lambda: 3.0)
    monkeypatch.setenv("NBKIT_TEST_PATIENCE", "0.1")
    assert patience() == 3


def test_a_wait_is_longer_where_the_machine_is_busy(monkeypatch):
    asked = []
    monkeypatch.setattr(waiting, "patience", lambda: asked.append(True) or 10_000)

    # True only once it has taken longer than on an idle machine.
    assert wait_until(lambda: bool(asked), "that patience is asked for", 0.001)


def test_a_wait_says_how_long_it_took(monkeypatch):
    clock = SimpleNamespace(monotonic=iter([10.0, 12.4]).__next__)
    monkeypatch.setattr(waiting, "time", clock)

    with pytest.raises(AssertionError, match=r"^waited 2 s for: a state$"):
        wait_until(lambda: False, "a state", 0)


def test_processes_that_share_the_tests_are_given_different_ports(monkeypatch):
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "4")
    own = []
    for number in range(5):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{number}")
        own.append(set(ports.of_this_process()))
        assert ports.free_port() in own[number]

    assert all(it.isdisjoint(other) for it, other in combinations(own[:4], 2))
    # The fifth replaces the first, which has died.
    assert own[4] == own[0]


def test_a_port_is_given_once(monkeypatch):
    few = [ports.free_port() for _ in range(3)]
    monkeypatch.setattr(ports, "of_this_process", lambda: few)
    monkeypatch.setattr(ports, "_given", set())

    assert sorted(ports.free_port() for _ in few) == sorted(few)
