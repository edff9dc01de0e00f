"""Charts as PNG pictures, for viewers that run no JavaScript."""

from __future__ import annotations

import altair as alt
import vl_convert

_VEGALITE_VERSION = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])


def png(chart: alt.LayerChart | alt.Chart, scale: float = 2) -> bytes:
    """Return a chart as a PNG picture, for viewers that run no JavaScript."""
    return vl_convert.vegalite_to_png(
        chart.to_dict(), vl_version=_VEGALITE_VERSION, scale=scale
    )
