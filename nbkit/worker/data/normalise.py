"""Pixels from bytes to normalized tensors on the device."""

from __future__ import annotations

import weakref

import numpy as np
import torch

from nbkit.config import ExperimentConfig

# Mean and deviation of ImageNet's pixels, for values from 0 to 255:
# https://docs.pytorch.org/vision/stable/models.html
_MEAN = (0.485 * 255, 0.456 * 255, 0.406 * 255)
_DEVIATION = (0.229 * 255, 0.224 * 255, 0.225 * 255)

# One is in use while the next is made.
_KEPT_BATCHES = 2


class Normalise:
    """Bytes to normalised images, on the device where the bytes are."""

    def __init__(self, config: ExperimentConfig, device: torch.device) -> None:
        self._channels_last = config.memory_format == "channels_last"
        # A number for every byte of a row: colour by colour, a processor would go
        # through an image in steps of three.
        mean = torch.tensor(_MEAN, device=device)
        factor = 1 / torch.tensor(_DEVIATION, device=device)
        self._factor = factor.repeat(config.image_size)
        self._offset = (-mean * factor).repeat(config.image_size)
        self._memory = _Memory()

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return images, floats of (n, 3, height, width), in the configured layout."""
        rows = pixels.flatten(2)
        if rows.is_cuda:
            images = (rows * self._factor).add_(self._offset)
        else:
            images = self._memory.floats(rows.shape)
            # One image after the other, each within the processor's cache.
            for image, row in zip(images, rows, strict=True):
                image.copy_(row)
                torch.addcmul(self._offset, image, self._factor, out=image)
        # As it is, a batch of (n, height, width, 3) is in channels_last order.
        images = images.view(pixels.shape).permute(0, 3, 1, 2)
        return images if self._channels_last else images.contiguous()


class _Memory:
    """Memory of the host for batches, used again when nothing holds the last one.

    New memory would cost the processor more than the arithmetic does: a page fault for
    every 4 KiB.
    """

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []

    def floats(self, shape: torch.Size) -> torch.Tensor:
        """Return a tensor (float32) that may hold anything."""
        memory = self._free.pop() if self._free else None
        if memory is None or memory.shape != shape:
            memory = np.empty(shape, np.float32)
        # The tensor keeps this view for as long as anything refers to its memory.
        view = memory.view()
        weakref.finalize(view, self._take_back, memory).atexit = False
        return torch.from_numpy(view)

    def _take_back(self, memory: np.ndarray) -> None:
        if len(self._free) < _KEPT_BATCHES:
            self._free.append(memory)


class DeviceCopy:
    """Copies batches to a device, beside the computation of the step before.

    The copy is queued on a separate stream, as soon as the host asks for the batch;
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
