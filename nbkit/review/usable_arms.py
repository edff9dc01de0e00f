"""Arms without divergence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from nbkit.store.nonfinite import NonFinite

NOTHING_COMPARED = "No comparison: the baseline diverged."
"""The rest of an answer whose baseline is of no use."""


def usable_arms(
    arms: Iterable[str],
    diverged: Mapping[str, NonFinite],
    compared_with: Collection[str | None] = (),
) -> list[str]:
    """Return the arms that may get a verdict or projection, or be the fastest."""
    if any(arm in diverged for arm in compared_with):
        return []
    return [arm for arm in arms if arm not in diverged]


def earliest(divergences: Iterable[NonFinite | None]) -> NonFinite | None:
    """Return the earliest NaN or Inf; None if all values were finite."""
    seen = [divergence for divergence in divergences if divergence is not None]
    return min(seen, key=lambda divergence: divergence.step, default=None)


def no_verdict_sentence(diverged: Mapping[str, object]) -> str:
    """Return the first sentence of an answer; empty if all arms were finite."""
    if not diverged:
        return ""
    return f"Diverged: {', '.join(f'{arm} ({at})' for arm, at in diverged.items())}."
