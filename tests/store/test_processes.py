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


def test_this_process_is_alive_and_survives_a_round_trip():
    me = ProcessIdentity.of()

    assert me.pid == os.getpid()
    assert me.is_alive() is True
    assert ProcessIdentity.from_dict(me.to_dict()) == me


def test_a_pid_that_was_used_again_is_another_process():
    me = ProcessIdentity.of()
    before = dataclasses.replace(me, start_ticks=me.start_ticks - 1)

    assert before.is_alive() is False
    assert before.exists() is False


def test_a_process_of_an_earlier_boot_is_dead():
    assert dataclasses.replace(ProcessIdentity.of(), boot_id="b").is_alive() is False


def test_of_a_process_on_another_host_or_in_another_container_nothing_is_known():
    me = ProcessIdentity.of()

    elsewhere = dataclasses.replace(me, host="other", boot_id="b")
    assert elsewhere.is_alive() is None
    # A container beside this one has the same boot id.
    beside = dataclasses.replace(me, host="other", pid_namespace="pid:[1]")
    assert beside.is_alive() is beside.exists() is None
    same_name = dataclasses.replace(me, pid_namespace="pid:[1]")
    assert same_name.is_alive() is None


def test_a_host_that_was_renamed_still_knows_its_processes():
    me = ProcessIdentity.of()

    assert dataclasses.replace(me, host="before").is_alive() is True
    gone = dataclasses.replace(me, host="before", start_ticks=me.start_ticks - 1)
    assert gone.is_alive() is False


def test_is_alive_without_a_pid_namespace_goes_by_the_hosts_name():
    me = dataclasses.replace(ProcessIdentity.of(), pid_namespace=None)

    assert me.is_alive() is True
    assert dataclasses.replace(me, host="other").is_alive() is None


def test_a_zombie_does_not_run_but_is_still_there():
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


def test_a_name_that_is_cut_within_a_letter_is_no_obstacle():
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
def test_of_a_process_that_proc_hides_nothing_is_known(hides):
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
