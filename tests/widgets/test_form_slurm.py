"""The form of a run for a Slurm cluster: its fields, partitions and command."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import nbkit
from nbkit.config import ExperimentConfig, SlurmConfig
from nbkit.errors import RunError
from nbkit.store.stored_runs import create_run_folder
from nbkit.widgets.form_check import FormCheck, python_line
from nbkit.widgets.form_fields import entered_of, fields_of, sections
from tests.slurm_programs import SlurmPrograms
from tests.telemetry.traces import replay
from tests.widgets.form_threads import wait_for_form_threads
from tests.widgets.messages import hear

CONTROLS = {it.path: it for section in sections() for it in section.controls}
PARTITION = "slurm.slurm_partition"


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    monkeypatch.setenv("NBKIT_GPU_SOURCE", replay("no-gpu"))
    return SlurmPrograms(tmp_path, monkeypatch)


@pytest.fixture
def form(slurm):
    form = nbkit.ExperimentForm()
    yield form
    wait_for_form_threads()
    form.close_all()


def enter(form, **entered):
    form.panel.entered = form.panel.entered | entered
    wait_for_form_threads()


def test_lines_of_a_shell_and_options_of_sbatch_keep_their_blanks_and_commas():
    config = ExperimentConfig(
        engine="slurm",
        slurm={
            "setup": ("module load cuda, gcc", 'export A="b c"'),
            "container_args": ("--bind=/data,/scratch",),
            "slurm_partition": "a100,v100",
            "slurm_additional_parameters": {
                "licenses": "matlab:1",
                "contiguous": True,
                "wckey": False,
                "nice": 5,
                "prefer": "true",
                "comment": "a = b",
            },
        },
    )

    fields = fields_of(entered_of(config, CONTROLS), CONTROLS)
    line = python_line(fields)

    assert ExperimentConfig(**fields) == config
    facade = SimpleNamespace(launch=ExperimentConfig, SlurmConfig=SlurmConfig)
    assert eval(line, {"nbkit": facade}) == config
    assert nbkit.SlurmConfig is SlurmConfig


@pytest.mark.parametrize(
    ("entered", "value"),
    [
        ("", {}),
        ("contiguous", {"contiguous": True}),
        ("nice = 5\n\n wckey=007 ", {"nice": 5, "wckey": "007"}),
        ("comment=1.5", {"comment": "1.5"}),
    ],
)
def test_options_are_read_as_people_write_them(entered, value):
    control = CONTROLS["slurm.slurm_additional_parameters"]

    assert control.value(entered) == value


def test_what_is_wrong_with_an_option_stands_beside_its_field(form):
    enter(form, **{"slurm.slurm_additional_parameters": "nodes=3"})

    said = form.panel.checked["errors"]["slurm.slurm_additional_parameters"]
    assert "is set by nnodes" in said


def test_partitions_are_listed_with_their_free_gpus_once_the_engine_is_slurm(
    form, slurm
):
    slurm.tell(
        "sinfo",
        "day*|up|12:00:00|b1|mix|gpu:a100:4|gpu:a100:1(IDX:3)|",
        "cpus|up|infinite|c1|alloc|(null)|(null)|",
        "old|down|infinite|o1|idle|gpu:k80:2|gpu:k80:0|",
    )
    enter(form, gpus="2")
    assert slurm.calls("sinfo") == []

    enter(form, engine="slurm")

    shown = form.panel.partitions
    assert shown["text"] == "3 in this cluster."
    assert shown["partitions"] == [
        {
            "name": "day",
            "title": "day (default)",
            "load": "0 of 1 nodes idle, time limit 12:00:00",
            "gpus": "3 of 4 a100 free",
            "is_free": True,
        },
        {
            "name": "cpus",
            "title": "cpus",
            "load": "0 of 1 nodes idle, no time limit",
            "gpus": "no GPUs",
            "is_free": False,
        },
        {
            "name": "old",
            "title": "old",
            "load": "starts no jobs, no time limit",
            "gpus": "2 of 2 k80 free",
            "is_free": False,
        },
    ]
    for _ in range(3):
        hear(form.panel, kind="partitions", request="1")
        wait_for_form_threads()
    listing = [call for call in slurm.calls("sinfo") if "--Node" in call]
    assert len(listing) == 1


def test_where_slurm_does_not_answer_a_partition_is_named_by_hand(form):
    enter(form, engine="slurm", **{PARTITION: "any"})

    shown = form.panel.partitions
    assert shown["partitions"] == []
    assert "not installed on this machine. Enter a partition" in shown["text"]
    assert form.config.slurm.slurm_partition == "any"


def test_the_command_of_a_slurm_run_is_its_job_script():
    config = ExperimentConfig(
        engine="slurm", nnodes=2, gpus=4, slurm={"slurm_partition": "a100"}
    )

    shown = FormCheck({}, config).commands([])[1]

    assert shown["title"] == "sbatch"
    assert "#SBATCH --partition=a100\n" in shown["text"]
    assert "#SBATCH --nodes=2\n" in shown["text"]
    assert "#SBATCH --gpus-per-node=4\n" in shown["text"]


def test_lines_that_others_have_written_are_not_launched_by_the_form(
    slurm, tmp_path, monkeypatch
):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "store"))
    asked = {"setup": ("module load theirs",), "slurm_partition": "a100"}
    config = ExperimentConfig(engine="slurm", slurm=asked)
    paths = create_run_folder(config)
    paths.imported.write_text('{"host": "node7"}')
    theirs = nbkit.attach(paths.root.name).config
    form = nbkit.ExperimentForm(theirs, steps=30)
    wait_for_form_threads()

    with pytest.raises(RunError, match=r"imported from host node7.*trust=True"):
        form.launch()
    assert "imported from host node7" in "".join(form.panel.checked["general"])
    # Their last option goes.
    enter(form, **{"slurm.setup": ""})
    assert form.config.slurm.came_from == paths.root
    enter(form, **{PARTITION: ""})
    assert form.config.slurm.came_from is None
    assert form.panel.checked["general"] == []
    # The same text, from others again.
    form.fill(ExperimentConfig(engine="slurm", slurm=asked))
    assert form.config.slurm.came_from is None
    form.fill(theirs)
    assert form.config.slurm.came_from == paths.root
    form.close_all()


def test_a_script_that_cannot_be_written_is_said_in_the_form(form, monkeypatch):
    monkeypatch.setenv("NBKIT_HOME", "/a\nb")

    enter(form, engine="slurm")

    assert form.panel.checked["commands"] == []
    assert form.panel.checked["general"]
