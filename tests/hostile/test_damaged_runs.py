"""A run whose files hold nonsense is refused with a sentence, whatever opens it."""

from __future__ import annotations

import copy
import itertools
import json
import lzma
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import nbkit
from nbkit.cli.main import main
from nbkit.errors import NbkitError, StoreError
from nbkit.launch.run import Run
from nbkit.widgets.picture import summary_html
from tests.golden.studies import FOLDER, STORED

pytestmark = pytest.mark.nonfinite

NONSENSE = [5, "x", [], {}, None, [1], {"a": 1}, True, float("inf"), [[]], -1, ""]
"""Each value is replaced by one of these, in turn."""

STEPS = {"record": 11, "submission": 5, "worker": 7, "config": 5}
"""One of so many places of a file is replaced, by how many it has."""

Place = tuple[str | int, ...]


@pytest.fixture
def runs(tmp_path):
    """Return runs of a study on GPUs."""
    bundle = tmp_path / "study.zip"
    bundle.write_bytes(
        lzma.decompress((FOLDER / "precision/gpu" / STORED).read_bytes())
    )
    nbkit.import_bundle(bundle)
    return list(nbkit.runs())


def places(value: Any, here: Place = ()) -> Iterator[Place]:
    """Yield where the values of an object are, and those in them."""
    inner = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    for name, one in inner:
        yield (*here, name)
        yield from places(one, (*here, name))


def replaced(values: Any, place: Place, nonsense: object) -> Any:
    """Return a copy with nonsense in one place."""
    changed = copy.deepcopy(values)
    inner = changed
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = nonsense
    return changed


def shown(run: Run, other: Run) -> dict[str, Callable[[], object]]:
    """Return the ways to look at a run."""
    return {
        "repr": lambda: repr(run),
        "cause": lambda: run.cause,
        "summary": lambda: summary_html(run.summary),
        "audit": lambda: str(nbkit.audit(run)),
        "audit of arms": lambda: str(nbkit.audit([run, other])),
        "diagnose": lambda: str(run.diagnose()),
        "compare": lambda: str(nbkit.compare(run, other)),
        "show": lambda: main(["show", run.run_id]),
    }


def python_errors(runs: list[Run], file: str, step: int = 1) -> list[str]:
    """Return what is raised for nonsense in every so many places of a file."""
    run, other = runs[:2]
    path = getattr(run.paths, file)
    whole = json.loads(path.read_text())
    found = []
    planted = zip(places(whole), itertools.cycle(NONSENSE))
    for place, nonsense in itertools.islice(planted, 0, None, step):
        path.write_text(json.dumps(replaced(whole, place, nonsense)))
        for how, look in shown(run, other).items():
            try:
                look()
            except NbkitError:
                pass
            except Exception as error:  # noqa: BLE001 - whatever it is, it is listed
                found.append(f"{how}: {place}={nonsense!r}: {error!r}")
    return found


@pytest.mark.parametrize("file", STEPS)
def test_nonsense_in_places_is_no_error_of_python(runs, file, capsys):
    # Each kind of nonsense is in some place; tests/soak takes every place.
    assert python_errors(runs, file, step=STEPS[file]) == []


@pytest.mark.parametrize("text", ["[" * 500_000, "x" * (1 << 18)])
def test_a_file_of_lines_without_a_line_hangs_nobody(runs, text, in_time, capsys):
    runs[0].paths.metrics.write_text(text)

    assert in_time(lambda: main(["runs"])) == 0
    assert in_time(lambda: main(["show", runs[0].run_id])) == 0
    assert runs[0].run_id in capsys.readouterr().out


def test_pipes_and_links_among_samples_hide_no_run(runs, in_time):
    run, other = runs[:2]
    run.paths.system_folder.mkdir(exist_ok=True)
    whole = {name: str(look()) for name, look in shown(run, other).items()}
    os.mkfifo(run.paths.system("pipe"))
    run.paths.system("link").symlink_to("/dev/zero")

    for name, look in shown(run, other).items():
        assert str(in_time(look)) == whole[name], name


def test_reading_any_file_that_is_a_pipe(runs, in_time, tmp_path, capsys):
    """Whoever opens it otherwise than by `nbkit.reading` waits for its other end."""
    run, other = runs[:2]
    study = run.submission["tags"]["study"]
    one = run.paths
    paths = [path for path in one.root.rglob("*") if path.is_file()]
    paths += [one.entry, one.operators, one.manifest, one.rank(0, 0).error]
    paths += [nbkit.Study.open(study).paths.study]
    readers = {
        **shown(run, other),
        "lists": lambda: main(["runs"]),
        "studies": lambda: main(["report", study]),
    }

    def look(read):
        with suppress(NbkitError):
            read()
        return True

    for path in paths:
        kept = path.rename(tmp_path / "kept") if path.exists() else None
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path)
        for read in readers.values():
            assert in_time(lambda read=read: look(read)), path
        path.unlink()
        if kept is not None:
            kept.rename(path)


@pytest.mark.parametrize("text", ["[" * 500_000, "[1]", '{"gpus": ' + "9" * 5000 + "}"])
def test_a_configuration_that_is_none_is_one_kind_of_error(runs, text):
    runs[0].paths.config.write_text(text)

    with pytest.raises(StoreError, match="is damaged"):
        _ = nbkit.attach(runs[0].run_id).config


def test_lines_without_a_kind_are_damage(runs):
    runs[0].paths.metrics.write_text('{"step": 1}\n')

    with pytest.raises(StoreError, match="is damaged"):
        runs[0].metrics()


def test_damaged_runs_among_several_are_findings_of_their_audit(runs):
    whole, damaged, old, *others = runs
    alone = set(nbkit.audit([whole, *others]))
    damaged.paths.record.write_text("[")
    old.paths.config.write_text('{"schema": "nbkit.config/99"}')

    audit = nbkit.audit(nbkit.runs())

    found = {one.subject for one in audit if one.code == "damaged"}
    assert found == {f"run {damaged.run_id}", f"run {old.run_id}"}
    assert alone <= set(audit)
    with pytest.raises(StoreError, match=r"record\.json"):
        nbkit.audit(damaged)
