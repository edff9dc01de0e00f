"""Any image in 8-bit RGB: the one definition for whoever shows or judges images."""

from __future__ import annotations

from PIL import Image

__all__ = ["to_rgb"]


def to_rgb(image: Image.Image) -> Image.Image:
    """Return an image in 8-bit RGB, whatever it was.

    Parameters
    ----------
    image
        16 bits a channel become the upper 8 of them; transparency is dropped.
    """
    if image.mode.startswith("I"):
        # A conversion alone would cut off everything above 255.
        image = image.convert("I").point(lambda value: value / 256).convert("L")
    elif image.mode == "P":
        # On the straight way Pillow warns of a palette with transparency.
        image = image.convert("RGBA")
    return image.convert("RGB")
