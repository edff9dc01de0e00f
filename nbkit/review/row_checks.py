"""Checks of published rates, by row and by series.

No check knows a publisher: what is found in one table would be found in any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from nbkit.config.fields import SIXTEEN_BIT
from nbkit.references.gpu_names import canonical_gpu_name
from nbkit.references.rows import PublishedRow, series
from nbkit.review.bounds import Fusion, resnet50_bound
from nbkit.review.claim_checks import unstated_findings
from nbkit.review.findings import AuditFinding
from nbkit.statistics import PRACTICAL_MARGIN
from nbkit.statistics.comparison import efficiency
from nbkit.statistics.quantities import device_label

INPUT_BOUND_SHARE = 0.10
"""Share of the step spent waiting for data from which the input is what is measured."""

_CONVOLUTIONAL = (
    *("resnet", "resnext", "wide_resnet", "densenet", "vgg", "alexnet", "inception"),
    *("googlenet", "mobilenet", "efficientnet", "regnet", "convnext", "squeezenet"),
    *("shufflenet", "mnasnet"),
)
"""How the names of families begin that are mostly convolutions."""

_SMALL_GAIN = 1.5
"""Below it the half of the rate's doubling that half the bytes allow is not reached."""

RowCheck = Callable[[PublishedRow], Iterator[AuditFinding]]


def row_findings(
    rows: Sequence[PublishedRow], beside: Sequence[PublishedRow] = ()
) -> Iterator[AuditFinding]:
    """Yield the findings on published rows."""
    for row in rows:
        for check in _CHECKS:
            yield from check(row)
    yield from unstated_findings(rows)
    for label, members in series([*rows, *beside]).items():
        yield from _of_series(label, members)
    training = [row for row in rows if row.phase == "train" and row.images_per_second]
    yield from _small_gains(training)
    yield from _confounded(training)


def has_convolutions(model: str) -> bool:
    """Return whether a model (name in torchvision or timm) is mostly convolutions.

    False for unknown families.
    """
    return model.startswith(_CONVOLUTIONAL)


def has_tensor_cores(gpu_name: str | None) -> bool:
    """Return whether a GPU is known to have tensor cores."""
    name = canonical_gpu_name(gpu_name) if gpu_name else None
    return name is not None and not name.startswith(("P100", "Radeon"))


def bound_finding(
    subject: str,
    gpu_name: str,
    precision: str,
    images_per_second_per_gpu: float,
    url: str | None = None,
) -> AuditFinding | None:
    """Return a finding if the rate of ResNet-50 exceeds the bound of the GPU."""
    if precision == "fp32":
        return None
    kinds: tuple[tuple[str, Fusion], ...] = (
        ("impossible-throughput", "minimal"),
        ("implausible-throughput", "fused"),
    )
    for code, fusion in kinds:
        bound = resnet50_bound(gpu_name, precision, fusion)
        if bound and images_per_second_per_gpu > bound.images_per_second:
            evidence = (
                f"{images_per_second_per_gpu:,.0f} images/s per GPU; {fusion} kernels "
                f"at full memory bandwidth reach {bound.images_per_second:,.0f}"
            )
            claim = f"{images_per_second_per_gpu:,.0f} images/s per GPU"
            return AuditFinding.of(code, subject, claim, evidence, url)
    return None


def superlinear(points: Sequence[tuple[int, float]]) -> tuple[int, float] | None:
    """Return the size with the highest efficiency if scaling is superlinear."""
    base_size, base = min(points)
    superlinear_rows = [
        (efficiency(rate, size, base, base_size), size)
        for size, rate in points
        if size > base_size
    ]
    if not superlinear_rows or max(superlinear_rows)[0] <= 1 + PRACTICAL_MARGIN:
        return None
    highest, size = max(superlinear_rows)
    return size, highest


def _finding(code: str, row: PublishedRow, evidence: str) -> AuditFinding:
    return AuditFinding.of(code, row.label, _claim(row), evidence, row.url)


def _claim(row: PublishedRow) -> str:
    if row.images_per_second is not None:
        return f"{row.images_per_second:,.6g} images/s"
    if row.speedup is not None:
        return f"{row.speedup:g}x one GPU"
    return f"{row.time_to_target_minutes:g} minutes"


def _layout(row: PublishedRow) -> Iterator[AuditFinding]:
    # torch.compile chooses the layout of convolutions itself.
    if (
        row.precision in SIXTEEN_BIT
        and row.memory_format == "channels_first"
        and not row.compile
        and has_convolutions(row.model)
        and has_tensor_cores(row.gpu_name)
    ):
        yield _finding(
            "layout", row, f"{row.precision} in channels_first on {row.gpu_name}"
        )


def _statistic(row: PublishedRow) -> Iterator[AuditFinding]:
    detail = row.statistic_detail or row.statistic or ""
    in_full = "; ".join(filter(None, (detail, row.conditions)))
    for window, code in (
        ("drained step included", "drained-step"),
        ("warm-up included", "warm-up"),
        ("evaluation included", "evaluation"),
    ):
        if row.window == window:
            yield _finding(code, row, in_full)
    if row.statistic == "mean of step rates":
        yield _finding("mean-of-rates", row, detail)


def _data_wait(row: PublishedRow) -> Iterator[AuditFinding]:
    share = row.data_wait_share
    if share is not None and share > INPUT_BOUND_SHARE:
        evidence = f"{share * 100:.0f}% of the step is data wait"
        yield _finding("input-bound", row, evidence)


def _precision(row: PublishedRow) -> Iterator[AuditFinding]:
    on_gpu = row.gpu_name is not None and row.phase != "emulation"
    sixteen_bit = "mixed precision" in (row.conditions or "")
    if on_gpu and row.precision is None and not sixteen_bit:
        yield _finding("precision", row, "none of FP32, TF32, FP16 and BF16 is stated")


def _emulated(row: PublishedRow) -> Iterator[AuditFinding]:
    if row.phase == "emulation":
        yield _finding("emulated", row, row.statistic_detail or "emulated")


def _too_fast(row: PublishedRow) -> Iterator[AuditFinding]:
    if row.model != "resnet50" or row.phase != "train" or row.own_image_size:
        return
    if row.gpu_name and row.precision and row.images_per_second:
        rate = row.images_per_second / row.world_size
        finding = bound_finding(row.label, row.gpu_name, row.precision, rate, row.url)
        if finding is not None:
            yield finding


def _too_much_speedup(row: PublishedRow) -> Iterator[AuditFinding]:
    if row.speedup is None:
        return
    if superlinear([(1, 1.0), (row.world_size, row.speedup)]) is not None:
        yield _finding("superlinear", row, f"{row.speedup:g}x on {row.world_size} GPUs")


_CHECKS: tuple[RowCheck, ...] = (
    _layout,
    _statistic,
    _data_wait,
    _precision,
    _emulated,
    _too_fast,
    _too_much_speedup,
)


def _of_series(label: str, members: Sequence[PublishedRow]) -> Iterator[AuditFinding]:
    first, last = members[0], members[-1]
    claim = f"{first.world_size} to {last.world_size} GPUs"
    statistics = [
        ", ".join(filter(None, (row.statistic, row.window))) or "not stated"
        for row in members
    ]
    if len(set(statistics)) > 1:
        evidence = "; ".join(
            f"{device_label('cuda', row.world_size)}: {statistic}"
            for row, statistic in zip(members, statistics, strict=True)
        )
        yield AuditFinding.of("mixed-statistics", label, claim, evidence, first.url)
    years = sorted({row.year for row in members})
    if len(years) > 1:
        evidence = f"results from {', '.join(map(str, years))}"
        yield AuditFinding.of("mixed-environment", label, claim, evidence, first.url)
    beyond = superlinear(
        [(row.world_size, row.images_per_second or 0.0) for row in members]
    )
    if beyond is not None:
        size, highest = beyond
        times = highest * size / first.world_size
        evidence = f"{times:.2f}x speedup on {size / first.world_size:g}x the GPUs: "
        evidence += f"efficiency {highest * 100:.1f}%"
        yield AuditFinding.of("superlinear", label, claim, evidence, first.url)


_ALIKE = (
    *("publisher", "software", "model", "gpu_name", "memory_format"),
    *("world_size", "nnodes", "data"),
)


def _grouped(
    rows: Iterable[PublishedRow],
) -> Iterator[tuple[str, list[PublishedRow]]]:
    """Yield rows of the same software, model and machine, with a label for them."""
    groups: dict[tuple[Any, ...], list[PublishedRow]] = {}
    for row in rows:
        groups.setdefault(tuple(getattr(row, name) for name in _ALIKE), []).append(row)
    for key, members in groups.items():
        if len(members) > 1:
            yield ", ".join(str(value) for value in key if value is not None), members


def _small_gains(rows: Sequence[PublishedRow]) -> Iterator[AuditFinding]:
    """Compare 16-bit precision with TF32 or FP32 on the same machine."""
    eligible = [
        row
        for row in rows
        if has_convolutions(row.model) and has_tensor_cores(row.gpu_name)
    ]
    for label, members in _grouped(eligible):
        sixteen = _best(members, SIXTEEN_BIT)
        baseline = _best(members, ("tf32", "fp32"))
        if sixteen is None or baseline is None:
            continue
        gain = _rate(sixteen) / _rate(baseline)
        if gain < _SMALL_GAIN:
            evidence = (
                f"{sixteen.precision} {_claim(sixteen)}, {baseline.precision} "
                f"{_claim(baseline)}: {gain:.2f}x"
            )
            claim = f"{sixteen.precision} is {gain:.2f}x {baseline.precision}"
            yield AuditFinding.of("small-gain", label, claim, evidence, sixteen.url)


def _confounded(rows: Sequence[PublishedRow]) -> Iterator[AuditFinding]:
    """Find comparisons of precisions that change the batch as well."""
    for label, members in _grouped(rows):
        batches: dict[str, set[int]] = {}
        for row in members:
            if row.precision and row.batch_size_per_gpu:
                batches.setdefault(row.precision, set()).add(row.batch_size_per_gpu)
        if len(batches) < 2 or set.intersection(*batches.values()):
            continue
        parts = [
            f"{precision} with batch {' and '.join(map(str, sorted(sizes)))}"
            for precision, sizes in sorted(batches.items())
        ]
        claim = " against ".join(sorted(batches))
        evidence = ", ".join(parts)
        yield AuditFinding.of("confounded", label, claim, evidence, members[0].url)


def _best(
    rows: Iterable[PublishedRow], precisions: Sequence[str]
) -> PublishedRow | None:
    """Return the fastest row of these precisions."""
    candidates = [row for row in rows if row.precision in precisions]
    return max(candidates, key=_rate, default=None)


def _rate(row: PublishedRow) -> float:
    assert row.images_per_second is not None
    return row.images_per_second
