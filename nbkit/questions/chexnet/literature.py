"""Published AUROCs of ChestX-ray14, by label.

One number each, without an interval, on test images of other splits than any report
here: context, no comparison.

References
----------
Both columns as the table of https://github.com/arnoweng/CheXNet prints them; they are
those of X. Wang et al. (2017), https://arxiv.org/abs/1705.02315, and of P. Rajpurkar et
al., CheXNet (2017), https://arxiv.org/abs/1711.05225.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_TABLE = "https://github.com/arnoweng/CheXNet"
_AREAS = {
    "Atelectasis": (0.716, 0.8094),
    "Cardiomegaly": (0.807, 0.9248),
    "Effusion": (0.784, 0.8638),
    "Infiltration": (0.609, 0.7345),
    "Mass": (0.706, 0.8676),
    "Nodule": (0.671, 0.7802),
    "Pneumonia": (0.633, 0.7680),
    "Pneumothorax": (0.806, 0.8887),
    "Consolidation": (0.708, 0.7901),
    "Edema": (0.835, 0.8878),
    "Emphysema": (0.815, 0.9371),
    "Fibrosis": (0.769, 0.8047),
    "Pleural_Thickening": (0.708, 0.8062),
    "Hernia": (0.767, 0.9164),
}
"""Of Wang et al., and of CheXNet."""


@dataclass(frozen=True)
class PublishedAreas:
    """What one paper printed."""

    publisher: str
    source: str
    url: str
    table_url: str
    """Where the numbers were read."""
    areas: Mapping[str, float]
    """AUROC by label."""


def published_areas(labels: Sequence[str]) -> list[PublishedAreas]:
    """Return what is published of these labels; nothing unless all are NIH's."""
    if not set(labels) >= set(_AREAS):
        return []
    return [
        PublishedAreas(
            "Wang et al. 2017",
            "X. Wang et al., ChestX-ray8 (CVPR 2017)",
            "https://arxiv.org/abs/1705.02315",
            _TABLE,
            {label: wang for label, (wang, _) in _AREAS.items()},
        ),
        PublishedAreas(
            "CheXNet 2017",
            "P. Rajpurkar et al., CheXNet: Radiologist-level pneumonia detection on "
            "chest X-rays with deep learning (2017)",
            "https://arxiv.org/abs/1711.05225",
            _TABLE,
            {label: chexnet for label, (_, chexnet) in _AREAS.items()},
        ),
    ]
