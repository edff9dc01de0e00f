"""From bytes of colour to the numbers that a model takes, and onto its device."""

from __future__ import annotations

import torch

from nbkit.config import ExperimentConfig

__all__ = ["DeviceCopy", "Normalise"]

# Mean and deviation of ImageNet's pixels, for values from 0 to 255:
# https://docs.pytorch.org/vision/stable/models.html
_MEAN = (0.485 * 255, 0.456 * 255, 0.406 * 255)
_DEVIATION = (0.229 * 255, 0.224 * 255, 0.225 * 255)


class Normalise:
    """Bytes to normalised images, on the device where the bytes are.

    Parameters
    ----------
    config
        ``memory_format`` matters.
    device
        Where it happens.
    """

    def __init__(self, config: ExperimentConfig, device: torch.device) -> None:
        self._channels_last = config.memory_format == "channels_last"
        shape = (1, 3, 1, 1)
        self._mean = torch.tensor(_MEAN, device=device).view(shape)
        self._factor = 1 / torch.tensor(_DEVIATION, device=device).view(shape)

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return images (float, shape (n, 3, height, width)) in the configured layout.

        Parameters
        ----------
        pixels
            RGB, uint8, shape ``(n, height, width, 3)``.
        """
        # As it is, a batch of (n, height, width, 3) bytes is in channels_last order.
        images = pixels.permute(0, 3, 1, 2)
        if not self._channels_last:
            images = images.contiguous()
        return (images - self._mean).mul_(self._factor)


class DeviceCopy:
    """Copies batches to a device, beside the computation of the step before.

    The copy is queued on a stream of its own, as soon as the host asks for the batch;
    the device is then still busy with the steps that the host has queued before.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._copies = torch.cuda.Stream(device) if device.type == "cuda" else None

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the tensors on the device, in order for its current stream."""
        if self._copies is None:
            return tensors
        with torch.cuda.stream(self._copies):
            copies = tuple(
                tensor.to(self._device, non_blocking=True) for tensor in tensors
            )
        current = torch.cuda.current_stream(self._device)
        current.wait_stream(self._copies)
        for copy in copies:
            # Its memory must not be used again before the computation is done.
            copy.record_stream(current)
        return copies
