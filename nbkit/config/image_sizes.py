"""Image sizes that a model accepts, known from its name alone."""

from __future__ import annotations

# Smallest image, in pixels, whose feature maps do not shrink to nothing, found by
# trying every size; what is not named here takes every size that a config allows.
_SMALLEST_IMAGE = {
    "alexnet": 63,
    "convnext_": 32,
    "densenet": 29,
    "inception_v3": 75,
    "squeezenet1_0": 21,
    "squeezenet1_1": 17,
    "vgg": 32,
}

IMAGE_MULTIPLE = {
    "maxvit_t": 224,
    "vit_b_16": 16,
    "vit_b_32": 32,
    "vit_h_14": 14,
    "vit_l_16": 16,
    "vit_l_32": 32,
}
"""Models that are built for one size of image, which they cut into patches or windows:
it has to be a multiple of this."""


def image_size_problem(model: str, size: int) -> str | None:
    """Return why a model, by name, cannot take images of a size; None if it may."""
    for family, smallest in _SMALLEST_IMAGE.items():
        if model.startswith(family) and size < smallest:
            return (
                f"is below {smallest}, the minimum of {model}. Use {smallest} or more"
            )
    multiple = IMAGE_MULTIPLE.get(model, 1)
    if size % multiple == 0:
        return None
    below = size // multiple * multiple
    choice = " or ".join(f"{n}" for n in (below, below + multiple) if 16 <= n <= 4_096)
    return f"is not a multiple of {multiple}, as {model} requires. Use {choice}"
