"""Quantities as text: enough figures to compare, none that mean nothing."""

from __future__ import annotations

import math

from nbkit.statistics import size_in_words

RATE_STATISTIC = (
    "images per second over the measured steps of a run (includes data wait, excludes "
    "warm-up); median over runs"
)
RATE_INTERVAL = "95% CI, Student's t on the logarithm of each run's rate"

UNKNOWN = "–"
"""Text for an unknown quantity."""


def figures(value: float | None) -> str:
    """Return a number, such as ``12,345``, ``0.6931`` or ``1.5e-5``.

    It has four significant figures, or all integer digits of a number below 1e7.
    Charts, tables and the sidebar use the same rule: ``view_numbers.js``, ``units.ts``.
    """
    if value is None:
        return UNKNOWN
    size_of_it = abs(value)
    if size_of_it and not 1e-4 <= size_of_it < 1e7:
        mantissa, exponent = f"{value:.3e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent):+d}"
    decimals = max(0, 3 - math.floor(math.log10(size_of_it))) if size_of_it else 0
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def rate(images_per_second: float | None) -> str:
    """Return images per second, such as ``12,345``, ``371.2`` or ``3.71``."""
    if images_per_second is None:
        return UNKNOWN
    digits = 0 if images_per_second >= 1000 else 1 if images_per_second >= 10 else 2
    return f"{images_per_second:,.{digits}f}"


def percent(part: float | None) -> str:
    """Return a part of one, such as ``97.3%``."""
    return UNKNOWN if part is None else f"{part * 100:.1f}%"


def gigabytes(size_bytes: float) -> str:
    """Return gigabytes (1e9) in three significant figures, without the unit."""
    return f"{size_bytes / 1e9:.3g}"


def size(size_bytes: float | None) -> str:
    """Return a size in binary units, such as ``64 MiB`` or ``20.5 GiB``."""
    return UNKNOWN if size_bytes is None else size_in_words(size_bytes)


def duration(seconds: float | None) -> str:
    """Return a time in three significant figures, such as ``34.9 min``."""
    if seconds is None:
        return UNKNOWN
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{_three_figures(seconds / length)} {unit}"
    return f"{_three_figures(seconds)} s"


def elapsed(seconds: float | None) -> str:
    """Return a time in its two largest units, such as ``2 min 42 s`` or ``3 h``.

    The page of a run uses the same rule: ``view_numbers.js``.
    """
    if seconds is None:
        return UNKNOWN
    whole = max(0, math.floor(seconds + 0.5))
    units = (
        (whole // 86_400, "d"),
        (whole // 3_600 % 24, "h"),
        (whole // 60 % 60, "min"),
        (whole % 60, "s"),
    )
    first = next((place for place, (count, _) in enumerate(units) if count), 3)
    shown = [f"{count} {unit}" for count, unit in units[first : first + 2] if count]
    return " ".join(shown) or "0 s"


def minutes(seconds: float) -> str:
    """Return a time as minutes and seconds, such as ``12:05``."""
    return f"{int(seconds // 60)}:{int(seconds % 60):02d}"


def energy(joules: float | None) -> str:
    """Return an energy, such as ``12.4 kWh``, ``35.0 Wh`` or ``310 J``."""
    if joules is None:
        return UNKNOWN
    for unit, size_joules in (("kWh", 3.6e6), ("Wh", 3.6e3)):
        if joules >= size_joules:
            return f"{_three_figures(joules / size_joules)} {unit}"
    return f"{_three_figures(joules)} J"


def price(amount: float | None, currency: str) -> str:
    """Return a price, such as ``18.60 USD``; small sums in two significant figures."""
    if amount is None:
        return UNKNOWN
    small = amount and abs(amount) < 0.1
    return f"{amount:.2g} {currency}" if small else f"{amount:,.2f} {currency}"


def _three_figures(value: float) -> str:
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}"


def size_label(world_size: int, nnodes: int) -> str:
    """Return a short label of a size: ``8``, or ``2 x 8`` for several nodes."""
    return f"{world_size}" if nnodes == 1 else f"{nnodes} x {world_size // nnodes}"


def device_label(device_type: str, count: int, nnodes: int = 1) -> str:
    """Return a size in words: ``8 GPUs``, ``2 x 1 GPU`` or ``2 CPU processes``."""
    singular, several = ("GPU", "GPUs")
    if device_type == "cpu":
        singular, several = ("CPU process", "CPU processes")
    return f"{size_label(count, nnodes)} {singular if count == nnodes else several}"
