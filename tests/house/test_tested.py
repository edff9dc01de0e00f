"""Which versions were tested travels with nbkit; it says what is newer here."""

from __future__ import annotations

import itertools
from importlib import metadata

from packaging.requirements import Requirement

from nbkit.packages import needed, newer_than_tested, newest_tested
from nbkit.telemetry import health
from tests.house.test_packaging import PROJECT


def install(folder, monkeypatch, name, version):
    """Let a package have another version in this process."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(text)
    monkeypatch.syspath_prepend(str(folder))


def packages():
    first = itertools.takewhile(lambda check: check.subject != "CPUs", health.checks())
    return [check for check in first if check.subject == "Packages"]


def test_the_lock_is_read_for_this_python_and_this_machine():
    versions = newest_tested()

    direct = {Requirement(line).name for line in PROJECT["dependencies"]}
    assert direct | {"torch", "torchvision"} <= versions.keys()
    assert "colorama" not in versions  # for Windows alone
    assert all(version[0].isdigit() for version in versions.values())


def test_what_nbkit_needs_are_its_packages_and_theirs():
    names = needed()

    assert {"torch", "tornado", "pydantic-core", "markupsafe", "torchao"} <= names
    assert not {"jupyterlab-nbkit", "pytest", "ruff", "jupyterhub", "pip"} & names


def test_a_package_that_is_newer_than_tested_is_a_fact(tmp_path, monkeypatch):
    version = newest_tested()["psutil"]
    install(tmp_path, monkeypatch, "psutil", "999.1")
    # nbkit does not need it.
    install(tmp_path, monkeypatch, "pytest", "999.1")

    (finding,) = packages()

    assert finding.severity == "note"
    assert finding.evidence.startswith("newer than tested: ")
    assert f"psutil 999.1 ({version} tested)" in finding.evidence
    assert "pytest" not in finding.evidence


def test_where_all_is_tested_nothing_is_said(tmp_path, monkeypatch):
    here = {name: metadata.version(name) for name in ("psutil", "tornado")}
    # A build of the version that was tested.
    install(tmp_path, monkeypatch, "torch", "2.14.1+cu130")

    assert newer_than_tested({**here, "torch": "2.14.1"}) == {}
    assert newer_than_tested({**here, "torch": "2.14.0"}) == {"torch": "2.14.1"}
    assert bool(packages()) == bool(newer_than_tested(newest_tested()))
