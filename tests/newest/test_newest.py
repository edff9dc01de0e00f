"""What fails with the newest packages is laid at the door of the package that it is."""

from __future__ import annotations

import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.newest.blame import blame
from tests.newest.environment import CannotInstallError, Environment, changes
from tests.newest.result import Result, Trial


def result() -> Result:
    return Result("3.13.1", "abc123", "2027-01-02T04:17:00+00:00")


class Shelf:
    """Packages, each of which may need others at a version."""

    def __init__(self, needs, missing=(), **versions):
        self.installed = dict(versions)
        self.needs = needs
        self.missing = missing

    def versions(self):
        return dict(self.installed)

    def conflicts(self):
        return {
            (name, needed)
            for name, version in self.installed.items()
            for needed, wanted in self.needs.get((name, version), {}).items()
            if self.installed.get(needed) != wanted
        }

    def install(self, pins):
        for name, version in pins.items():
            if name in self.missing and version != "1":
                message = f"no wheel of {name}"
                raise CannotInstallError(message)
            if version is None:
                del self.installed[name]
            else:
                self.installed[name] = version


def test_the_package_with_which_the_tests_fail_is_blamed_and_put_back():
    shelf = Shelf({}, good="1", bad="1")
    changed = changes({"good": "1", "bad": "1"}, {"bad": "2", "good": "2"})

    trials = list(
        blame(changed, shelf, lambda: ["t"] if shelf.installed["bad"] == "2" else [])
    )

    assert trials == [Trial(["bad"], ["t"]), Trial(["good"], [])]
    assert shelf.installed == {"good": "1", "bad": "1"}


def test_packages_that_need_each_other_are_tried_together_once():
    """As torch, torchvision and what is new with a torch."""
    needs = {
        ("torch", "1"): {"nccl": "1"},
        ("torch", "2"): {"nccl": "2", "new": "2"},
        ("vision", "1"): {"torch": "1"},
        ("vision", "2"): {"torch": "2"},
    }
    shelf = Shelf(needs, torch="1", vision="1", nccl="1", other="1")
    before = shelf.versions()
    newest = dict.fromkeys(["nccl", "new", "other", "torch", "vision"], "2")

    trials = list(
        blame(
            changes(before, newest), shelf, lambda: ["t"] * ("new" in shelf.installed)
        )
    )

    assert trials == [
        Trial(["nccl", "new", "torch", "vision"], ["t"]),
        Trial(["other"], []),
    ]
    assert shelf.versions() == before


def test_what_cannot_be_installed_beside_the_lock_is_said():
    # The lock's own conflicts are none of a newer package's.
    needs = {("old", "1"): {"gone": "1"}, ("a", "2"): {"b": "3"}}
    shelf = Shelf(needs, missing=("c",), a="1", b="1", c="1", old="1")
    before = shelf.versions()

    trials = list(
        blame(changes(before, {"a": "2", "c": "2"}), shelf, lambda: ["never"])
    )

    assert trials == [
        Trial(["a"], [], "a needs another b"),
        Trial(["c"], [], "no wheel of c"),
    ]
    assert shelf.versions() == before


def test_a_package_is_blamed_with_no_more_company_than_it_takes():
    found = result()
    found.state, found.failed = "failed", {"t": "", "u": ""}
    found.passes_with_lock = ["t", "u"]
    found.changed = {"lab": ["1", "2"], "server": ["1", "2"], "odd": ["1", "2"]}
    found.trials = [Trial(["lab", "server"], ["t"]), Trial(["server"], ["t"])]

    assert found.headline == (
        "1 test fails with server 2 in place of 1; "
        "1 test fails with the newest packages, and with no single one of them."
    )
    found.trials = [Trial(["lab", "server"], ["t", "u"]), Trial(["server"], ["t"])]
    assert "2 tests fail with lab 2 in place of 1, server 2 in place" in found.headline
    found.trials = [Trial(["lab", "server"], []), Trial(["odd"], said="odd needs x")]
    assert "2 tests fail with the newest packages, and with no" in found.headline
    table = "\n".join(found.lines())
    assert "lab      1       2       pass, together with server\n" in table
    assert "odd      1       2       cannot be installed: odd needs x\n" in table


def test_a_test_that_fails_with_the_lock_too_or_only_once_is_no_packages_fault():
    found = result()
    found.state, found.failed = "failed", {"new": "", "own": "x", "once": "y"}

    assert found.headline == "3 tests fail with the newest packages."
    found.failed_again = ["new", "own"]
    assert found.headline == (
        "2 tests fail with the newest packages; "
        "1 test failed once, but not when repeated."
    )
    found.passes_with_lock = ["new"]
    assert found.headline == (
        "1 test fails with the newest packages, and with no single one of them; "
        "1 test fails with the lock too; 1 test failed once, but not when repeated."
    )
    *_, new, once, own = found.lines()
    assert (new, once) == ("new", "once (once, but not when repeated): y")
    assert own == "own (with the lock too): x"


def test_a_build_of_a_version_is_that_version():
    tested = {"torch": "2.14.1", "numpy": "2.4.6", "dropped": "1"}
    newest = {"numpy": "2.5.0", "torch": "2.14.1+cu130", "new": "1"}

    assert changes(tested, newest) == {"numpy": ["2.4.6", "2.5.0"], "new": [None, "1"]}


@pytest.fixture
def environment(tmp_path):
    """Return what makes an environment with a package "thing" and the tests' own."""
    for version in ("1", "2"):
        make_wheel(tmp_path, version)

    def make(name, version):
        folder = tmp_path / name
        venv.create(folder, symlinks=True)
        (site,) = folder.glob("lib/python*/site-packages")
        with zipfile.ZipFile(tmp_path / f"thing-{version}-py3-none-any.whl") as wheel:
            wheel.extractall(site)
        (site / "outside.pth").write_text(sysconfig.get_path("purelib"))
        (folder / ".ready").touch()
        return Environment(folder)

    return make


def make_wheel(folder: Path, version: str) -> None:
    info = f"thing-{version}.dist-info"
    files = {
        "thing.py": f"VERSION = {version}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: thing\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n"
        "Root-Is-Purelib: true\n",
    }
    record = [*files, f"{info}/RECORD"]
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in record)
    with zipfile.ZipFile(folder / f"thing-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)


def test_an_environment_that_is_not_put_back_is_not_ready(environment):
    """For `.ci/setup` throws away what is unfinished."""
    changed = environment("lock", "1")
    folder = changed.python.parents[1]

    with pytest.raises(KeyboardInterrupt), changed.changing():
        raise KeyboardInterrupt

    assert not (folder / ".ready").exists()
    assert (folder / ".unfinished").exists()


def test_what_lacks_a_package_or_has_another_version_is_a_conflict(environment):
    has = environment("lock", "1")
    (site,) = has.python.parents[1].glob("lib/python*/site-packages")
    info = site / "user-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Name: user\nVersion: 1\nRequires-Dist: thing>1\nRequires-Dist: Lacking_One\n"
        "Requires-Dist: thing<2\nRequires-Dist: extra-one; extra == 'more'\n"
        "Requires-Dist: other-one; python_version < '3'\n"
    )

    assert has.conflicts() == {("user", "thing"), ("user", "lacking-one")}
