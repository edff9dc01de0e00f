"""CONTRIBUTING.md says how something is added; here its blocks of code are followed."""

from __future__ import annotations

import ast
import json
import os
import tomllib
from types import SimpleNamespace

import pytest

import nbkit
from nbkit import registry
from nbkit.live.run import LiveRun
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import RunState
from tests.house.documents import ROOT, blocks, section
from tests.training import train_here
from tests.waiting import wait_until

PAGE = (ROOT / "CONTRIBUTING.md").read_text()
EXAMPLES = (*("### A model", "### A metric", "### A loader", "### An engine"),)


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    """Install the page's files as a distribution that ends with this file's tests."""
    folder = tmp_path_factory.mktemp("plugin")
    project = tomllib.loads(blocks(PAGE, "toml")[0].text)
    named = [block for block in blocks(PAGE) if block.file]
    for block in named:
        with (folder / block.file).open("a") as file:
            file.write(block.text)
    modules = project["tool"]["setuptools"]["py-modules"]
    assert {f"{module}.py" for module in modules} == {block.file for block in named}
    name, version = project["project"]["name"], project["project"]["version"]
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    lines = []
    for group, entries in project["project"]["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {at}" for name, at in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NBKIT_HOME", str(folder / "store"))
        patch.setenv("PYTHONPATH", str(folder))
        patch.syspath_prepend(str(folder))
        registry.forget()
        yield folder
    registry.forget()


def launched(heading, launcher=nbkit):
    """Do what the last block below a heading says; return its run."""
    *_, call = blocks(section(PAGE, heading))
    (statement,) = ast.parse(call.text).body
    assert isinstance(statement, ast.Expr)
    code = compile(ast.Expression(statement.value), "page", "eval")
    return eval(code, {"nbkit": launcher})


def trained_here(heading):
    """Do it in this process: that ranks find plug-ins is shown with the engine."""

    def launch(**fields):
        return train_here(nbkit.ExperimentConfig(device="cpu", **fields))

    return launched(heading, SimpleNamespace(launch=launch))


@pytest.mark.parametrize("heading", [*EXAMPLES, "### A question", "### A notebook"])
def test_what_is_to_be_added_takes_a_dozen_lines(heading):
    found = blocks(section(PAGE, heading))
    added = found if heading == "### A notebook" else [b for b in found if b.file]

    limit = 20 if heading == "### A question" else 12
    assert 0 < sum(block.num_lines for block in added) <= limit


def test_the_page_names_every_room():
    packages = {
        path.name.removesuffix(".py")
        for path in (ROOT / "nbkit").iterdir()
        if path.name[0] != "_"
        and (path.suffix == ".py" or (path / "__init__.py").exists())
    }

    missing = [package for package in sorted(packages) if f"`{package}`" not in PAGE]
    assert missing == []


def test_the_model_trains(plugin):
    run = trained_here("### A model")

    assert run.state is RunState.FINISHED
    assert [line["step"] for line in run.metrics()] == [1, 2, 3]
    assert run.summary.weights_finite


def test_the_metric_is_in_the_file_the_live_view_and_the_summary(plugin):
    run = trained_here("### A metric")

    lines = map(json.loads, run.paths.metrics.read_text().splitlines())
    written = [line for line in lines if line["kind"] == "log"]
    assert [line["step"] for line in written] == [1, 2, 3]
    assert run.metrics("log") == written
    spread = written[-1]["values"]["logit_spread"]
    assert run.summary.logged == {"logit_spread": spread}
    assert spread > 0

    live = LiveRun(run)
    assert live.read()
    shown = live.snapshot()
    assert shown["numbers"]["logged"] == {"logit_spread": spread}
    assert shown["numbers"]["loss"] == run.summary.loss
    assert [point[0] for point in shown["series"]["logit_spread"]] == [1, 2, 3]


def test_the_loader_feeds_a_run(plugin):
    run = trained_here("### A loader")

    assert run.state is RunState.FINISHED
    assert run.worker["data"]["loader"] == "grey"


def test_the_engine_launches_a_run(plugin):
    run = launched("### An engine")
    supervisor = ProcessIdentity.from_dict(run.submission["supervisor"])

    wait_until(
        lambda: os.getpriority(os.PRIO_PROCESS, supervisor.pid) == 19, "its priority"
    )
    run.wait()
    assert (run.state, run.submission["engine"]) == (RunState.FINISHED, "nice")
