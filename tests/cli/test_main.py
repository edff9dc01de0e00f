"""How the command answers, refuses and ends, whatever it was asked for."""

from __future__ import annotations

import argparse
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import nbkit
from nbkit.cli.main import main, make_parser
from tests.cli.conftest import COMMAND
from tests.house.test_imports import HEAVY
from tests.waiting import wait_until
from tests.widgets.stored_run import WrittenRun

REPLAY = "replay:eight-gpus"
[COMMANDS] = (
    action.choices
    for action in make_parser()._actions
    if isinstance(action, argparse._SubParsersAction)
)


def test_nbkit_alone_lists_its_commands(nbkit_command):
    done = nbkit_command()

    assert done.returncode == 0
    assert all(f"\n    {name} " in done.stdout for name in COMMANDS)
    assert nbkit_command("--version").stdout == f"nbkit {nbkit.__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example(name):
    text = COMMANDS[name].format_help()

    assert f"example: nbkit {name}" in text
    for action in COMMANDS[name]._actions:
        assert action.help, action.dest


def test_help_loads_nothing_heavy():
    program = (
        "import json, sys; from nbkit.cli.main import main; main([]); "
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    loaded = {name.partition(".")[0] for name in json.loads(done.stderr)}
    assert loaded & {*HEAVY, "numpy", "psutil", "pydantic", "pynvml"} == set()


def test_main_refusal(nbkit_command):
    done = nbkit_command("show", "nosuchrun")

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("nbkit: run_id='nosuchrun': no run has this id")
    assert done.stderr.count("\n") == 1


def test_main_system_error():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(COMMAND, stdout=full, stderr=subprocess.PIPE, text=True)

    assert done.returncode == 2
    assert done.stderr == "nbkit: [Errno 28] No space left on device\n"


def test_main_encoding(nbkit_command, tmp_path):
    WrittenRun(tmp_path)

    done = nbkit_command("runs", NBKIT_HOME=tmp_path, PYTHONIOENCODING="latin-1")

    assert (done.returncode, done.stderr) == (0, "")
    assert " ? " in done.stdout


def test_main_broken_pipe():
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(
            COMMAND, stdout=write_end, stderr=subprocess.PIPE, text=True
        )
    finally:
        os.close(write_end)

    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_main_ctrl_c():
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "monitor", "--interval", "0.25"],
        env={**os.environ, "NBKIT_GPU_SOURCE": REPLAY},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(theirs)
        seen = bytearray()
        wait_until(
            lambda: seen.extend(os.read(ours, 1 << 12)) or seen.count(b"REPLAY") > 1,
            "two tables",
        )
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    os.close(ours)

    assert (process.returncode, said) == (128 + signal.SIGINT, b"")
    # Each table takes the place of the one before.
    assert seen.startswith(b"\x1b[H")


@pytest.mark.parametrize("words", [["runs", "--only", "x"], ["rnus"]])
def test_main_refuses_unknown_words(capsys, words):
    with pytest.raises(SystemExit) as ended:
        main(words)

    assert ended.value.code == 2
    assert words[-1] in capsys.readouterr().err
