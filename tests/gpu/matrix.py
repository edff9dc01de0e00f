"""`make gpu`: precision x memory_format x compile for ResNet-50 on one GPU.

Every arm trains resnet50 at batch 256 on synthetic data, in a fresh process a repeat
and in balanced order, and stands beside the published rows for that GPU and the bound
that its memory bandwidth sets. An arm that fails, such as for want of memory, has null
and its cause, and the others go on. Writes ``build/gpu.json`` after every run; the runs
stay in the store.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbkit
from nbkit import statistics
from nbkit.analysis.bounds import resnet50_bound
from nbkit.analysis.published import PublishedRow, lookup
from nbkit.errors import NbkitError
from nbkit.launch.devices import visible_gpus
from nbkit.store.record import RunState
from nbkit.study.order import balanced_order
from nbkit.telemetry.nvml import describe_gpus

BUILD = Path(__file__).parents[2] / "build"
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
BEFORE_AMPERE = ("fp32", "fp16")
AMPERE = 8.0
MEMORY_FORMATS = ("channels_last", "channels_first")


def main() -> None:
    """Run the matrix and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=256)
    arguments = parser.parse_args()
    try:
        wanted = visible_gpus("cuda")[0].name
    except NbkitError as error:
        sys.exit(f"make gpu needs an NVIDIA GPU: {error}")
    precisions = PRECISIONS
    [gpu] = [one for one in describe_gpus()["devices"] if one["uuid"] == wanted]
    if float(gpu["compute_capability"] or 0) < AMPERE:
        precisions = BEFORE_AMPERE
        print(f"{gpu['name']} has no TF32 and no BF16: {', '.join(precisions)} only.")
    rows = _measure(_arms(arguments, precisions), gpu["name"], arguments.repeats)
    _print_table(rows)
    if all(row["images_per_second"] is None for row in rows):
        sys.exit(1)


@dataclass
class _Measured:
    """What became of an arm so far."""

    runs: list[nbkit.Run] = field(default_factory=list)
    """Those that finished."""
    failures: list[dict[str, Any]] = field(default_factory=list)

    def add_repeat(self, config: nbkit.ExperimentConfig) -> str:
        """Run the arm once more, and say how it ended."""
        try:
            run = nbkit.launch(config, on_owner_exit="stop")
            run.wait(raise_on_failure=False)
        except NbkitError as error:
            self.failures.append(
                {"run_id": None, "kind": type(error).__name__, "message": str(error)}
            )
            return f"not started: {error}"
        if run.state is RunState.FINISHED:
            self.runs.append(run)
            return f"{run.summary.images_per_second or 0:.0f} images/s"
        cause = run.cause or {}
        kind, message = cause.get("kind"), cause.get("message")
        self.failures.append({"run_id": run.run_id, "kind": kind, "message": message})
        return f"{run.state}: {message}"


def _measure(
    arms: dict[str, nbkit.ExperimentConfig], gpu_name: str, repeats: int
) -> list[dict[str, Any]]:
    """Run every arm in balanced order, whatever becomes of the others."""
    measured = {arm: _Measured() for arm in arms}
    order = balanced_order(list(arms), repeats)
    BUILD.mkdir(exist_ok=True)
    rows: list[dict[str, Any]] = []
    for number, slot in enumerate(order, start=1):
        said = measured[slot.arm].add_repeat(arms[slot.arm])
        print(f"[{number}/{len(order)}] {slot.arm}: {said.splitlines()[0]}", flush=True)
        rows = [_row(arm, config, measured[arm], gpu_name)
                for arm, config in arms.items()]  # fmt: skip
        (BUILD / "gpu.json").write_text(json.dumps(rows, indent=1) + "\n")
    return rows


def _arms(
    arguments: argparse.Namespace, precisions: tuple[str, ...]
) -> dict[str, nbkit.ExperimentConfig]:
    return {
        f"{precision} {memory_format}{' compile' if compiled else ''}": (
            nbkit.ExperimentConfig(
                model="resnet50",
                device="cuda",
                precision=precision,
                memory_format=memory_format,
                compile=compiled,
                batch_size_per_gpu=arguments.batch_size,
                steps=arguments.steps,
                warmup_steps=arguments.steps // 3,
                tensorboard=False,
            )
        )
        for precision, memory_format, compiled in itertools.product(
            precisions, MEMORY_FORMATS, (False, True)
        )
    }


def _row(
    arm: str, config: nbkit.ExperimentConfig, measured: _Measured, gpu_name: str
) -> dict[str, Any]:
    summaries = [run.summary for run in measured.runs]
    rates = [summary.images_per_second for summary in summaries]
    rates = [rate for rate in rates if rate is not None]
    rate = statistics.summarise(rates) if rates else None
    first = summaries[0] if summaries else None
    bound = resnet50_bound(
        gpu_name,
        config.precision,
        "fused" if config.compile else "eager",
        int(config.batch_size_per_gpu),
    )
    published = lookup(
        model="resnet50", gpu_name=gpu_name, precision=config.precision, world_size=1
    )
    alike = [row for row in published if row.memory_format == config.memory_format]
    return {
        "arm": arm,
        "run_ids": [run.run_id for run in measured.runs],
        "failures": measured.failures,
        "gpu_name": gpu_name,
        "images_per_second": rate.median if rate else None,
        "ci_low": rate.ci_low if rate else None,
        "ci_high": rate.ci_high if rate else None,
        "n": rate.n if rate else 0,
        "peak_memory_bytes": first.peak_memory_bytes if first else None,
        "data_wait_share": first.data_wait_share if first else None,
        "loss": first.loss if first else None,
        "bound_images_per_second": bound.images_per_second if bound else None,
        "bound_kind": bound.fusion if bound else None,
        "published": [_published(row) for row in alike or published],
    }


def _published(row: PublishedRow) -> dict[str, Any]:
    return {
        "images_per_second": row.images_per_second,
        "memory_format": row.memory_format,
        "statistic": row.statistic,
        "source": row.source,
    }


def _print_table(rows: list[dict[str, Any]]) -> None:
    print(f"\n{rows[0]['gpu_name']}, ResNet-50, synthetic data, measured here:")
    names = f"{'img/s':>9}{'n':>3}{'bound':>9}{'of it':>7}{'GiB':>7}"
    print(f"{'arm':<32}{names}  published")
    for row in rows:
        print(_table_line(row))


def _table_line(row: dict[str, Any]) -> str:
    rate, bound = row["images_per_second"], row["bound_images_per_second"]
    memory = row["peak_memory_bytes"]
    beside = ", ".join(
        f"{p['images_per_second']:.0f} ({p['source'][:40]})"
        for p in row["published"][:2]
        if p["images_per_second"]
    )
    if row["failures"]:
        first = row["failures"][0]
        said = f"{len(row['failures'])} failed: {first['kind']}"
        beside = f"{said}; {beside}" if beside else said
    return (
        f"{row['arm']:<32}{f'{rate:.0f}' if rate else '–':>9}{row['n']:>3}"
        f"{f'{bound:.0f}' if bound else '–':>9}"
        f"{f'{rate / bound:.0%}' if rate and bound else '–':>7}"
        f"{f'{memory / 2**30:.1f}' if memory else '–':>7}  {beside or '–'}"
    )


if __name__ == "__main__":
    main()
