"""fio, if it is installed: the same operations in a widely used tool.

References
----------
https://fio.readthedocs.io/en/latest/fio_doc.html
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable

from nbkit.errors import NbkitError
from nbkit.readspeed.work import ReadWork


def fio_version() -> str | None:
    """Return the installed version, such as ``fio-3.33``; None without fio."""
    program = shutil.which("fio")
    if program is None:
        return None
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    return done.stdout.strip() or None if done.returncode == 0 else None


def read(
    work: ReadWork, seed: int, on_start: Callable[[int], None] | None = None
) -> float:
    """Run fio once on the work, and return the seconds it took."""
    [file] = work.files
    program = shutil.which("fio") or "fio"
    # A plain colon separates file names.
    name = "--filename=" + str(file).replace(":", r"\:")
    process = subprocess.Popen(
        [program, *_options(work, seed), name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",  # it repeats the file's name, which may be any bytes
    )
    try:
        if on_start is not None:
            on_start(process.pid)
        output, complaints = process.communicate()
    except BaseException:
        process.kill()
        process.communicate()
        raise
    done = _parse(output) if process.returncode == 0 else None
    if done is None or done[1] != work.total_bytes:
        what = f"(exit status {process.returncode}) failed to read"
        if done:
            what = f"read {done[1]:,} of {work.total_bytes:,} bytes of"
        complaint = complaints.strip().splitlines()[-1:] or ["no reason given"]
        message = f"fio {what} {file} ({complaint[0]}). Use engine='python'."
        raise NbkitError(message)
    return done[0]


def _options(work: ReadWork, seed: int) -> list[str]:
    thread_bytes = work.total_bytes // work.threads
    return [
        "--name=readspeed",
        f"--rw={'read' if work.pattern == 'sequential' else 'randread'}",
        f"--bs={work.operation_bytes}",
        f"--size={thread_bytes}",
        # Every job has a part of the file to itself.
        f"--offset_increment={thread_bytes}",
        f"--numjobs={work.threads}",
        f"--randseed={seed}",
        f"--direct={int(work.direct)}",
        "--ioengine=psync",
        "--thread",
        "--group_reporting",
        "--readonly",
        "--allow_file_create=0",
        # What is in the page cache has been seen to before; no hint to the kernel,
        # because neither dd nor a loader of images gives one.
        "--invalidate=0",
        "--fadvise_hint=0",
        "--eta=never",
        "--output-format=json",
    ]


def _parse(output: str) -> tuple[float, int] | None:
    """Return seconds and bytes as fio's JSON says; notes may stand before it."""
    start = output.find("{")
    if start < 0:
        return None
    [job] = json.loads(output[start:])["jobs"]
    totals = job["read"]
    if job["error"] or not totals["bw_bytes"]:
        return None
    # Of several threads fio has one rate; it counts their time in whole milliseconds.
    return totals["io_bytes"] / totals["bw_bytes"], totals["io_bytes"]
