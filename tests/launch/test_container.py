"""Ranks in an image: the command, and what of the environment gets through."""

from __future__ import annotations

from pathlib import Path

from nbkit.launch.code.container import container_environment, in_container

ARGV = ["/venv/bin/python", "-P", "-m", "nbkit.worker", "/store/runs/r"]
IMAGE = {"container": "/images/a b.sif", "container_args": ("--bind=/more:/data",)}


def test_in_container_without_image(small):
    argv = in_container(small(), ARGV, ["/store"], cwd="/here", device_type="cuda")

    assert argv == ARGV


def test_in_container_command(small):
    argv = in_container(
        small(slurm=IMAGE),
        ARGV,
        ["/store", Path("/store/runs/r"), "/data"],
        cwd="/home/me/work",
        device_type="cuda",
    )

    assert argv == [
        "apptainer",
        "exec",
        "--nv",
        *("--bind", "/data", "--bind", "/home/me/work", "--bind", "/store"),
        *("--bind", "/store/runs/r"),
        *("--pwd", "/home/me/work"),
        "--bind=/more:/data",
        "/images/a b.sif",
        *("python", "-P", "-m", "nbkit.worker", "/store/runs/r"),
    ]


def test_in_container_singularity_on_cpus(small):
    argv = in_container(
        small(slurm=IMAGE),
        ARGV,
        [],
        cwd="/here",
        device_type="cpu",
        program="singularity",
    )

    assert argv[:4] == ["singularity", "exec", "--bind", "/here"]
    assert "--nv" not in argv


def test_container_environment():
    environment = {"RANK": "0", "HOME": "/me", "NBKIT_RUN_ID": "r", "ODD": "$(foo)"}

    got = container_environment(environment, ["RANK", "ODD", "NBKIT_LISTEN_FD"])

    # What a shell inside would replace is left to plain inheritance.
    assert got == {**environment, "APPTAINERENV_RANK": "0"}
    other = container_environment(environment, ["RANK"], program="singularity")
    assert other == {**environment, "SINGULARITYENV_RANK": "0"}
