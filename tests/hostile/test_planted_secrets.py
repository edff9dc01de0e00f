"""Secrets on every route into a run's folder: none may end where others can read it."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.launch.supervision.journal import Journal
from nbkit.reproduction.comparison import run_facts
from nbkit.store.record import RunState
from nbkit.store.redaction import (
    is_secret_name,
    may_hold_secret,
    redacted,
    redacted_argv,
)
from nbkit.store.stored_runs import create_run_folder
from nbkit.studies.study import Study

MARK = "pLaN" + "tEd"
"""In every secret of this file, which may be kept as a source of runs itself."""

SCRIPT = """\
import os
import sys

assert os.environ["HF_TOKEN"].startswith("hf_"), "a rank has its secrets"
assert sys.argv[1] == "--password"
raise RuntimeError(f"cannot reach {sys.argv[4]} with password={sys.argv[2]}")
"""

# Every module that this process has loaded is a source of a run.
pytestmark = pytest.mark.filterwarnings("ignore:the bundle may contain secrets")


@pytest.fixture
def secrets_around(checkout, monkeypatch):
    """Launch from a process that has secrets in its variables and arguments."""
    monkeypatch.setenv("HF_TOKEN", f"hf_{MARK}{MARK}{MARK}")
    monkeypatch.setenv("CUDA_PROXY", f"http://me:{MARK}@proxy:3128")
    monkeypatch.setenv("TORCH_FOO_URL", f"https://{MARK}@host/")
    monkeypatch.setenv("NCCL_PASS", MARK)
    command = ["train.py", "--hf-token", MARK, f"--db=postgres://u:{MARK}@h/d"]
    monkeypatch.setattr(sys, "argv", command)
    # Here every module of every test is a loaded module of the user's.
    monkeypatch.setattr("nbkit.launch.code.entry.is_local", lambda _: False)


@pytest.fixture
def checkout(tmp_path, monkeypatch) -> Path:
    """Be in a checkout whose remote has a password with an @ in it."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    monkeypatch.chdir(folder)
    remote = f"https://me:{MARK}1@{MARK}2@host/r.git"
    who = ["-c", "user.name=x", "-c", "user.email=x"]
    for arguments in (
        ["init", "-q"],
        [*who, "commit", "-q", "--allow-empty", "-m", "x"],
        ["remote", "add", "origin", remote],
    ):
        subprocess.run(["git", *arguments], check=True)
    return folder


def readable(store: Path) -> dict[str, str]:
    """Return the content of every file that is not its owner's alone."""
    return {
        path.relative_to(store).as_posix(): path.read_text(errors="replace")
        for path in store.rglob("*")
        if path.is_file() and stat.S_IMODE(path.stat().st_mode) & 0o077
    }


def test_no_route_into_a_runs_folder_leaves_a_secret_for_others(
    secrets_around, checkout, tmp_path, store
):
    script = checkout / "train.py"
    script.write_text(SCRIPT)

    run = nbkit.launch(
        script,
        args=["--password", f"{MARK}a", "--url", f"postgres://u:{MARK}b@h/d"],
        environment={"MODE": "x"},
        tags={"from": f"https://u:{MARK}@host/", "MYSQL_PWD": MARK},
        parameter_sources={"gpus": f"token={MARK}"},
        device="cpu",
        oversubscribe=True,
    ).wait(raise_on_failure=False)

    # It is the planted error, which the script raised once it had its secrets.
    message = "RuntimeError: cannot reach postgres://***@h/d with password=***"
    assert (run.cause or {})["message"] == message
    found = readable(store)
    assert [name for name, text in found.items() if MARK in text] == []
    told = run.record
    assert told["launch"]["argv"] == [
        *("train.py", "--hf-token", "***", "--db=postgres://***@h/d")
    ]
    assert told["environment"]["variables"]["CUDA_PROXY"] == "http://***@proxy:3128"
    assert told["code"]["remote"] == "https://host/r.git"
    for file in ("error.json", "stderr.log"):
        assert message in found[f"runs/{run.run_id}/logs/0/0/{file}"]
    assert MARK in run.paths.private.read_text()
    assert stat.S_IMODE(run.paths.private.stat().st_mode) == 0o600
    assert MARK not in f"{run} {run_facts(run).parts}"

    with zipfile.ZipFile(nbkit.export(run, tmp_path / "x.zip")) as archive:
        assert [n for n in archive.namelist() if MARK.encode() in archive.read(n)] == []
    whole = nbkit.export(run, tmp_path / "y.zip", include_arguments=True)
    with zipfile.ZipFile(whole) as archive:
        name = f"runs/{run.run_id}/code/private.json"
        assert MARK.encode() in archive.read(name)


def test_no_report_of_a_study_has_a_secret_of_where_it_was_made(
    secrets_around, tmp_path, store
):
    fields = {"model": "resnet20", "image_size": 32, "batch_size_per_gpu": 2}
    steps = {"steps": 3, "warmup_steps": 1}
    config = ExperimentConfig(**fields, **steps, device="cpu", oversubscribe=True)
    study = Study.create("planted", {"one": config})
    study.run(progress=False)

    nbkit.report(study.study_id, folder=tmp_path / "report")

    for root in (store, tmp_path / "report"):
        found = readable(root)
        assert [name for name, text in found.items() if MARK in text] == []
    assert "report.html" in readable(tmp_path / "report")


def test_what_a_supervisor_tells_of_a_rank_has_no_secret(store):
    """It also quotes the last line that a rank has printed."""
    paths = create_run_folder(ExperimentConfig())
    unknown = ("engine", "owner", "on_owner_exit", "device_type", "cpus_per_rank")
    submission = {
        "name": "x",
        "attempt": 0,
        "time": "",
        "parameter_sources": {},
        "tags": {},
        **dict.fromkeys((*unknown, "argv", "cwd")),
        "request": {"kind": "cpu"},
    }
    journal = Journal(paths, submission)
    said = f"exit code 3: cannot reach postgres://u:{MARK}@h/d"
    journal.record["cause"] = {"message": said}
    journal.set_state(RunState.FAILED, message=said)
    journal.close()

    told = "exit code 3: cannot reach postgres://***@h/d"
    for file in (paths.record, paths.events):
        assert told in file.read_text()
        assert MARK not in file.read_text()


def give(secret):
    """Return what came in."""
    return [secret]


@pytest.mark.parametrize(
    "fields",
    [
        {"data": f"https://u:{MARK}@host/photos"},
        {"weights": f"https://u:{MARK}@host/x.pt"},
        {"name": f"hf_{MARK}{MARK}{MARK}"},
        {"slurm": {"setup": [f"export HF_TOKEN={MARK}"]}},
        {"slurm": {"container": f"docker://u:{MARK}@host/image"}},
        {"slurm": {"container_args": [f"--env=PGPASSWORD={MARK}"]}},
        {"slurm": {"container_args": ["--docker-password", MARK]}},
        {"slurm": {"slurm_additional_parameters": {"comment": f"token={MARK}"}}},
        {"slurm": {"slurm_additional_parameters": {"wandb_key": MARK}}},
    ],
    ids=str,
)
def test_a_configuration_that_holds_a_secret_is_refused_before_it_is_written(
    fields, store
):
    with pytest.raises(ConfigError) as launched:
        nbkit.launch(**{"model": "resnet18", "device": "cpu", **fields})
    with pytest.raises(ConfigError) as planned:
        Study.create("x", {"a": ExperimentConfig(**fields)})

    assert MARK not in str(launched.value) + str(planned.value)
    assert "Set an environment variable" in str(planned.value)
    assert not [*store.rglob("*.json")]


@pytest.mark.parametrize(
    "environment",
    [
        {"PGPASS": MARK},
        {"MY_KEY": MARK},
        {"HF_TOKEN": "x"},
        {"DATABASE_URL": f"postgres://u:{MARK}@h/d"},
    ],
    ids=str,
)
def test_a_secret_in_the_environment_of_a_run_or_study_is_refused(environment, store):
    with pytest.raises(ConfigError, match="looks like a secret") as launched:
        nbkit.launch(give, args=(1,), environment=environment)
    with pytest.raises(ConfigError, match="looks like a secret") as planned:
        Study.create("x", {"a": ExperimentConfig()}, environment=environment)

    assert MARK not in str(launched.value) + str(planned.value)
    assert not store.exists()


def test_export_warns_of_likely_secrets_in_sources_diffs_and_logs(tmp_path):
    from tests.widgets.stored_run import WrittenRun

    written = WrittenRun(tmp_path / "store", gpus=1)
    paths = written.run.paths
    paths.source.mkdir(parents=True)
    (paths.source / "a.py").write_text(f"x = 1\npassword = '{MARK}'\n")
    (paths.code / "diff.patch").write_text(f"+AWS_KEY = 'AKIA{16 * 'A'}'\n")
    written.print(f"connecting to postgres://u:{MARK}@host\n")
    written.record("finished")

    with pytest.warns(UserWarning, match="may contain secrets") as caught:
        nbkit.export(written.run, tmp_path / "x.zip")

    (said,) = [str(one.message) for one in caught]
    for place in ("a.py", "diff.patch", "stderr.log"):
        assert place in said
    assert MARK not in said


SECRETS = [
    f"https://u:{MARK}@host/x",
    "postgres://u:" + f"p@{MARK}@h/d",
    f"https://{MARK}@sentry.io/1",
    f"//user:{MARK}@host",
    f"--password={MARK}",
    f"run --token {MARK} now",
    f"export WANDB_API_KEY={MARK}",
    f"PGPASSWORD={MARK} psql",
    f"PGPASS={MARK}",
    f"GITHUB_PAT={MARK}",
    f"run --hf_token {MARK} now",
    f"MYSQL_PWD={MARK}!x",
    f"db_pass={MARK}22",
    f"AZURE_STORAGE_KEY={MARK}{MARK}",
    f"AccountKey=9+{MARK}==",
    f"https://host/x?sv=1&sig=1%2B{MARK}%3D",
    f"api_key=1234-{MARK}-5678",
    f'cookie="sid=1; session={MARK}"',
    f"api_key='my key {MARK}'",
    f"SENTRY_DSN={MARK}",
    f"password={MARK}",
    f"{{'api_key': '{MARK} {MARK}'}}",
    f"Authorization: Bearer {MARK}{MARK}",
    f"https://host/x?b=1&sig={MARK}&c=2",
    f"nvapi-{MARK}{MARK}{MARK}",
    f"hf_{MARK}{MARK}{MARK}",
    f"ghp_{MARK}{MARK}{MARK}",
    f"sk-proj-{MARK}-{MARK}{MARK}",
    "-----BEGIN RSA " + f"PRIVATE KEY-----\n{MARK}\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_known_by_its_name_form_or_place(text):
    assert MARK not in redacted(f"before {text}")
    assert redacted(f"before {text}").startswith("before ")
    assert MARK not in json.dumps(redacted({"a": [text]}))
    # What has passed once is not changed again.
    assert redacted(redacted(text)) == redacted(text)


@pytest.mark.parametrize(
    "code",
    [
        'config = {"db_pass": "hunter2"}',
        'x = {"auth": "abcdef12345678"}',
        '{"signature": "abcdef12345678", "github_pat": "abc123456789"}',
        "db_pass: hunter2hunter2",
        "token = 'ab;cdefghij'",
    ],
)
def test_may_hold_secret_in_code(code):
    assert may_hold_secret(f"import os\n{code}\n")


@pytest.mark.parametrize(
    "text",
    [
        "KeyError: 'x'",
        "sorted(names, key=len)",
        "docker://registry:5000/image@sha256:abc",
        "export TOKENIZERS_PARALLELISM=false",
        "token = tokenizer(text)",
        "password=$PASSWORD",
        "max_tokens=512",
        "/data/token=4096/train",
        "ablation auth=on",
        "lr=1e-3,auth=0",
        "token=gpt2",
        "cookie=banana",
        "podman --authfile=/run/auth.json",
        "ssh://git@host/r.git",
        "http://host:8080/a@b",
        "conda activate torch",
        "PWD=/home/me",
        "OLDPWD=~/x",
        "pass=3 fail=0",
        "docker run -u 1000:1000 image",
        "SORT_KEY=name",
        "--tokens 4096",
    ],
)
def test_what_is_no_secret_stays(text):
    assert redacted(text) == text
    assert not may_hold_secret(text)


def test_options_of_a_command_are_known_by_their_names():
    argv = [
        "a.py",
        "--hf-token",
        MARK,
        "--lr",
        "0.1",
        f"--db-pass={MARK}",
        f"a.pat={MARK}",
    ]

    assert redacted_argv(argv) == [
        *("a.py", "--hf-token", "***", "--lr", "0.1", "--db-pass=***", "a.pat=***")
    ]


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        *((name, True) for name in ("HF_TOKEN", "PGPASS", "SENTRY_DSN", "GITHUB_PAT")),
        *((name, True) for name in ("MYSQL_PWD", "SLURM_JWT", "AWS_SECRET_ACCESS_KEY")),
        *((name, False) for name in ("PATH", "PWD", "OLDPWD", "LD_PRELOAD", "AUTHOR")),
        *((name, False) for name in ("TOKENIZERS_PARALLELISM", "OMP_NUM_THREADS")),
        *((name, False) for name in ("--authfile", "REGISTRY_AUTH_FILE")),
        *((name, False) for name in ("KEYBOARD", "KEYS_PER_NODE", "--keys-per-node")),
        *((name, True) for name in ("API_KEYS", "API_KEYS_PERSONAL", "KEY")),
    ],
)
def test_a_variable_is_known_by_its_name(name, is_secret):
    assert is_secret_name(name) is is_secret


@pytest.mark.parametrize("look", [redacted, may_hold_secret])
@pytest.mark.parametrize("piece", ["a_", "api_key=", "eyJ-", "//a:", "token=a."])
def test_a_text_that_was_made_to_take_long_does_not(piece, look, in_time):
    in_time(lambda: look(piece * 50_000))
