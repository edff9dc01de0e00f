"""From a configuration to a job script and a step, as text, and what a shell does."""

from __future__ import annotations

import ast
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import nbkit.launch
from nbkit.config import SlurmConfig
from nbkit.launch.slurm.batch_script import (
    sbatch_script,
    srun_argv,
    submission_environment,
)
from nbkit.store.paths import RunPaths

PATHS = RunPaths(Path("/store/runs/20260101-120000-resnet50-abc"))

SMALL = """\
#!/bin/bash
# nbkit run 20260101-120000-resnet50-abc
#SBATCH --job-name=resnet50
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --signal=B:USR1@90
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=/store/runs/20260101-120000-resnet50-abc/logs/slurm-%j.log

trap '' USR2
export NBKIT_JOB="$SLURM_JOB_ID"
exec /venv/bin/python -P -m nbkit.launch.slurm.job \
/store/runs/20260101-120000-resnet50-abc
"""

LARGE = """\
#!/bin/bash -l
# nbkit run 20260101-120000-resnet50-abc
#SBATCH --job-name="a name"
#SBATCH --partition=gpu,long
#SBATCH --account=physics
#SBATCH --qos=normal
#SBATCH --reservation=course
#SBATCH --constraint=a100&nvlink
#SBATCH --nodelist=n[1-4]
#SBATCH --exclude=n3
#SBATCH --exclusive
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=48
#SBATCH --mem=102913M
#SBATCH --gpus-per-node=8
#SBATCH --time=240
#SBATCH --signal=B:USR1@300
#SBATCH --no-requeue
#SBATCH --open-mode=append
#SBATCH --output=/store/runs/20260101-120000-resnet50-abc/logs/slurm-%j.log
#SBATCH --licenses="matlab:1 # two"
#SBATCH --contiguous

trap '' USR2
export NBKIT_JOB="$SLURM_JOB_ID"
_nbkit_ended() {
  echo "nbkit refuses: a slurm.setup line failed with exit status $?: \
$_nbkit_line; correct it" >&2
  exit 1
}
trap _nbkit_ended EXIT
_nbkit_line='module load cuda'; eval 'module load cuda' </dev/null >&2 || exit
_nbkit_line='conda activate torch'; eval 'conda activate torch' </dev/null >&2 || exit
trap - EXIT
exec python -P -m nbkit.launch.slurm.job /store/runs/20260101-120000-resnet50-abc
"""

EVERYTHING = {
    "slurm_partition": "gpu,long",
    "slurm_account": "physics",
    "slurm_qos": "normal",
    "slurm_reservation": "course",
    "slurm_constraint": "a100&nvlink",
    "slurm_nodelist": "n[1-4]",
    "slurm_exclude": "n3",
    "slurm_exclusive": True,
    "timeout_min": 240,
    "gpus_per_node": 8,
    "cpus_per_task": 6,
    "mem_gb": 100.5009,
    "slurm_signal_delay_s": 300,
    "slurm_requeue": False,
    "slurm_max_num_timeout": 7,
    "setup": ("module load cuda", "conda activate torch"),
    "container": "/images/pytorch.sif",
    "container_args": ("--bind=/data",),
    "slurm_srun_args": ("--mpi=pmix",),
    "slurm_additional_parameters": {
        "licenses": "matlab:1 # two",
        "contiguous": True,
        "hold": False,
    },
}

ELSEWHERE = {"container", "container_args", "gpus_per_node", "slurm_max_num_timeout"}
"""Fields that do not reach a script or a step by these functions."""

HOSTILE = [
    "with blank",
    'it\'s "quoted"',
    "$(touch foo) `touch foo` $HOME",
    "100%j #1; touch foo &",
    "-n --wrap=foo",
    "back\\slash",
    "ünïcode ☃",
]


@pytest.fixture
def stub(tmp_path: Path) -> Path:
    """Return a program that prints its arguments and what it can read, each ended."""
    program = tmp_path / "py thon's"
    program.write_text('#!/bin/bash\nprintf \'%s\\0\' "$@" "$(cat)" "$LOADED"\n')
    program.chmod(0o755)
    return program


def test_sbatch_script_small(small):
    config = small(model="resnet50", gpus=2, nnodes=2)

    text = sbatch_script(config, PATHS, python="/venv/bin/python", gpus_per_node=0)

    assert text == SMALL


def test_sbatch_script_large(small):
    config = small(name="a  name", gpus=8, nnodes=4, slurm=EVERYTHING)

    assert sbatch_script(config, PATHS, python="python", gpus_per_node=8) == LARGE


@pytest.mark.parametrize("field", SlurmConfig.model_fields)
def test_every_field_is_used(small, field):
    assert EVERYTHING.keys() == SlurmConfig.model_fields.keys()

    if field in ELSEWHERE:
        folder = Path(nbkit.launch.__file__).parent
        assert any(_reads(path, f"slurm.{field}") for path in folder.rglob("*.py"))
    else:
        config = small(slurm={field: EVERYTHING[field]})
        assert _texts(config) != _texts(small())


def _reads(source: Path, what: str) -> bool:
    """Return whether a program reads an attribute, and does not just speak of it."""
    nodes = ast.walk(ast.parse(source.read_text()))
    read = [ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)]
    return any(f".{one}".endswith(f".{what}") for one in read)


def _texts(config) -> tuple[str, list[str]]:
    script = sbatch_script(config, PATHS, python="python", gpus_per_node=0)
    return script, srun_argv(config, PATHS.root, 0, python="python", nnodes=2, port=1)


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"stop_grace_seconds": 0.5}, 61),
        ({"stop_grace_seconds": 86_400}, 65_535),
        ({"slurm": {"slurm_signal_delay_s": 5}}, 5),
    ],
)
def test_sbatch_script_signal(small, fields, seconds):
    text = sbatch_script(small(**fields), PATHS, python="python", gpus_per_node=0)

    assert f"#SBATCH --signal=B:USR1@{seconds}\n" in text


@pytest.mark.parametrize(
    ("gpus_per_node", "slurm", "cpus"),
    [
        (0, {}, "2"),
        (0, {"cpus_per_task": 3}, "6"),
        (2, {}, None),
        (2, {"cpus_per_task": 3}, "6"),
        (0, {"slurm_exclusive": True}, None),
    ],
)
def test_sbatch_script_cpus_per_task(small, gpus_per_node, slurm, cpus):
    given = {"python": "python", "gpus_per_node": gpus_per_node}
    text = sbatch_script(small(gpus=2, slurm=slurm), PATHS, **given)

    line = f"#SBATCH --cpus-per-task={cpus}\n"
    assert line in text if cpus else "--cpus-per-task" not in text


@pytest.mark.parametrize("setup", [(), ("true",)])
def test_sbatch_script_outlives_wake_up(small, tmp_path, setup):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nkill -USR2 $$ && echo lives\n")
    python.chmod(0o755)
    config = small(slurm={"setup": ("kill -USR2 $$", *setup)} if setup else {})
    script = tmp_path / "job.sbatch"
    text = sbatch_script(config, PATHS, python=str(python), gpus_per_node=0)
    script.write_text(text)

    assert _run(["bash", str(script)], tmp_path).stdout == "lives\n"


@pytest.mark.parametrize("name", HOSTILE)
def test_sbatch_script_hostile_names(small, stub, tmp_path, name):
    root = tmp_path / name
    config = small(name=name, slurm={"setup": (f"true {shlex.quote(name)}",)})
    script = tmp_path / "job.sbatch"
    script.write_text(
        sbatch_script(config, RunPaths(root), python=str(stub), gpus_per_node=0)
    )

    job = _run(["bash", str(script)], tmp_path)
    step = _run(_step(config, root, stub), tmp_path)

    command = ["-P", "-m", "nbkit.launch.slurm.job", str(root)]
    assert job.stdout.split("\0")[:4] == command
    command = ["-P", "-m", "nbkit.launch.slurm.node", str(root), "0", "1"]
    assert step.stdout.split("\0")[:6] == command
    assert job.stderr == step.stderr == ""
    assert {path.name for path in tmp_path.iterdir()} == {stub.name, script.name}


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("false", 1),
        ("exit 3", 3),
        ("exit", 0),
        ("no-such-module load 'x' \"$y\"", 127),
        ("if then", 2),
        ("echo 'open", 2),
    ],
)
def test_srun_argv_failing_setup_line(small, stub, tmp_path, line, status):
    config = small(slurm={"setup": ("true", line, "echo too late")})

    ran = _run(_step(config, tmp_path, stub), tmp_path)

    assert ran.returncode == 1
    assert (
        f"nbkit refuses: a slurm.setup line failed with exit status {status}: {line}; "
        in ran.stderr
    )
    assert "too late" not in ran.stderr


@pytest.mark.parametrize("setup", [(), ("true",)])
def test_srun_argv_no_shell_stays(small, tmp_path, setup):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho $$\n")
    program.chmod(0o755)
    argv = _step(small(slurm={"setup": setup}), tmp_path, program)

    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as step:
        assert step.stdout is not None
        assert int(step.stdout.read()) == step.pid


@pytest.mark.parametrize("is_there", [False, True])
def test_srun_argv_without_python(small, tmp_path, is_there):
    python = tmp_path / "py thon"
    if is_there:
        python.symlink_to(sys.executable)  # without the folder of its packages

    ran = _run(_step(small(), tmp_path, python), tmp_path)

    assert ran.returncode != 0
    last = ran.stderr.splitlines()[-1]
    assert str(python) in last
    assert ("No module named 'nbkit'" in last) is is_there


def test_srun_argv_arguments_come_last(small):
    config = small(slurm={"slurm_srun_args": ("--mpi=pmix",)})

    argv = srun_argv(config, Path("/a"), 0, python="/py", nnodes=1, port=1)

    assert argv.index("--mpi=none") < argv.index("--mpi=pmix") < argv.index("/bin/bash")


def test_submission_environment(small):
    config = small(slurm={"slurm_partition": "gpu"})
    script = sbatch_script(config, PATHS, python="python", gpus_per_node=0)
    around = {
        "PATH": "/bin",
        "SBATCH_PARTITION": "cpu",
        "SBATCH_ACCOUNT": "mine",
        "SBATCH_ARRAY_INX": "1-3",
        "SBATCH_EXPORT": "NONE",
        "SLURM_CONF": "/etc/other.conf",
        "SLURM_JOB_ID": "12",
        "SLURM_MEM_PER_CPU": "100",
        "SLURMD_NODENAME": "n7",
    }

    assert submission_environment(around, script) == {
        "PATH": "/bin",
        "SBATCH_ACCOUNT": "mine",
        "SLURM_CONF": "/etc/other.conf",
    }


def _step(config, root: Path, python: Path) -> list[str]:
    """Return what srun starts on every node."""
    argv = srun_argv(config, root, 0, python=str(python), nnodes=1, port=1)
    return argv[argv.index("--wait=0") + 1 :]


def _run(
    argv: list[str], folder: Path, given: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        cwd=folder,
        # A login shell reads what its user has there.
        env={**os.environ, "HOME": str(folder)},
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
