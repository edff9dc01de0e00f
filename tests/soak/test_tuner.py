"""The tuner on real runs, held against every setting of its grid.

``python -m tests.soak.test_tuner FILE`` writes a grid that was measured into FILE, as
tests/questions/test_input_pipeline_trials.py has it; PYTHONPATH names tests/plugins.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.datasets import pack
from nbkit.errors import RunFailedError
from nbkit.questions.input_pipeline.planning import with_setting
from nbkit.questions.input_pipeline.trials import Grid, LoaderSetting
from nbkit.questions.input_pipeline.tuner import tune_loading
from nbkit.review.causes import Cause, Diagnosis
from nbkit.store.record import RunState
from nbkit.studies.order import balanced_order
from tests.launch.conftest import plugins, small, store
from tests.questions.test_tuner import loading
from tests.worker.images import write_classes

__all__ = ["loading", "plugins", "small", "store"]


pytestmark = pytest.mark.timeout(7200)

NEAR = 0.95
STEP_SECONDS = 0.08
GRIDS = {
    # Loaders of the plug-in, whose reads take 10 ms: what bounds them are reads at
    # once, on whatever machine this runs.
    "slow storage": Grid(
        ["slow_storage_torch", "slow_storage_tfrecord"], [1, 2, 4, 8], [1, 2, 4]
    ),
    "photos": Grid(["torch", "tfrecord"], [1, 2, 4], [2, 4, 8]),
}
REPEATS = {"photos": 3}
"""Of every setting; those of the plug-in are measured once."""


def experiment(name: str, folder: Path) -> ExperimentConfig:
    """Return what is run for a grid; its images are packed into a folder."""
    far = name.startswith("slow storage")
    data = folder / ("far" if far else "photos")
    if not data.exists():
        # Small images, so that the processors do not matter.
        images = write_classes(folder / "small", 40) if far else "photos"
        pack(images, data, "tfrecord", shard_megabytes=1, on_progress=lambda *_: None)
    return ExperimentConfig(
        task="load",
        data=str(data),
        emulated_step_seconds=STEP_SECONDS,
        batch_size_per_gpu=16,
        image_size=32 if far else 224,
        steps=22,
        warmup_steps=6,
        device="cpu",
        tensorboard=False,
    )


def measure_grid(name: str, config: ExperimentConfig) -> dict[LoaderSetting, float]:
    """Return the rate of every setting, a mean over runs in balanced order."""
    settings = {str(one): one for one in GRIDS[name].settings}
    rates: dict[LoaderSetting, list[float]] = {one: [] for one in settings.values()}
    for slot in balanced_order(list(settings), REPEATS.get(name, 1)):
        setting = settings[slot.arm]
        run = nbkit.launch(with_setting(config, setting)).wait()
        rates[setting].append(run.summary.images_per_second or 0.0)
    return {setting: sum(many) / len(many) for setting, many in rates.items()}


@pytest.mark.parametrize("name", GRIDS)
def test_95_percent_of_the_best_are_found_in_a_third_of_the_trials(name, tmp_path):
    grid, config = GRIDS[name], experiment(name, tmp_path)
    start = LoaderSetting(grid.workers[0], grid.prefetch[0], grid.loaders[0])

    found = tune_loading(config, grid, start, progress=False)

    surface = measure_grid(name, config)
    assert len(found.trials) <= len(grid) / 3
    assert surface[found.chosen] >= NEAR * max(surface.values())


def record(target: Path, folder: Path) -> None:
    """Write the grid of slow storage, which is alike on every machine."""
    config, grid = experiment("slow storage", folder), GRIDS["slow storage"]
    rates = measure_grid("slow storage", config)
    written = {
        "loaders": list(grid.loaders),
        "workers": list(grid.workers),
        "prefetch": list(grid.prefetch),
        "demand_images_per_second": config.batch_size_per_gpu / STEP_SECONDS,
        "rates": [
            [one.workers, one.prefetch, one.loader, round(rate, 1)]
            for one, rate in rates.items()
        ],
    }
    target.write_text(json.dumps(written) + "\n")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as temporary:
        record(Path(sys.argv[1]), Path(temporary))


def test_a_search_in_which_everything_fails_says_why_and_ends_its_progress(
    loading, capsys
):
    grid = Grid(["tfrecord"], [1], [2])

    with pytest.raises(RunFailedError, match="reads TFRecord files"):
        tune_loading(loading, grid, LoaderSetting(1, 2, "tfrecord"))

    assert "tuner: 1 run in" in capsys.readouterr().out


def test_a_trial_that_fails_ends_neither_the_search_nor_the_notebook(
    loading, capsys, monkeypatch
):
    cause = Cause.of("other-cpu-processes", 0.5, "Others were there.", "wait.", None)
    told = Diagnosis("a trial", [cause])
    monkeypatch.setattr(
        "nbkit.questions.input_pipeline.tuner.diagnose", lambda run: told
    )
    grid = Grid(["tfrecord", "torch"], [1], [2])

    found = tune_loading(loading, grid, LoaderSetting(1, 2, "tfrecord"), most_trials=2)

    failed, done = found.trials
    assert "reads TFRecord files" in failed.cause
    assert (failed.images_per_second, done.cause) == (0.0, None)
    assert (failed.disturbed, done.disturbed) == (None, "Others were there.")
    assert found.chosen == LoaderSetting(1, 2, "torch")
    assert nbkit.attach(failed.run_id).state is RunState.FAILED
    names = [nbkit.attach(one.run_id).config.name for one in found.trials]
    assert names == ["tuner tfrecord", "tuner torch"]
    assert "tuner: 2 runs in" in capsys.readouterr().out
