"""Names of nbkit's files; no other module spells them.

::

    <store>/runs/<run_id>/
        config.json          the launcher, once
        submission.json      the launcher, at each attempt: who asked, how to end
        job.sbatch           the launcher, at each attempt; only of a Slurm job
        stop.json            who asks for a stop (replaced if another wants it sooner)
        record.json          the supervisor (replaced atomically)
        events.jsonl         the supervisor
        metrics.jsonl        rank 0
        worker.json          rank 0 (replaced atomically)
        manifest.jsonl       rank 0, once: the images
        predictions.csv      rank 0, at each evaluation (replaced atomically)
        system/<host>.jsonl  that host's sampler
        logs/slurm-<job>.log  Slurm, and the supervisor before it has a log
        logs/<attempt>/supervisor.log
        logs/<attempt>/resume.json  who resumes the run, once; the folder is the lock
        logs/<attempt>/orders.json  the supervisor; not with engine="local"
        logs/<attempt>/torchrun/<host>-<pid>.json  that torchrun; as above
        logs/<attempt>/<rank>/{stdout.log,stderr.log}  the rank's own output
        logs/<attempt>/<rank>/{process.json,probe.json,error.json}  the rank
        logs/<attempt>/<rank>/returned.pkl  the rank: what its function returned (0600)
        checkpoints/<step>/  the ranks; complete.json by rank 0, last
        tensorboard/         rank 0
        profile/{rank0.json.gz,operators.json}  rank 0, only with profile=True
        code/                the supervisor: git commit, diff
        code/{entry.json,source/}  the launcher, once: function or script
        code/{entry.pkl,private.json}  the launcher, once: their arguments (0600)
        imported.json        the importer, once; only in runs of another machine
    <store>/studies/<study_id>/study.json   the process that executes the study
    <store>/studies/<study_id>/lock   that process holds it; empty
    <store>/studies/<study_id>/imported.json   as in a run
    <store>/studies/<study_id>/programs/<n>/code/   its creator, once, as in a run
    <store>/trials/<host>-<key>   that ``nbkit try`` of a change holds it; empty
    <store>/datasets/<stamp>.jsonl   manifests of data sets, by the first run with each
    <store>/reports/<report_id>/     the process that makes a report of no one study
"""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from nbkit.errors import StoreError
from nbkit.reading import ID, regular_files

ID_PATTERN = f"^{ID}$"
"""What the id of a run or study looks like."""


_IS_ID = re.compile(ID).fullmatch


def is_id(text: str) -> bool:
    """Return whether a text can be the id of a run or study, and so a folder's name."""
    return _IS_ID(text) is not None


def store_folder() -> Path:
    """Return the store: ``$NBKIT_HOME``, else nbkit's folder in the user's data.

    A relative path is meant from where this process first asked for its store; it stays
    the same store when the process changes its folder.
    """
    home = os.environ.get("NBKIT_HOME")
    try:
        if home:
            return _absolute(home)
        return Path(platformdirs.user_data_dir("nbkit", appauthor=False))
    except RuntimeError as error:
        message = "No home folder. Set NBKIT_HOME to the absolute path of a folder."
        raise StoreError(message) from error


@functools.cache
def _absolute(path: str) -> Path:
    return Path(path).expanduser().absolute()


def runs_folder(store: Path | None = None) -> Path:
    """Return the folder that holds a folder for every run, of this or another store."""
    return (store or store_folder()) / "runs"


def studies_folder(store: Path | None = None) -> Path:
    """Return the folder that holds a folder for every study."""
    return (store or store_folder()) / "studies"


def reports_folder() -> Path:
    """Return the folder of the reports that belong to no study."""
    return store_folder() / "reports"


def trial_lock(host: str, key: str) -> Path:
    """Return what ``nbkit try`` locks on a host while it measures a change."""
    return store_folder() / "trials" / f"{host}-{key}"


def manifests_folder() -> Path:
    """Return the folder that holds a manifest for every data set looked at."""
    return store_folder() / "datasets"


class _At:
    """A file or folder below the root of a class of paths."""

    def __init__(self, *parts: str) -> None:
        self._parts = parts

    def __get__(self, paths: Any, owner: type) -> Path:
        return paths.root.joinpath(*self._parts)


@dataclass(frozen=True)
class RunPaths:
    """The files of one run."""

    root: Path

    @property
    def run_id(self) -> str:
        """The run's id: the folder's name."""
        return self.root.name

    config = _At("config.json")
    """What was asked for."""
    submission = _At("submission.json")
    """Time and process of the launch, and what happens when this process exits."""
    job_script = _At("job.sbatch")
    """Script given to sbatch; only for Slurm jobs."""
    stop = _At("stop.json")
    """Stop request; it exists only after a request."""
    record = _At("record.json")
    """State, cause, machine, environment and raw counts."""
    events = _At("events.jsonl")
    """What happened, in order."""
    metrics = _At("metrics.jsonl")
    """Steps, evaluations and checkpoints."""
    worker = _At("worker.json")
    """Values from the ranks, written by rank 0."""
    manifest = _At("manifest.jsonl")
    """The images of the run, for every loader; none for synthetic data."""
    predictions = _At("predictions.csv")
    """Prediction for each evaluation image; none for synthetic data."""
    checkpoints = _At("checkpoints")
    """The folder of checkpoints."""

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a complete checkpoint to resume from."""
        files = self.checkpoints.glob("*step_*/complete.json")
        names = (file.parent.name.removesuffix(".old").lstrip(".") for file in files)
        return any(name.removeprefix("step_").isdecimal() for name in names)

    tensorboard = _At("tensorboard")
    """The folder of TensorBoard event files."""
    profile = _At("profile", "rank0.json.gz")
    """The trace of a few steps of rank 0, for Perfetto; only with profile=True."""
    operators = _At("profile", "operators.json")
    """Slowest operators of the trace; written after it."""
    code = _At("code")
    """The folder that keeps what ran."""
    entry = _At("code", "entry.json")
    """Function or script that the ranks execute; none for built-in tasks."""
    entry_pickle = _At("code", "entry.pkl")
    """A function and its arguments."""
    private = _At("code", "private.json")
    """A script's arguments and the environment, for the run's owner alone."""
    source = _At("code", "source")
    """Folder of the cells, local modules or script as of the launch."""
    imported = _At("imported.json")
    """Source bundle and time of the import; only if the run was imported."""
    logs = _At("logs")
    """The folder of attempts' logs."""
    reserve = _At(".reserve")
    """Reserved space, freed so that the final record fits on a full disk."""
    system_folder = _At("system")
    """Where every host's samples are."""

    def system(self, host: str) -> Path:
        """Return the file of one host's samples."""
        return self.system_folder / f"{host}.jsonl"

    def system_files(self) -> list[Path]:
        """Return the files of all hosts' samples, by host."""
        return regular_files(self.system_folder, ".jsonl")

    def job_log(self, job_id: str) -> Path:
        """Return the file with the output of a Slurm job."""
        return self.logs / f"slurm-{job_id}.log"

    def attempt(self, number: int) -> Path:
        """Return the log folder of one attempt."""
        return self.logs / str(number)

    def supervisor_log(self, number: int) -> Path:
        """Return the supervisor's own output in one attempt."""
        return self.attempt(number) / "supervisor.log"

    def resumer(self, number: int) -> Path:
        """Return the file that names the process that resumes the run in an attempt."""
        return self.attempt(number) / "resume.json"

    def orders(self, number: int) -> Path:
        """Return the file of the supervisor's orders to the ranks of several hosts."""
        return self.attempt(number) / "orders.json"

    def torchrun(self, number: int) -> Path:
        """Return the folder in which each torchrun of an attempt reports its ranks."""
        return self.attempt(number) / "torchrun"

    def process_files(self) -> list[Path]:
        """Return the files that identify the processes of ranks and their probes."""
        return [*self.logs.glob("*/*/process.json"), *self.logs.glob("*/*/probe.json")]

    def rank(self, number: int, rank: int) -> RankPaths:
        """Return the files of one rank in one attempt."""
        return RankPaths(self.attempt(number) / str(rank))


@dataclass(frozen=True)
class RankPaths:
    """The files of one rank in one attempt."""

    root: Path

    stdout = _At("stdout.log")
    """What the rank printed."""
    stderr = _At("stderr.log")
    """What the rank printed to standard error."""
    process = _At("process.json")
    """Pid, start time, host and boot id."""
    probe = _At("probe.json")
    """As ``process``, for the process that probes the largest batch."""
    returned = _At("returned.pkl")
    """What the rank's function returned, pickled."""
    collectives = _At("collectives.json")
    """NCCL's flight recorder dump of the rank when the run hung."""
    error = _At("error.json")
    """The rank's last exception, in torchelastic's form."""


@dataclass(frozen=True)
class StudyPaths:
    """The files of one study."""

    root: Path

    study = _At("study.json")
    """Plan, order and run ids."""
    lock = _At("lock")
    """Locked by the process that executes the study."""
    progress = _At("progress.json")
    """Estimated end of an execution, and the answer so far."""
    imported = _At("imported.json")
    """Source bundle and time of the import; only if the study was imported."""
    change = _At("change.patch")
    """Diff from the base to the new version, in a study of ``nbkit try``."""

    def program(self, number: int) -> RunPaths:
        """Return the folder of an arm's function or script, with the files of a run."""
        return RunPaths(self.root / "programs" / str(number))


def study_folders(study_id: str = "") -> list[Path]:
    """Return the folders of the studies with an id, or its end; oldest first."""
    if is_study(study_id):
        return [studies_folder() / study_id]
    if not re.fullmatch(r"[\w-]*", study_id):
        return []
    every = sorted(studies_folder().glob("*/study.json"))
    return [path.parent for path in every if path.parent.name.endswith(study_id)]


def the_study_folder(study_id: str) -> Path:
    """Return the folder of the one study that is meant."""
    meant = study_folders(study_id)
    if study_id and len(meant) == 1:
        return meant[0]
    several = f"{len(meant)} studies have this ending"
    problem = several if meant else "no study has this id"
    newest = ", ".join(path.name for path in reversed(study_folders()[-3:]))
    there = f"Use a full id (newest: {newest})" if newest else "It is empty"
    message = f"study_id={study_id!r}: {problem} in {studies_folder()}. {there}."
    raise StoreError(message)


def is_study(study_id: str) -> bool:
    """Return whether the store has a study of this id."""
    return is_id(study_id) and StudyPaths(studies_folder() / study_id).study.is_file()
