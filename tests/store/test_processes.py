"""A process is more than its pid."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest

from nbkit.store.processes import ProcessIdentity
from tests.hostile.strangers import STRANGER, needs_root
from tests.waiting import wait_until


def test_process_identity_round_trip():
    me = ProcessIdentity.of()

    assert me.pid == os.getpid()
    assert me.is_alive() is True
    assert ProcessIdentity.from_dict(me.to_dict()) == me


@pytest.mark.parametrize(
    ("changes", "is_alive"),
    [
        ({}, True),
        ({"boot_id": "b"}, False),
        ({"host": "other", "boot_id": "b"}, None),
        # A container beside this one has the same boot id.
        ({"host": "other", "pid_namespace": "pid:[1]"}, None),
        ({"pid_namespace": "pid:[1]"}, None),
        # The host was renamed.
        ({"host": "before"}, True),
        ({"pid_namespace": None}, True),
        ({"host": "other", "pid_namespace": None}, None),
    ],
)
def test_process_identity_is_alive(changes, is_alive):
    process = dataclasses.replace(ProcessIdentity.of(), **changes)
    # Another process has its pid by now.
    gone = dataclasses.replace(process, start_ticks=process.start_ticks - 1)

    assert process.is_alive() is process.exists() is is_alive
    assert gone.is_alive() is gone.exists() is (False if is_alive else is_alive)


def test_process_identity_zombie():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) as child:
        identity = ProcessIdentity.of(child.pid)
        assert identity.is_alive() is True
        child.kill()
        wait_until(lambda: identity.is_alive() is False, "the child's death")
        assert identity.exists() is True
    assert identity.exists() is False


def test_no_process_is_an_error():
    with pytest.raises(ProcessLookupError, match="no process with pid"):
        ProcessIdentity.of(2**22 + 1)


def test_process_identity_cut_name():
    program = (
        "import pathlib; "
        "pathlib.Path('/proc/self/comm').write_text('fourteen bytesé'); "
        "print(flush=True); input()"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=-1, stdout=-1) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert ProcessIdentity.of(child.pid).is_alive() is True
        child.kill()


# It is the first process of its pid namespace, and asks of itself as another user.
LOOKS_FROM_OUTSIDE = f"""
import os
from nbkit.store.processes import ProcessIdentity
from tests.hostile.strangers import STRANGER, needs_root
hidden = ProcessIdentity.of()
read, write = os.pipe()
if (pid := os.fork()) == 0:
    os.read(read, 1)
    os._exit(0)
gone = ProcessIdentity.of(pid)
os.write(write, b".")
os.waitpid(pid, 0)
if os.fork() == 0:
    os.setgroups([])
    os.setgid({STRANGER})
    os.setuid({STRANGER})
    for one in (hidden, gone, ProcessIdentity.of()):
        print(one.is_alive(), one.exists(), flush=True)
    os._exit(0)
os.wait()
"""


@needs_root
@pytest.mark.parametrize("hides", [1, 2])
def test_process_identity_hidden(hides):
    shell = f'mount -t proc -o hidepid={hides} proc /proc && exec "$@"'
    done = subprocess.run(
        [
            *("unshare", "--pid", "--mount", "--fork", "sh", "-c", shell, "sh"),
            *(sys.executable, "-c", LOOKS_FROM_OUTSIDE),
        ],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines() == ["None None", "False False", "True True"]
