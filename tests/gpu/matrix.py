"""`make gpu`: precision x memory_format x compile for ResNet-50 on one GPU.

Every arm trains resnet50 at batch 256 on synthetic data, in a fresh process a repeat
and in balanced order, and stands beside the published rows for that GPU and the bound
that its memory bandwidth sets. Writes ``build/gpu.json``; the runs stay in the store.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import nbkit
from nbkit import statistics
from nbkit.analysis.bounds import resnet50_bound
from nbkit.analysis.published import PublishedRow, lookup
from nbkit.errors import NbkitError
from nbkit.launch.devices import visible_gpus

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
        gpu = visible_gpus("cuda")[0]
    except NbkitError as error:
        sys.exit(f"make gpu needs an NVIDIA GPU: {error}")
    precisions = PRECISIONS
    if float(gpu.compute_capability or 0) < AMPERE:
        precisions = BEFORE_AMPERE
        print(f"{gpu.name} has neither TF32 nor BF16: {', '.join(precisions)} only.")
    arms = _arms(arguments, precisions)
    study = nbkit.Study.create("gpu-matrix", arms, repeats=arguments.repeats)
    study.run()
    rows = [_row(arm, runs) for arm, runs in study.runs_by_arm().items()]
    BUILD.mkdir(exist_ok=True)
    (BUILD / "gpu.json").write_text(json.dumps(rows, indent=1) + "\n")
    _print_table(rows)


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


def _row(arm: str, runs: list[nbkit.Run]) -> dict[str, Any]:
    config, first = runs[0].config, runs[0].summary
    rates = [run.summary.images_per_second for run in runs]
    measured = statistics.summarise([rate for rate in rates if rate is not None])
    gpu_name = first.device_name or ""
    bound = resnet50_bound(
        gpu_name,
        config.precision,
        "fused" if config.compile else "eager",
        first.batch_size_per_gpu or 256,
    )
    published = lookup(
        model="resnet50", gpu_name=gpu_name, precision=config.precision, world_size=1
    )
    alike = [row for row in published if row.memory_format == config.memory_format]
    return {
        "arm": arm,
        "run_ids": [run.run_id for run in runs],
        "gpu_name": gpu_name,
        "images_per_second": measured.median,
        "ci_low": measured.ci_low,
        "ci_high": measured.ci_high,
        "n": measured.n,
        "peak_memory_bytes": first.peak_memory_bytes,
        "data_wait_share": first.data_wait_share,
        "loss": first.loss,
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
        rate, bound = row["images_per_second"], row["bound_images_per_second"]
        memory = row["peak_memory_bytes"]
        published = ", ".join(
            f"{p['images_per_second']:.0f} ({p['source'][:40]})"
            for p in row["published"][:2]
            if p["images_per_second"]
        )
        print(
            f"{row['arm']:<32}{rate:>9.0f}{row['n']:>3}"
            f"{f'{bound:.0f}' if bound else '–':>9}"
            f"{f'{rate / bound:.0%}' if bound else '–':>7}"
            f"{f'{memory / 2**30:.1f}' if memory else '–':>7}  {published or '–'}"
        )


if __name__ == "__main__":
    main()
