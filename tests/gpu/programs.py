"""The programs beside the checks, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from checks import ShortError, Slot, require_finished

from nbkit import ExperimentConfig, Run
from nbkit.store.stored_runs import create_run_folder

__all__ = ["plain_loops", "probed", "require_equal_weights"]

_HERE = Path(__file__).parent


def plain_loops(
    slot: Slot, configs: Mapping[str, ExperimentConfig]
) -> dict[str, dict[str, Any]]:
    """Return what `reference.py` says of configurations, by their names."""
    question, answer = slot.folder / "reference.json", slot.folder / "answer.json"
    asked = {name: config.to_json() for name, config in configs.items()}
    question.write_text(json.dumps(asked))
    _call(slot, [str(_HERE / "reference.py"), str(question), str(answer)], {})
    return json.loads(answer.read_bytes())


def probed(
    slot: Slot,
    config: ExperimentConfig,
    *arguments: str,
    ranks: int = 1,
    gpus: int | None = None,
    environment: dict[str, str] | None = None,
) -> tuple[Run, list[dict[str, Any]]]:
    """Train in ranks that are looked into; return the run and what each rank saw.

    Each rank has a GPU of its own, unless ``gpus`` is less than ``ranks``.
    """
    paths = create_run_folder(config)
    program = [str(_HERE / "probed_rank.py"), str(paths.root), *arguments]
    variables = {
        "CUDA_VISIBLE_DEVICES": ",".join(
            gpu["uuid"] for gpu in slot.gpus[: gpus or ranks]
        ),
        **(environment or {}),
    }
    if ranks == 1:
        numbers = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
        _call(slot, program, variables | numbers | {"LOCAL_WORLD_SIZE": "1"})
    else:
        torchrun = ["-m", "torch.distributed.run", "--standalone"]
        number = f"--nproc-per-node={ranks}"
        _call(slot, [*torchrun, number, *program], variables)
    run = Run(paths.root)
    require_finished(run)
    seen = [
        json.loads((paths.root / f"probe-{rank}.json").read_bytes())
        for rank in range(ranks)
    ]
    return run, seen


def require_equal_weights(seen: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a hash of every rank's weights; different ones fall short."""
    hashes = [one["weights_sha256"] for one in seen]
    apart = [rank for rank, one in enumerate(hashes) if one != hashes[0]]
    if apart:
        message = f"ranks {apart} have other weights than rank 0"
        raise ShortError(message)
    return hashes


def _call(slot: Slot, arguments: Sequence[str], variables: dict[str, str]) -> None:
    """Run a Python program; its last words are the error if it fails."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", *arguments],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=slot.seconds_left,
        )
    except subprocess.TimeoutExpired as error:
        message = f"{Path(arguments[0]).name} not over after {error.timeout:.0f} s"
        raise ShortError(message) from None
    if done.returncode:
        (slot.folder / "failed.log").write_text(done.stdout)
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        raise ShortError(_telling(lines) or f"exit code {done.returncode}")


def _telling(lines: Sequence[str]) -> str:
    """Return the line with the exception, and the line of nbkit that raised it."""
    said = next(
        (line for line in reversed(lines) if "Error" in line.partition(":")[0]),
        lines[-1] if lines else "",
    )
    own = next(
        (
            line.strip()
            for line in reversed(lines)
            if "/nbkit/" in line and "File" in line
        ),
        "",
    )
    return f"{said} {own}".strip()
