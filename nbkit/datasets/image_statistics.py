"""Twelve global statistics of an image: overall appearance, and its border.

They measure brightness, contrast, sharpness and size. What a model can predict from
these alone does not show that it recognizes anything *in* an image.
"""

from __future__ import annotations

import numpy as np
from PIL import Image

from nbkit.datasets.rgb import open_image, to_rgb

_MOST_PIXELS_A_SIDE = 256
"""Larger images are scaled down first: global statistics hardly change."""
_PERCENTILES = (5, 25, 50, 75, 95)
_BORDER = 0.05
"""Width of the border, as a share of each side."""
_DARK, _SATURATED = 0.02, 0.98


def image_statistics(data: bytes) -> list[float]:
    """Return the twelve statistics of an image.

    Mean, standard deviation, five percentiles, sharpness, mean of the border, shares of
    dark and saturated pixels, bytes of the file per pixel.
    """
    with open_image(data) as image:
        stored_pixels = image.width * image.height
        grey = to_rgb(image).convert("L")
    side = _MOST_PIXELS_A_SIDE
    grey.thumbnail((side, side), Image.Resampling.BOX)
    pixels = np.asarray(grey, np.float32) / 255
    rows, columns = pixels.shape
    height, width = max(1, round(_BORDER * rows)), max(1, round(_BORDER * columns))
    border = np.ones(pixels.shape, bool)
    border[height : rows - height, width : columns - width] = False
    # An image of one row or column has no neighbours that way.
    steps = [np.abs(np.diff(pixels, axis=axis)) for axis in (0, 1)]
    statistics = [
        pixels.mean(),
        pixels.std(),
        *np.percentile(pixels, _PERCENTILES),
        sum(float(step.mean()) for step in steps if step.size),
        pixels[border].mean(),
        (pixels <= _DARK).mean(),
        (pixels >= _SATURATED).mean(),
        len(data) / stored_pixels,
    ]
    return [float(value) for value in statistics]
