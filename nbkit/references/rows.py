"""Published results in one vocabulary, each with its source.

The data files beside this module hold facts only: a number, under which conditions
and by which statistic it was got, and where it was printed. `published.csv` is what
others published, `measured.csv` what nbkit measured on a GPU (see
`nbkit.references.measured`). Neither is ever mixed with what is measured here; it is
context. `nbkit.audit` says which of these numbers mislead.

Omitted is what is not a rate, speed-up or time of one configuration: the read rates of
``dd`` in NetApp's report and the 300 MB/s a node of Dell's guide (storage), the ranges
"65 to 91 % faster" of that guide (three frameworks and several sizes together), and
Dell's text on CheXNet, whose rates are in a figure only.

The statistic of timm's result files is that of its ``benchmark.py``
(https://github.com/huggingface/pytorch-image-models/blob/main/benchmark.py); that of
NVIDIA's MXNet tables is in their text. Where a source does not say, it is None.
"""

from __future__ import annotations

import csv
import functools
import html
import io
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from importlib import resources
from typing import Any

from nbkit.errors import ConfigError
from nbkit.plural import plural
from nbkit.references.gpu_names import canonical_gpu_name, may_be_the_same_gpu
from nbkit.registry import suggest


@dataclass(frozen=True)
class PublishedRow:
    """One published result. ``None`` means not stated by the source."""

    series: str | None
    """Label shared by the rows of one scaling series; None for a single result."""
    model: str
    """Model name in torchvision, or in timm if torchvision does not have it."""
    framework: str | None
    """``pytorch``, ``mxnet``, ``tensorflow``, ``paddlepaddle``, ``caffe2``,
    ``tinygrad``."""
    software: str | None
    """Container, release or program, as named by the source."""
    gpu_name: str | None
    """GPU name as defined by `nbkit.references.gpu_names`; None for a CPU."""
    world_size: int
    """GPUs of all nodes, or processes on a CPU."""
    nnodes: int
    precision: str | None
    """``fp32``, ``tf32``, ``fp16`` (mixed, unless the conditions say pure) or
    ``bf16``."""
    memory_format: str | None
    """``channels_first`` or ``channels_last``."""
    compile: bool | None
    """Whether torch.compile was used."""
    batch_size_per_gpu: int | None
    data: str | None
    """``synthetic`` or ``real``."""
    phase: str
    """``train``, ``infer``, or ``emulation`` (a rate that a storage benchmark assumes
    for a GPU, not measured)."""
    images_per_second: float | None
    """Throughput of all GPUs."""
    speedup: float | None
    """Speedup over one GPU, if the source prints no rate."""
    time_to_target_minutes: float | None
    """Minutes to 75.9 % top-1 accuracy (MLPerf rules)."""
    runs: int | None
    """Number of runs."""
    statistic: str | None
    """How the number was computed: ``images / time``, ``mean`` or ``median of step
    rates``, ``median of epoch rates``, ``mean of runs``, or ``the program's average``
    (as the program defines it)."""
    window: str | None
    """Part of the run that it covers: ``every step``, ``warm-up dropped``, ``warm-up
    included``, ``drained step included`` (the last one, in which the input runs dry),
    ``evaluation included``."""
    statistic_detail: str | None
    """Details of the statistic, from the source or its code."""
    origin: str
    """``published`` as it stands, ``recomputed`` from the published log, ``derived`` by
    arithmetic on published numbers, or ``measured`` by nbkit."""
    data_wait_share: float | None
    """Share of the step that is data wait, if it follows from the source."""
    conditions: str | None
    """Other conditions of the measurement."""
    publisher: str
    """Short name of the publisher, for chart legends."""
    source: str
    """Title of the publication."""
    url: str | None
    """URL of the publication; None for nbkit's own measurements, and for one report of
    which only a copy is known."""
    year: int

    @property
    def label(self) -> str:
        """Publisher, model, devices and setup in one line."""
        devices = f"{self.world_size} x {self.gpu_name or 'CPU'}"
        how = (self.precision, self.memory_format, self.phase)
        setup = ", ".join(filter(None, how))
        return f"{self.publisher}: {self.model}, {devices}, {setup}"

    @property
    def own_image_size(self) -> str | None:
        """Size of the images of a training that states it: it is not the usual one."""
        parts = re.split(r"[,;] ", self.conditions or "")
        sizes = [part for part in parts if part.endswith(" px")]
        return sizes[0] if sizes and self.phase == "train" else None


class PublishedRows(list[PublishedRow]):
    """Published results, which a notebook shows as a table.

    ``pandas.DataFrame(rows.to_dicts())`` makes a data frame of them.
    """

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return every row as a dict of plain values; unknown is None."""
        return [asdict(row) for row in self]

    def to_csv(self) -> str:
        """Return the rows as CSV in the format of the data files, with a header."""
        text = io.StringIO()
        lines = csv.DictWriter(text, [field.name for field in fields(PublishedRow)])
        lines.writeheader()
        words = {True: "yes", False: "no"}
        for values in self.to_dicts():
            values["compile"] = words.get(values["compile"])
            lines.writerow(values)
        return text.getvalue().replace("\r\n", "\n")

    def __repr__(self) -> str:
        lines = [plural(len(self), "published result")]
        lines += [
            f"{row.label}: {_shown(row.images_per_second)} images/s"
            for row in self[:_SHOWN_AS_TEXT]
        ]
        return "\n".join([*lines, *_rest(self, _SHOWN_AS_TEXT)])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in _COLUMNS)
        body = "".join(f"<tr>{_cells(row)}</tr>" for row in self[:_SHOWN_AS_TABLE])
        rest = "".join(f"<p>{line}</p>" for line in _rest(self, _SHOWN_AS_TABLE))
        count = f"<caption>{plural(len(self), 'published result')}</caption>"
        table = f"{count}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
        return f'<div style="overflow-x: auto"><table>{table}</table></div>{rest}'


_SHOWN_AS_TEXT = 10
_SHOWN_AS_TABLE = 60
_COLUMNS = (
    *("publisher", "model", "phase", "gpu_name", "world_size", "precision"),
    *("memory_format", "batch_size_per_gpu", "data", "images_per_second"),
    *("statistic", "window", "year", "source"),
)


def _shown(value: object) -> str:
    """Return a cell's text; unknown is a dash."""
    if value is None:
        return "–"
    return f"{value:,.6g}" if isinstance(value, float) else str(value)


def _cells(row: PublishedRow) -> str:
    texts = [html.escape(_shown(getattr(row, name))) for name in _COLUMNS]
    if row.url is not None:
        texts[-1] = f'<a href="{html.escape(row.url)}">{texts[-1]}</a>'
    return "".join(f'<td style="text-align: left">{text}</td>' for text in texts)


def _rest(rows: list[PublishedRow], shown: int) -> list[str]:
    more = len(rows) - shown
    return [f"and {more} more"] if more > 0 else []


_COMPARABLE = {"bf16": ("bf16", "fp16")}


def published(
    *, model: str | None = None, gpu_name: str | None = None, **conditions: Any
) -> PublishedRows:
    """Return published results, each with its source, in the order of the data files.

    Parameters
    ----------
    model
        Only rows of this model, such as ``resnet50``; None for all models.
    gpu_name
        Only rows of this GPU: its name in NVML, or a family such as ``A100``.
    **conditions
        Other fields of `PublishedRow` with their required values, such as
        ``precision="fp16"``, ``publisher="Paddle"`` or ``world_size=8``.

    Raises
    ------
    ConfigError
        If a condition is not a field of `PublishedRow`.

    Examples
    --------
    >>> rows = nbkit.published(model="resnet50", gpu_name="V100", precision="fp16")
    >>> rows[0].images_per_second, rows[0].statistic, rows[0].source, rows[0].url
    ... # doctest: +SKIP
    >>> pandas.DataFrame(nbkit.published().to_dicts())  # doctest: +SKIP
    """
    known = [field.name for field in fields(PublishedRow)]
    for name in conditions:
        if name not in known:
            message = (
                f"{name}={conditions[name]!r} is not a field of the published results. "
                f"Use one of {', '.join(known)}.{suggest(name, known)}"
            )
            raise ConfigError(message)
    rows = lookup(model=model, gpu_name=gpu_name, phase=None)
    return PublishedRows(
        row
        for row in rows
        if all(getattr(row, name) == value for name, value in conditions.items())
    )


def lookup(
    *, gpu_name: str | None = None, phase: str | None = "train", **conditions: Any
) -> PublishedRows:
    """Return the published results that fit what is asked for; None is anything."""
    wanted = {"phase": phase, **conditions}
    rows = PublishedRows(
        row
        for row in _rows()
        if all(
            value is None or getattr(row, name) == value
            for name, value in wanted.items()
        )
    )
    if gpu_name is None:
        return rows
    canonical = canonical_gpu_name(gpu_name)
    if canonical is None:
        return PublishedRows()
    return PublishedRows(
        row
        for row in rows
        if row.gpu_name and may_be_the_same_gpu(row.gpu_name, canonical)
    )


def series(rows: Iterable[PublishedRow]) -> dict[str, list[PublishedRow]]:
    """Group rows into scaling series, each ordered by world size.

    Series of which fewer than two sizes are among ``rows`` are left out: they show
    no scaling.
    """
    groups: dict[str, list[PublishedRow]] = {}
    for row in rows:
        if row.series is not None and row.images_per_second is not None:
            groups.setdefault(row.series, []).append(row)
    return {
        label: sorted(members, key=lambda row: row.world_size)
        for label, members in groups.items()
        if len(members) > 1
    }


def curves(
    *,
    model: str,
    gpu_name: str,
    precision: str,
    largest_world_size: int,
    limit: int = 4,
) -> dict[str, list[PublishedRow]]:
    """Return the scaling series that say most about a measurement, a few at most."""
    candidates = series(
        row
        for kind in _COMPARABLE.get(precision, (precision,))
        for row in lookup(model=model, gpu_name=gpu_name, precision=kind)
        if row.world_size <= largest_world_size
    )

    def preference(
        entry: tuple[str, list[PublishedRow]],
    ) -> tuple[bool, int, bool, int]:
        first = entry[1][0]
        return (
            first.framework != "pytorch",
            -len(entry[1]),
            first.origin != "recomputed",
            -first.year,
        )

    curves_by_key: dict[tuple[str | None, ...], tuple[str, list[PublishedRow]]] = {}
    for label, members in sorted(candidates.items(), key=preference):
        first = members[0]
        what = (first.publisher, first.software, first.gpu_name, first.memory_format)
        curves_by_key.setdefault((*what, first.precision), (label, members))
    return dict(list(curves_by_key.values())[:limit])


@functools.cache
def _rows() -> tuple[PublishedRow, ...]:
    folder = resources.files("nbkit.references")
    tables = (folder / name for name in ("published.csv", "measured.csv"))
    texts = (io.StringIO(table.read_text(encoding="utf-8")) for table in tables)
    return tuple(_row(cells) for text in texts for cells in csv.DictReader(text))


def _row(cells: dict[str, str]) -> PublishedRow:
    # fields() gives the annotations as written, such as "float | None".
    values: dict[str, Any] = {
        field.name: _READERS[str(field.type).removesuffix(" | None")](cells[field.name])
        if cells[field.name]
        else None
        for field in fields(PublishedRow)
    }
    return PublishedRow(**values)


_READERS: dict[str, Callable[[str], object]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": {"yes": True, "no": False}.__getitem__,
}


@dataclass(frozen=True)
class PublishedPair:
    """The same model in 16 bits in both layouts, as others have published it."""

    first: PublishedRow
    """In ``channels_first``."""
    last: PublishedRow
    """In ``channels_last``."""
    differs: str | None = None
    """Other differences, which also affect the ratio."""

    @property
    def ratio(self) -> float:
        """``channels_last`` over ``channels_first``, of one number each."""
        assert self.first.images_per_second
        assert self.last.images_per_second
        return self.last.images_per_second / self.first.images_per_second


# Who measured channels_first, who channels_last, on which GPU, and what else differs.
# Paddle ran NVIDIA's own code with the default layout of its main.py. Their A100s are
# not a pair: the memory of NVIDIA's has 1.3 times the bandwidth.
_PAIRS = (
    ("Paddle", "NVIDIA", "V100-SXM2-32GB", "other software"),
    ("apex", "apex", "A100", None),
    ("timm", "timm", "RTX 3090", None),
)


def published_pairs() -> list[PublishedPair]:
    """Return ResNet-50 in fp16 on one GPU, in both layouts, as others published it."""
    return [
        PublishedPair(
            _published(first, gpu_name, "channels_first"),
            _published(last, gpu_name, "channels_last"),
            differs,
        )
        for first, last, gpu_name, differs in _PAIRS
    ]


def _published(publisher: str, gpu_name: str, memory_format: str) -> PublishedRow:
    rows = lookup(
        model="resnet50",
        gpu_name=gpu_name,
        precision="fp16",
        memory_format=memory_format,
        world_size=1,
    )
    return next(
        row
        for row in rows
        if (row.publisher, row.gpu_name) == (publisher, gpu_name)
        and row.origin == "published"
        and not row.compile
        and row.images_per_second
    )


def printed_seconds(row: PublishedRow) -> float:
    """Return the run time that conditions tell: ``34:32`` or ``34 min 54 s``."""
    duration = re.search(r"(\d+)(?::| min )(\d\d)", row.conditions or "")
    assert duration is not None
    return 60.0 * int(duration[1]) + int(duration[2])
