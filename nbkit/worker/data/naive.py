"""The ``naive`` loader: one image after another, while the device waits.

What a first training script does, kept for comparison: no loading processes, nothing is
read ahead, and the numbers are made on the host, so that four times the bytes travel.
"""

from __future__ import annotations

from collections.abc import Generator

import torch

from nbkit.datasets.samples import Samples
from nbkit.worker.data import EvaluationBatch
from nbkit.worker.data.image_data import (
    NO_IMAGE,
    ImageData,
    Request,
    Requests,
    read_image,
)
from nbkit.worker.data.images import decode_crop, naming


class NaiveData(ImageData):
    """One rank's part of a set of images; see `nbkit.worker.data.Data`."""

    loader = "naive"
    normalises_on_host = True

    def _pixels(
        self, samples: Samples, requests: Requests
    ) -> Generator[torch.Tensor, None, None]:
        for request in requests:
            yield torch.stack(
                [self._image(samples, request, index) for index in request.indices]
            )

    def _finish(
        self, pixels: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor
    ) -> EvaluationBatch:
        device = self.placement.device
        images = self._normalise(pixels)
        return images.to(device), labels.to(device), mask.to(device)

    def _image(self, samples: Samples, request: Request, index: int) -> torch.Tensor:
        size = self.augmentation.size
        if index == NO_IMAGE:
            return torch.zeros((size, size, 3), dtype=torch.uint8)
        decoding = samples.decoding(index)
        crop = self.augmentation.crop(decoding, request.epoch, index)
        with naming(samples, index):
            return decode_crop(read_image(samples, index), decoding, crop, size)


load = NaiveData
