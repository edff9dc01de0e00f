"""The scaling result for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from nbkit.questions.scaling.projection import Outlook
from nbkit.questions.scaling.throughput import ScalingRow
from nbkit.statistics.quantities import RATE_INTERVAL, RATE_STATISTIC


def result_document(
    rows: Sequence[ScalingRow],
    outlooks: dict[str, Outlook] | None = None,
    conditions: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the result for programs: a row a world size, a column an arm.

    The shape is that of the table in PaddlePaddle's ResNet-50 reports (GPUs down,
    precisions across), with what they leave out: the statistic, n, interval and
    efficiency.

    References
    ----------
    https://github.com/PaddlePaddle/Perf/blob/master/ResNet50V1.5/README.md
    """
    arms = list(dict.fromkeys(row.arm for row in rows))
    sizes = sorted({row.world_size for row in rows})
    return {
        "schema": 1,
        "quantity": "images_per_second",
        "origin": "measured",
        "functional_only": all(row.device_type == "cpu" for row in rows),
        "statistic": RATE_STATISTIC,
        "interval": RATE_INTERVAL,
        "conditions": conditions or {},
        "arms": arms,
        "rows": [
            {
                "world_size": size,
                "results": {
                    row.arm: _cell(row) for row in rows if row.world_size == size
                },
            }
            for size in sizes
        ],
        "projections": [
            {"arm": arm, "origin": "projected", **asdict(projection)}
            for arm, outlook in (outlooks or {}).items()
            for projection in outlook.projections
        ],
        "projections_refused": [
            {"arm": arm, **asdict(refusal)}
            for arm, outlook in (outlooks or {}).items()
            for refusal in outlook.refusals
        ],
    }


_OF_A_VERDICT = ("speedup", "efficiency", "node_efficiency")


def _cell(row: ScalingRow) -> dict[str, Any]:
    rate = row.images_per_second
    cell = {
        "images_per_second": rate.median,
        "ci_low": rate.ci_low,
        "ci_high": rate.ci_high,
        "n": rate.n,
        "q25": rate.q25,
        "q75": rate.q75,
        "images_per_second_per_device": row.images_per_second_per_device,
        "nnodes": row.nnodes,
        "device_type": row.device_type,
        "base_world_size": row.base_world_size,
        "speedup": row.speedup,
        "efficiency": row.efficiency,
        "efficiency_ci_low": row.efficiency_low,
        "efficiency_ci_high": row.efficiency_high,
        "efficiency_bootstrap_low": row.efficiency_bootstrap_low,
        "efficiency_bootstrap_high": row.efficiency_bootstrap_high,
        "node_efficiency": row.node_efficiency,
        "node_efficiency_ci_low": row.node_efficiency_low,
        "node_efficiency_ci_high": row.node_efficiency_high,
        "data_wait_share": row.data_wait_share,
        "communication_share": row.communication_share,
        "peak_memory_bytes": row.peak_memory_bytes,
        "cpu_ms_per_image": row.cpu_ms_per_image,
    }
    if row.counts:
        return cell
    return {
        name: None if name.startswith(_OF_A_VERDICT) else value
        for name, value in cell.items()
    }
