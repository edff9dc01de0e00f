"""The workflows run what is tested here: targets of make, and programs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.house.test_packaging import PYTHONS, ROOT

FLOWS: dict[str, dict[Any, Any]] = {
    path.stem: yaml.safe_load(path.read_text())
    for path in ROOT.glob(".github/workflows/*.yml")
}
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))


def steps(flow: str, job: str) -> list[dict[str, Any]]:
    return FLOWS[flow]["jobs"][job].get("steps", [])


def commands() -> Iterator[str]:
    for name, flow in FLOWS.items():
        for job in flow["jobs"]:
            yield from (one["run"] for one in steps(name, job) if "run" in one)


def test_every_python_that_is_declared_is_installed_on_and_its_ends_are_tested():
    jobs = FLOWS["ci"]["jobs"]
    tested = jobs["test"]["strategy"]["matrix"]["python"]

    assert set(FLOWS) == {"ci", "newest", "release"}
    assert jobs["install"]["strategy"]["matrix"]["python"] == PYTHONS
    assert {PYTHONS[0], PYTHONS[-1]} <= set(tested) <= set(PYTHONS)


def test_what_a_workflow_calls_is_here():
    named = " ".join(commands())

    called = re.findall(r"\bmake ([\w-]+)", named)
    assert {"test-newest", "test-lowest"} <= set(called) <= TARGETS
    for module in re.findall(r"python -m (tests[\w.]+)", named):
        assert (ROOT / module.replace(".", "/")).with_suffix(".py").exists()
    for program in re.findall(r"\.ci/\w+", named):
        assert (ROOT / program).exists()
