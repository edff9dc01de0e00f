"""A notebook server that is a job itself, as JupyterHub's batchspawner starts it."""

from __future__ import annotations

import sys
from pathlib import Path

from nbkit.launch.run import attach
from nbkit.store.record import RunState
from tests.slurm.cluster import SlurmCluster
from tests.slurm.runs import TwoNodes, hurry, job_of
from tests.waiting import wait_until

LAUNCH = """
import sys, time
from pathlib import Path
from nbkit import ExperimentConfig, launch
run = launch(ExperimentConfig.from_store(Path(sys.argv[1]).read_bytes()))
(run.paths.root / "linger").touch()
Path(sys.argv[2]).write_text(run.run_id)
time.sleep(600)
"""
KEPT = "PATH,PYTHONPATH,NBKIT_HOME,SLURM_CONF"
"""A hub hands on what it names, as batchspawner's ``keepvars`` do."""


def test_a_run_that_a_job_has_launched_is_a_job_of_its_own_and_outlives_it(
    slurm: SlurmCluster, two_nodes: TwoNodes, tmp_path: Path
):
    config, launched = tmp_path / "config.json", tmp_path / "run_id"
    config.write_text(two_nodes.config().to_json())
    program = tmp_path / "program.py"
    program.write_text(LAUNCH)
    server = tmp_path / "server.sh"
    server.write_text(
        "#!/bin/bash\n"
        f"#SBATCH --export={KEPT}\n"
        "#SBATCH --nodes=1 --ntasks=1 --mem=500M --time=20\n"
        f"#SBATCH --output={tmp_path}/server.log\n"
        f"srun {sys.executable} {program} {config} {launched}\n"
    )

    outer = slurm.command("sbatch", "--parsable", str(server)).strip()
    run_id = wait_until(
        lambda: launched.exists() and launched.read_text(), "the server has launched"
    )
    run = attach(str(run_id))
    two_nodes.reach(run)
    slurm.command("scancel", outer)  # as the hub does that stops a server
    slurm.wait_for_job(outer, "CANCELLED")
    hurry(run)
    two_nodes.end(run)

    assert run.state is RunState.FINISHED, run.cause
    assert job_of(run) != outer
    # Slurm clears the nodes of a job after its processes have ended.
    job = slurm.wait_for_job(job_of(run), "COMPLETED")
    assert job["NumNodes"] == "2"
    assert run.record["launch"]["job"]["nodes"] == ["n1", "n2"]
