"""Machines out of bundles, what is compared of them, and what is measured here."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

import nbkit
from nbkit.errors import ParameterError
from nbkit.questions import machines
from nbkit.questions.machines.bundles import example_bundles, read_bundles
from nbkit.store.bundle_import import unpack_bundle
from nbkit.store.paths import RunPaths, reports_folder, runs_folder, studies_folder
from nbkit.store.record import read_json, write_json
from nbkit.studies.notebooks import parameters_of
from nbkit.studies.parameters import check_parameters

TWO, ONE = map(str, example_bundles())


def parameters(**values):
    """Return parameters as the notebook would."""
    cell = "\n".join(parameters_of(nbkit.notebook("machines")))
    return check_parameters([cell], values)


@pytest.fixture
def here(store):
    """Return the runs of one example in this store, as if they were its own."""
    unpack_bundle(ONE, store)
    return [RunPaths(folder) for folder in sorted(runs_folder().iterdir())]


def change(path, *names, value):
    """Change one value in a JSON file."""
    content = read_json(path)
    inner = content
    for name in names[:-1]:
        inner = inner.setdefault(name, {})
    inner[names[-1]] = value
    write_json(path, content)


def compared(here):
    """Return the result of an example against these runs."""
    bundles = [TWO, *(paths.run_id for paths in here)]
    return machines.result(machines.plan(parameters(bundles=bundles)), None)


def test_the_examples_are_small_and_hold_no_path_of_where_they_were_made():
    assert all(Path(path).stat().st_size < 150_000 for path in (TWO, ONE))
    for path in (TWO, ONE):
        with zipfile.ZipFile(path) as archive:
            text = b"".join(archive.read(name) for name in archive.namelist())
        assert set(re.findall(rb'[" =](/[\w.]+)', text)) == {b"/opt"}
        assert b"@" not in text


def test_reading_bundles_leaves_the_store_as_it_was(store):
    plan = machines.plan(parameters())

    assert not store.exists()
    assert (plan.a, plan.b) == ("two-cpu-vm", "one-cpu-vm")
    assert "without a GPU" in plan.notes[0]
    assert machines.measure(plan) is None
    saved = machines.report(machines.result(plan, None))
    assert saved.page.parent.parent == reports_folder()
    assert {path.name for path in store.iterdir()} == {".gitignore", "reports"}


def test_a_machine_may_be_named_and_the_ratio_turned_round():
    plan = machines.plan(parameters(a="one-cpu-vm", precision=["fp32"]))
    straight = machines.result(machines.plan(parameters()), None)

    [arm] = machines.result(plan, None).matched
    other = next(one for one in straight.matched if one.name == "fp32")
    assert arm.ratio.estimate == pytest.approx(1 / other.ratio.estimate)


def test_what_is_not_alike_is_listed_with_both_values_and_not_compared(here):
    for paths in here:
        if "fp32" in paths.run_id:
            change(paths.worker, "batch_size_per_gpu", value=64)

    result = compared(here)

    assert [arm.name for arm in result.matched] == ["bf16, batch_size_per_gpu 128"]
    assert [(one.condition, one.a, one.b) for one in result.left_out] == [
        ("batch_size_per_gpu", "128", "64")
    ]
    [table] = [t for t in result.report().tables if "not compared" in t.caption]
    assert "64" in table.to_text()


def test_runs_that_say_too_little_are_left_out_with_the_reason(here):
    alike = [paths for paths in here if "fp32" in paths.run_id]
    shared, unmeasured, *unknown_data, no_batch = alike
    change(shared.record, "launch", "oversubscribed", value=True)
    unmeasured.metrics.write_text("")
    nothing = dict.fromkeys(("kind", "files", "bytes", "sha256"))
    for paths in unknown_data:
        change(paths.config, "data", value="/images")
        change(paths.worker, "data", "fingerprint", value=nothing)
    change(no_batch.worker, "batch_size_per_gpu", value=None)

    _, notes = read_bundles([paths.run_id for paths in here])

    for paths, why in (
        (shared, "in which several ranks shared a device (oversubscribe)"),
        (unmeasured, "which has no measured step"),
        *(
            (one, "which does not record: fingerprint of the data")
            for one in unknown_data
        ),
        (no_batch, "which does not record: batch size"),
    ):
        assert f"Omitted: run {paths.run_id} of the store, {why}." in notes
    assert unknown_data


def test_everything_that_cannot_be_used_is_named_at_once(tmp_path, store, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    hostile = tmp_path / "hostile.zip"
    with zipfile.ZipFile(ONE) as good, zipfile.ZipFile(hostile, "w") as bad:
        for name in good.namelist():
            bad.writestr(name, good.read(name))
        bad.writestr("../../outside", "x")
    damaged = tmp_path / "damaged.zip"
    damaged.write_bytes(Path(ONE).read_bytes()[:2000])
    bundles = [
        str(hostile),
        str(damaged),
        str(tmp_path / "none.zip"),
        "20200101-000000",
    ]

    with pytest.raises(ParameterError) as raised:
        machines.plan(
            parameters(
                bundles=bundles,
                precision=["fp12"],
                published=["A100", "Voodoo 2"],
                repeats=0,
            )
        )

    text = str(raised.value)
    for part in (
        "hostile.zip cannot be imported",
        "damaged.zip cannot be imported",
        "none.zip cannot be read",
        "'20200101-000000'",
        "precision='fp12'",
        "published='Voodoo 2'",
        "repeats=0 is below 1",
    ):
        assert part in text
    assert not store.exists()
    assert not list(tmp_path.rglob("outside"))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"devices": [5]}, "contains an invalid record"),
        ({"world_size": [2], "devices": 5}, "cannot be .*devices=5"),
    ],
)
def test_a_whole_bundle_with_a_record_of_another_shape_is_refused(
    tmp_path, here, value, why
):
    for paths in here:
        write_json(paths.worker, read_json(paths.worker) | value)
    [study] = studies_folder().iterdir()
    bundle = nbkit.export(study.name, tmp_path / "odd.zip")

    with pytest.raises(ParameterError, match=rf"odd\.zip {why}"):
        machines.plan(parameters(bundles=[str(bundle)]))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"bundles": [ONE]}, "all runs are of one machine"),
        ({"a": "nowhere"}, "a='nowhere' is not a machine of the bundles"),
        ({"a": "two-cpu-vm", "b": "two-cpu-vm"}, "a and b are both 'two-cpu-vm'"),
        ({"model": "resnet50"}, "no training run (model=resnet50, "),
        ({"published": ["A100"]}, ": 1 GPU. List two different GPUs."),
        ({"published": ["A100", "A100"]}, ": 1 GPU. List two different GPUs."),
        ({"published": ["A100", "V100", "A100"]}, ": 3 GPUs. List two different"),
        (
            {"a": "two-cpu-vm", "b": "one-cpu-vm", "measure": True},
            "neither a='two-cpu-vm' nor b='one-cpu-vm' is 'this machine'",
        ),
    ],
)
def test_a_choice_that_compares_nothing_is_refused(values, said):
    with pytest.raises(ParameterError) as raised:
        machines.plan(parameters(**values))

    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"data": "/nowhere/images"}, "/nowhere/images"),
        ({"gpus": 512, "oversubscribe": False}, "gpus=512"),
    ],
)
def test_what_cannot_run_here_is_said_before_anything_starts(here, changed, said):
    known = {"source": "images", "kind": "images", "files": 9, "sha256": "0" * 64}
    for paths in here:
        write_json(paths.config, read_json(paths.config) | changed)
        change(paths.worker, "data", "fingerprint", value=known)

    with pytest.raises(ParameterError) as raised:
        machines.plan(parameters(bundles=[here[0].run_id], measure=True))

    assert "no training run of one-cpu-vm can run here" in str(raised.value)
    assert said in str(raised.value)


def test_without_two_like_runs_the_answer_says_so(here):
    for paths in here:
        change(paths.worker, "world_size", value=2)

    result = compared(here)

    assert "No comparison: no run of two-cpu-vm matches one of" in result.answer
    assert result.report().result["measured"] == []


def test_machine_of_a_slurm_cluster_is_the_cluster(here):
    for number, paths in enumerate(here):
        change(paths.record, "machine", "hostname", value=f"n{number}")
        change(paths.record, "machine", "usable_cpus", value=number + 1)
        change(paths.record, "launch", "job", value={"id": str(number)})
        variables = {"SLURM_CLUSTER_NAME": "gpus"}
        change(paths.record, "environment", "variables", value=variables)

    loaded, notes = read_bundles([paths.run_id for paths in here])

    [cluster] = loaded
    assert (cluster.name, len(cluster.runs)) == ("gpus", len(here)), notes
    change(here[0].record, "machine", "cpu_model", value="another CPU")
    assert len(read_bundles([paths.run_id for paths in here])[0]) == 2


def test_threads_of_cpu_runs_are_a_condition_and_are_repeated(here, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for paths in here:
        variables = {"OMP_NUM_THREADS": "1", "LD_PRELOAD": "/lib/other.so"}
        change(paths.record, "environment", "variables", value=variables)

    assert "No comparison: no run of" in compared(here).answer
    bundles = [paths.run_id for paths in here]
    plan = machines.plan(parameters(bundles=bundles, measure=True))
    assert plan.environment == {"OMP_NUM_THREADS": "1"}
    change(here[0].record, "environment", "variables", value={})
    plan = machines.plan(parameters(bundles=bundles, measure=True))
    assert "it ran with OMP_NUM_THREADS=1, and" in str(plan.omitted)


def test_threads_of_all_reduce_runs_are_no_condition(store, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    unpack_bundle(TWO, store)
    runs = [RunPaths(folder) for folder in runs_folder().iterdir()]
    trained = [it for it in runs if read_json(it.config)["task"] == "train"]
    for paths in trained:
        variables = {"OMP_NUM_THREADS": "1"}
        change(paths.record, "environment", "variables", value=variables)

    bundles = [paths.run_id for paths in runs]
    plan = machines.plan(parameters(bundles=bundles, measure=True))

    assert 0 < len(trained) < len(runs)
    assert plan.environment == {"OMP_NUM_THREADS": "1"}
