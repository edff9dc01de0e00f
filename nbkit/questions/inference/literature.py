"""Published results of inference, by GPU and model."""

from __future__ import annotations

from collections.abc import Sequence

from nbkit.references.rows import PublishedRow, lookup


def published_of(model: str, batch_sizes: Sequence[int]) -> list[PublishedRow]:
    """Return published results of a model, on whatever device.

    Of each device, format and setting: the batch sizes that were measured here, and the
    one with the highest rate.
    """
    groups: dict[tuple[object, ...], list[PublishedRow]] = {}
    for row in lookup(model=model, phase="infer"):
        if row.images_per_second and row.batch_size_per_gpu:
            how = (row.precision, row.memory_format, row.compile)
            key = (row.publisher, row.software, row.gpu_name, *how)
            groups.setdefault(key, []).append(row)
    results: list[PublishedRow] = []
    for rows in groups.values():
        best = max(rows, key=lambda row: row.images_per_second or 0)
        results += [
            row for row in rows if row is best or row.batch_size_per_gpu in batch_sizes
        ]
    return results
